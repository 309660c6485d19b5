//! DenseNet's stages.

use super::rows;
use crate::memory::{Card, CardStage, DryBuffer};

/// A stage's parameters: numbers in weights, and in norms' scales and shifts.
fn norms_and_weights(weights: usize, channels: usize) -> [usize; 2] {
    [weights, 2 * channels]
}

/// The stem.
pub(in crate::model) struct StemCosts {
    /// Batch, channels, height and width of the images.
    pub images: [usize; 4],
    /// Channels it gives, and room it leaves.
    pub channels: [usize; 2],
}

impl StemCosts {
    fn convolved(&self) -> [usize; 2] {
        let [_, _, height, width] = self.images;
        [height, width].map(|size| (size - 1) / 2 + 1)
    }

    /// Pixels after the convolution and after the pooling.
    fn pixels(&self) -> [usize; 2] {
        let pooled = self.convolved().map(|size| (size - 1) / 2 + 1);
        [self.convolved(), pooled].map(|[height, width]| self.images[0] * height * width)
    }

    /// Tiles of `height` × 16 pixels.
    fn tiles(&self, height: usize) -> usize {
        let [convolved_height, width] = self.convolved();
        self.images[0] * convolved_height.div_ceil(height) * width.div_ceil(16)
    }
}

impl CardStage for StemCosts {
    type Kept = [DryBuffer; 4];

    fn input(&self, card: &Card) -> DryBuffer {
        card.floats(self.images.iter().product())
    }

    fn forward(&self, card: &Card, input: DryBuffer, _keep: bool) -> (DryBuffer, Self::Kept) {
        let [convolved_pixels, pooled_pixels] = self.pixels();
        let [channels, room] = self.channels;
        let convolved = card.map(convolved_pixels, channels);
        let _part = card.partials(self.tiles(8).min(4 * card.multiprocessors()), channels);
        let moments = card.moments(channels);
        let _affine = card.pairs(channels);
        let output = card.map(pooled_pixels, room);
        let index = card.floats(pooled_pixels * channels / 8);
        let _pooled_part = card.partials(8 * card.multiprocessors(), channels);
        card.multiply((convolved_pixels * channels * 49 * self.images[1]) as f64);
        card.pass(convolved_pixels, 2 * channels);
        card.pass(pooled_pixels, channels);
        (output, [input, convolved, moments, index])
    }

    fn backward(&self, card: &Card, kept: Self::Kept, gradient: DryBuffer) -> Option<DryBuffer> {
        let _kept = (kept, gradient);
        let [convolved_pixels, pooled_pixels] = self.pixels();
        let channels = self.channels[0];
        let rows = self.tiles(4).min(card.multiprocessors());
        let _work =
            card.floats(rows * channels.div_ceil(64) * (129 * 8 * 7 * self.images[1] + 128));
        card.multiply((2 * convolved_pixels * channels * 49 * self.images[1]) as f64);
        card.pass(convolved_pixels, channels);
        card.pass(pooled_pixels, channels);
        None
    }

    fn gradient(&self, card: &Card) -> DryBuffer {
        card.map(self.pixels()[1], self.channels[1])
    }

    fn parameters(&self) -> [usize; 2] {
        norms_and_weights(49 * self.images[1] * self.channels[0], self.channels[0])
    }

    fn statistics(&self) -> usize {
        2 * self.channels[0]
    }

    fn packed(&self, _card: &Card) -> usize {
        self.channels[0] * 16 * (7 * self.images[1]).div_ceil(2)
    }
}

/// A dense block.
pub(in crate::model) struct BlockCosts {
    /// Pixels of all images.
    pub pixels: usize,
    /// How many layers.
    pub layers: usize,
    /// Channels of the input.
    pub input: usize,
    /// Channels that each layer adds.
    pub growth: usize,
    /// Channels between a layer's two convolutions.
    pub bottleneck: usize,
    /// Whether what lies between them is kept.
    pub keep: bool,
}

impl BlockCosts {
    fn width(&self, layer: usize) -> usize {
        self.input + layer * self.growth
    }

