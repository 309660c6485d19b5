//! ResNet's stages.

use super::{norm_sums, rows};
use crate::memory::{Card, CardStage, DryBuffer};
use crate::model::fuse::ConvSizes;

/// Pixels of maps of batch, height and width `size` after a convolution.
fn after(conv: &ConvSizes, size: [usize; 3]) -> [usize; 3] {
    conv.output(size)
}

fn pixels(size: [usize; 3]) -> usize {
    size.iter().product()
}

/// Numbers of the packed forms of a convolution's weight, forward and for the gradient of its input.
fn packed(card: &Card, conv: &ConvSizes) -> [usize; 2] {
    let ([input, output], taps) = (conv.channels, conv.window.kernel * conv.window.kernel);
    [output * card.row(taps * input), input * card.row(taps * output)]
}

/// A convolution, norm and ReLU, for small images.
pub(in crate::model) struct PlainStemCosts {
    /// Batch, height and width of the images.
    pub size: [usize; 3],
    /// The convolution.
    pub conv: ConvSizes,
}

impl PlainStemCosts {
    fn output(&self) -> usize {
        pixels(after(&self.conv, self.size))
    }

    fn products(&self) -> f64 {
        (self.output() * self.conv.weights()) as f64
    }
}

impl CardStage for PlainStemCosts {
    type Kept = [DryBuffer; 4];

    fn input(&self, card: &Card) -> DryBuffer {
        card.floats(pixels(self.size) * self.conv.channels[0])
    }

    fn forward(&self, card: &Card, input: DryBuffer, _keep: bool) -> (DryBuffer, Self::Kept) {
        let [read, given] = self.conv.channels;
        let images = card.map(pixels(self.size), read);
        drop(input);
        let convolved = card.map(self.output(), given);
        let _part = card.partials(rows(self.output()), given);
        let small = [card.moments(given), card.pairs(given)];
        let output = card.map(self.output(), given);
        card.multiply(self.products());
        card.pass(self.output(), 3 * given);
        let [moments, affine] = small;
        (output, [images, convolved, moments, affine])
    }

    fn backward(&self, card: &Card, kept: Self::Kept, gradient: DryBuffer) -> Option<DryBuffer> {
        let _kept = (kept, gradient);
        let [read, given] = self.conv.channels;
        drop(norm_sums(card, self.output(), given));
        drop(card.split(
            self.output(),
            given,
            read * self.conv.window.kernel * self.conv.window.kernel,
        ));
        card.multiply(self.products());
        card.pass(self.output(), 6 * given);
        None
    }

    fn gradient(&self, card: &Card) -> DryBuffer {
        card.map(self.output(), self.conv.channels[1])
    }

    fn parameters(&self) -> [usize; 2] {
        [self.conv.weights(), 2 * self.conv.channels[1]]
    }

    fn statistics(&self) -> usize {
        2 * self.conv.channels[1]
    }

    fn packed(&self, card: &Card) -> usize {
        packed(card, &self.conv)[0]
    }
}

/// A residual block.
pub(in crate::model) struct ResidualCosts {
    /// Batch, height and width of the input.
    pub size: [usize; 3],
    /// The convolutions on the residual path.
    pub convs: Vec<ConvSizes>,
    /// The shortcut's convolution.
    pub projection: Option<ConvSizes>,
}

/// A convolution's output, where it is kept, and its norm's statistics and affine map.
type Layer = (Option<DryBuffer>, [DryBuffer; 2]);

impl ResidualCosts {
    /// The size of what each convolution on the path reads, and of the output.
    fn sizes(&self) -> Vec<[usize; 3]> {
        let mut sizes = vec![self.size];
        for conv in &self.convs {
            sizes.push(after(conv, sizes[sizes.len() - 1]));
        }
        sizes
    }

    fn output(&self) -> usize {
        pixels(self.sizes()[self.convs.len()])
    }

    fn given(&self) -> usize {
        self.convs.last().map_or(0, |conv| conv.channels[1])
    }

    fn all(&self) -> impl Iterator<Item = &ConvSizes> {
        self.convs.iter().chain(&self.projection)
    }

    /// The output of a convolution of maps of `size`.
    fn convolve(&self, card: &Card, conv: &ConvSizes, size: [usize; 3]) -> DryBuffer {
        let after = pixels(after(conv, size));
        card.multiply((after * conv.weights()) as f64);
        card.pass(pixels(size), conv.channels[0]);
        card.pass(after, conv.channels[1]);
        card.map(after, conv.channels[1])
    }

    /// The output of convolution `index`, kept or computed again.
    fn map(&self, card: &Card, layers: &[Layer], index: usize) -> DryBuffer {
        if let Some(map) = &layers[index].0 {
            return map.clone();
        }
        let _before = index.checked_sub(1).map(|before| self.map(card, layers, before));
        self.convolve(card, &self.convs[index], self.sizes()[index])
    }

    /// What goes back through convolution `conv` to what it reads, of `size`: its weight's gradient,
    /// and the work of the input's.
    fn back(&self, card: &Card, conv: &ConvSizes, size: [usize; 3]) {
        let ([input, output], taps) = (conv.channels, conv.window.kernel * conv.window.kernel);
        let after = pixels(after(conv, size));
        drop(card.split(after, output, input * taps));
        card.multiply(2.0 * (after * conv.weights()) as f64);
        card.pass(after, 2 * output);
        card.pass(pixels(size), 5 * input);
    }
}

impl CardStage for ResidualCosts {
    type Kept = (DryBuffer, DryBuffer, Vec<Layer>);

    fn input(&self, card: &Card) -> DryBuffer {
        card.map(pixels(self.size), self.convs[0].channels[0])
    }

    fn forward(&self, card: &Card, input: DryBuffer, keep: bool) -> (DryBuffer, Self::Kept) {
        let (sizes, mut layers) = (self.sizes(), Vec::<Layer>::new());
        let mut map = input.clone();
        for (index, conv) in self.convs.iter().enumerate() {
            let [read, given] = conv.channels;
            let normal =
                (index > 0 && conv.window.kernel > 1).then(|| card.map(pixels(sizes[index]), read));
            if normal.is_some() {
                card.pass(pixels(sizes[index]), 2 * read);
            }
            let out = self.convolve(card, conv, sizes[index]);
            let _part = card.partials(rows(pixels(sizes[index + 1])), given);
            drop(normal);
            map = out;
            let kept = (keep && conv.window.kernel > 1).then(|| map.clone());
            layers.push((kept, [card.moments(given), card.pairs(given)]));
        }
        let projected = self.projection.as_ref().map(|conv| {
            let map = self.convolve(card, conv, self.size);
            let given = conv.channels[1];
            drop(card.partials(rows(self.output()), given));
            layers.push((None, [card.moments(given), card.pairs(given)]));
            map
        });
        let output = card.map(self.output(), self.given());
        card.pass(self.output(), 3 * self.given());
        drop((map, projected));
        (output.clone(), (input, output, layers))
    }

    fn backward(&self, card: &Card, kept: Self::Kept, gradient: DryBuffer) -> Option<DryBuffer> {
        let (_input, output, mut layers) = kept;
        let (sizes, last) = (self.sizes(), self.convs.len() - 1);
        let mut flowing = self.map(card, &layers, last);
        drop(norm_sums(card, self.output(), self.given()));
        card.pass(self.output(), 7 * self.given());
        drop(output);
        layers[last].0 = None;
        let read = self.convs[0].channels[0];
        let columns = match &self.projection {
            None if pixels(self.size) == self.output() && read == self.given() => gradient,
            None => card.map(pixels(self.size), read),
            Some(conv) => {
                let projected = self.convolve(card, conv, self.size);
                drop(norm_sums(card, self.output(), self.given()));
                drop(projected);
                self.back(card, conv, self.size);
                drop(gradient);
                card.map(pixels(self.size), read)
            }
        };
        for index in (1..=last).rev() {
            let conv = &self.convs[index];
            let map = self.map(card, &layers, index - 1);
            layers[index - 1].0 = None;
            let (before, channels) = (pixels(sizes[index]), conv.channels[0]);
            let out = match conv.window.kernel {
                1 => None,
                _ => Some(card.map(before, channels)),
            };
            self.back(card, conv, sizes[index]);
            let out = out.unwrap_or_else(|| card.map(before, channels));
            match conv.window.stride {
                1 => {
                    let _sums = card.pairs(channels);
                    drop(card.partials(rows(before), channels));
                }
                _ => drop(norm_sums(card, before, channels)),
            }
            flowing = out;
            drop(map);
        }
        self.back(card, &self.convs[0], self.size);
        drop(flowing);
        Some(columns)
    }

    fn gradient(&self, card: &Card) -> DryBuffer {
        card.map(self.output(), self.given())
    }

    fn parameters(&self) -> [usize; 2] {
        let channels: usize = self.all().map(|conv| conv.channels[1]).sum();
        [self.all().map(ConvSizes::weights).sum(), 2 * channels]
    }

    fn statistics(&self) -> usize {
        self.parameters()[1]
    }

    fn packed(&self, card: &Card) -> usize {
        self.all().flat_map(|conv| packed(card, conv)).sum()
    }
}

/// The mean over each map.
pub(in crate::model) struct MeanCosts {
    /// Batch, height and width of the input.
    pub size: [usize; 3],
    /// Its channels.
    pub channels: usize,
}

impl CardStage for MeanCosts {
    type Kept = ();

    fn input(&self, card: &Card) -> DryBuffer {
        card.map(pixels(self.size), self.channels)
    }

    fn forward(&self, card: &Card, _input: DryBuffer, _keep: bool) -> (DryBuffer, Self::Kept) {
        card.pass(pixels(self.size), self.channels);
        (self.gradient(card), ())
    }

    fn backward(&self, card: &Card, (): Self::Kept, gradient: DryBuffer) -> Option<DryBuffer> {
        let _gradient = gradient;
        card.pass(pixels(self.size), self.channels);
        Some(self.input(card))
    }

    fn gradient(&self, card: &Card) -> DryBuffer {
        card.floats(self.size[0] * self.channels)
    }

    fn parameters(&self) -> [usize; 2] {
        [0, 0]
    }

    fn statistics(&self) -> usize {
        0
    }

    fn packed(&self, _card: &Card) -> usize {
        0
    }
}