    fn output(&self) -> usize {
        self.width(self.layers)
    }

    /// Sums over the layers.
    fn sum(&self, of: impl Fn(usize) -> usize) -> usize {
        (0..self.layers).map(|layer| of(self.width(layer))).sum()
    }

    /// The 1×1 convolution of a layer that reads `width` channels.
    fn first(&self, card: &Card, width: usize) -> DryBuffer {
        let bottleneck = card.map(self.pixels, self.bottleneck);
        card.multiply((self.pixels * width * self.bottleneck) as f64);
        card.pass(self.pixels, width + self.bottleneck);
        bottleneck
    }
}

/// The maps, their moments, and of each layer what it keeps.
type KeptBlock = (DryBuffer, DryBuffer, Vec<(Option<DryBuffer>, [DryBuffer; 3])>);

impl CardStage for BlockCosts {
    type Kept = KeptBlock;

    fn input(&self, card: &Card) -> DryBuffer {
        card.map(self.pixels, self.output())
    }

    fn forward(&self, card: &Card, input: DryBuffer, keep: bool) -> (DryBuffer, Self::Kept) {
        let moments = card.moments(self.output());
        let mut layers = Vec::new();
        let mut next = card.pairs(self.input);
        for layer in 0..self.layers {
            let (width, affine) = (self.width(layer), next);
            let bottleneck = self.first(card, width);
            let _part = card.partials(rows(self.pixels), self.bottleneck);
            let between = card.moments(self.bottleneck);
            let affine_between = card.pairs(self.bottleneck);
            let _normal = card.map(self.pixels, self.bottleneck);
            let _part_added = card.partials(rows(self.pixels), self.growth);
            card.multiply((self.pixels * 9 * self.bottleneck * self.growth) as f64);
            card.pass(self.pixels, 3 * self.bottleneck + self.growth);
            next = card.pairs(width + self.growth);
            if keep {
                let bottleneck = self.keep.then_some(bottleneck);
                layers.push((bottleneck, [between, affine, affine_between]));
            }
        }
        (input.clone(), (input, moments, layers))
    }

    fn backward(&self, card: &Card, kept: Self::Kept, gradient: DryBuffer) -> Option<DryBuffer> {
        let (_map, _moments, mut layers) = kept;
        for layer in (0..self.layers).rev() {
            let width = self.width(layer);
            let (bottleneck, _small) = layers.pop().expect("one for each layer");
            let _bottleneck = bottleneck.unwrap_or_else(|| {
                let bottleneck = self.first(card, width);
                drop(card.partials(rows(self.pixels), self.bottleneck));
                bottleneck
            });
            card.pass(self.pixels, 3 * self.growth);
            let _normal = card.map(self.pixels, self.bottleneck);
            drop(card.split(self.pixels, self.growth, 9 * self.bottleneck));
            let _sums = card.pairs(self.bottleneck);
            drop(card.partials(rows(self.pixels), self.bottleneck));
            card.multiply((2 * self.pixels * 9 * self.bottleneck * self.growth) as f64);
            card.pass(self.pixels, 8 * self.bottleneck + 2 * self.growth);
            drop(card.split(self.pixels, self.bottleneck, width));
            drop(card.partials(rows(self.pixels), width));
            card.multiply((2 * self.pixels * width * self.bottleneck) as f64);
            card.pass(self.pixels, 2 * self.bottleneck + 4 * width);
        }
        card.pass(self.pixels, 3 * self.input);
        Some(gradient)
    }

    fn gradient(&self, card: &Card) -> DryBuffer {
        card.map(self.pixels, self.output())
    }

    fn parameters(&self) -> [usize; 2] {
        let middle = self.bottleneck;
        let weights = self.sum(|width| middle * (width + 9 * self.growth));
        norms_and_weights(weights, self.sum(|width| width + middle))
    }

    fn statistics(&self) -> usize {
        2 * self.sum(|width| width + self.bottleneck)
    }

    fn packed(&self, card: &Card) -> usize {
        let (middle, growth) = (self.bottleneck, self.growth);
        self.sum(|width| {
            let first = middle * card.row(width) + width * card.row(middle);
            first + growth * card.row(9 * middle) + middle * card.row(9 * growth)
        })
    }
}

/// A transition.
pub(in crate::model) struct TransitionCosts {
    /// Batch, height and width of the input.
    pub size: [usize; 3],
    /// Channels it reads, those it gives, and the room it leaves.
    pub channels: [usize; 3],
}

impl TransitionCosts {
    /// Pixels before and after the pooling.
    fn pixels(&self) -> [usize; 2] {
        let [batch, height, width] = self.size;
        [batch * height * width, batch * (height / 2) * (width / 2)]
    }
}

impl CardStage for TransitionCosts {
    type Kept = [DryBuffer; 2];

    fn input(&self, card: &Card) -> DryBuffer {
        card.map(self.pixels()[0], self.channels[0])
    }

    fn forward(&self, card: &Card, input: DryBuffer, _keep: bool) -> (DryBuffer, Self::Kept) {
        let ([before, after], [read, given, room]) = (self.pixels(), self.channels);
        let affine = card.pairs(read);
        let output = card.map(after, room);
        let _pooled = card.map(after, read);
        let _part = card.partials(rows(after), given);
        card.multiply((after * read * given) as f64);
        card.pass(before, read);
        card.pass(after, 2 * read + given);
        (output, [input, affine])
    }

    fn backward(&self, card: &Card, kept: Self::Kept, gradient: DryBuffer) -> Option<DryBuffer> {
        let _kept = (kept, gradient);
        let ([before, after], [read, given, _]) = (self.pixels(), self.channels);
        let summed = card.map(before, read);
        let _part = card.partials(rows(after), read);
        let _pooled = card.map(after, read);
        let _sums = card.pairs(read);
        drop(card.split(after, given, read));
        card.multiply((2 * after * read * given) as f64);
        card.pass(before, 2 * read);
        card.pass(after, 2 * read + 2 * given);
        Some(summed)
    }

    fn gradient(&self, card: &Card) -> DryBuffer {
        card.map(self.pixels()[1], self.channels[2])
    }

    fn parameters(&self) -> [usize; 2] {
        let [read, given, _] = self.channels;
        norms_and_weights(read * given, read)
    }

    fn statistics(&self) -> usize {
        2 * self.channels[0]
    }

    fn packed(&self, card: &Card) -> usize {
        let [read, given, _] = self.channels;
        given * card.row(read) + read * card.row(given)
    }
}

/// The last norm and the mean over each map.
pub(in crate::model) struct PoolCosts {
    /// Batch, height and width of the input.
    pub size: [usize; 3],
    /// Its channels.
    pub channels: usize,
}

impl PoolCosts {
    fn pixels(&self) -> usize {
        self.size.iter().product()
    }
}

impl CardStage for PoolCosts {
    type Kept = [DryBuffer; 2];

    fn input(&self, card: &Card) -> DryBuffer {
        card.map(self.pixels(), self.channels)
    }

    fn forward(&self, card: &Card, input: DryBuffer, _keep: bool) -> (DryBuffer, Self::Kept) {
        let affine = card.pairs(self.channels);
        card.pass(self.pixels(), self.channels);
        (self.gradient(card), [input, affine])
    }

    fn backward(&self, card: &Card, kept: Self::Kept, gradient: DryBuffer) -> Option<DryBuffer> {
        let _kept = (kept, gradient);
        let summed = card.map(self.pixels(), self.channels);
        let _part = card.partials(self.size[0], self.channels);
        let _sums = card.pairs(self.channels);
        card.pass(self.pixels(), 2 * self.channels);
        Some(summed)
    }

    fn gradient(&self, card: &Card) -> DryBuffer {
        card.floats(self.size[0] * self.channels)
    }

    fn parameters(&self) -> [usize; 2] {
        norms_and_weights(0, self.channels)
    }

    fn statistics(&self) -> usize {
        2 * self.channels
    }

    fn packed(&self, _card: &Card) -> usize {
        0
    }
}
