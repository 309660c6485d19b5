//! A dense block.

use super::{Back, Program, Run, Value};
use crate::memory::DenseLayers;
use crate::memory::measure::{ended, within};
use crate::model::fuse::{DenseBlockSizes, DenseDropout};
use crate::ops::gpu::{
    Affine, Buffer, ChannelNorm, ChannelStats, ChannelsLast, Convolution, DeviceMap, Dropped, Form,
    GradientSums, Kernels, NormedConvolution, Over, Summed,
};
use crate::ops::{Dropout, Window};

/// Layers, each of which adds `growth` channels to all those before it.
///
/// All maps of the block lie in one buffer, of which each layer writes a slice. The statistics of a
/// channel are computed once, where it is written, and every later norm uses them. Going back, every
/// norm adds its share of a channel's gradient to S and to two sums (see [`GradientSums`]),
/// from which the channel's gradient is made once, where it was written.
pub(super) struct Block {
    /// Its sizes.
    pub sizes: DenseBlockSizes,
    /// What each layer is called in a trace.
    pub labels: Vec<String>,
    /// Of what each layer adds.
    pub dropout: Option<DenseDropout>,
    /// What a layer keeps.
    pub keep: DenseLayers,
}

pub(super) struct Saved {
    /// All of the block's maps.
    map: DeviceMap,
    stats: ChannelStats,
    layers: Vec<SavedLayer>,
}

/// What a layer needs for its backward pass besides the block's maps.
struct SavedLayer {
    /// The outputs of the 1×1 convolution; `None` where they are recomputed.
    bottleneck: Option<ChannelsLast>,
    /// What each of its norms uses, and what it does.
    norms: [(ChannelStats, Affine); 2],
    dropped: Option<Dropped>,
}

impl Block {
    /// The dropout of what a layer adds in this pass.
    fn dropout(&self, layer: usize, run: &Run<'_>) -> Option<Dropout> {
        let dropout = self.dropout.as_ref().filter(|_| run.pass.trains())?;
        Some(run.pass.dropout(&dropout.names[layer], dropout.probability))
    }

    /// The statistics of the channels of the input `map` that its norms read, with room for those of all its channels.
    fn stats(&self, run: &Run<'_>, map: &DeviceMap) -> ChannelStats {
        let DenseBlockSizes { input, of_block, growth, .. } = self.sizes;
        // They would lie in one piece.
        let known = map.stats.is_some() || input == of_block || run.over == Over::Batch;
        assert!(known, "the part of the block before gives statistics of groups");
        run.stats(map, self.sizes.output()).of_block(of_block, growth)
    }
}

/// The two convolutions of a layer on maps of `size`.
fn convolutions(size: [usize; 3]) -> [Convolution; 2] {
    let spatial = Window::same(3, 1);
    [Window::PIXEL, spatial].map(|window| Convolution { size, window })
}

impl Program for Block {
    type Saved = Saved;
    const READS_STATISTICS: bool = true;

    fn takes_sums(&self) -> bool {
        true
    }

    fn room(&self) -> usize {
        self.sizes.output()
    }

    fn forms(&self) -> Vec<(usize, Form)> {
        let forms = [
            (0, Form::LayerForward),
            (0, Form::InputGradient),
            (1, Form::LayerForward),
            (1, Form::LayerInputGradient),
        ];
        let of_layer = |layer| forms.map(|(weight, form)| (2 * layer + weight, form));
        (0..self.sizes.layers).flat_map(of_layer).collect()
    }

    fn forward(&self, run: &Run<'_>, input: Value) -> (Value, Option<Saved>) {
        let (kernels, values) = (run.kernels, run.values);
        let map = input.into_map().with_room(kernels, self.sizes.output());
        let stats = run.takes_statistics().then(|| self.stats(run, &map));
        let all = map.data.with_channels(self.sizes.output());
        let [_, spatial] = convolutions(map.size);
        let (pixels, growth) = (all.pixels(), self.sizes.growth);
        // Of the norms that have running statistics to use.
        let evaluated =
            |norm: usize| run.norm(norm, pixels, || unreachable!("running statistics are used"));
        let made = |(stats, affine): (ChannelStats, Affine)| (stats, ChannelNorm::from(&affine));
        let (mut kept, mut unchanged) = (Vec::new(), None);
        let mut next = match &stats {
            Some(stats) => made(run.norm(0, pixels, || stats.slice(0..self.sizes.input))),
            None => made(evaluated(0)),
        };
        for layer in 0..self.sizes.layers {
            within(&self.labels[layer], || {
                let (width, first) = (self.sizes.width(layer), next.clone());
                let weight = &values.packed[4 * layer];
                let (bottleneck, part) = within("norm1, relu1, conv1", || {
                    let (read, out) =
                        (all.slice(0..width), kernels.empty_map(pixels, self.sizes.bottleneck));
                    let part = kernels.layer_forward(&read, &first.1, weight, &out);
                    (out, part)
                });
                let norm = 2 * layer + 1;
                let second = within("norm2", || run.norm_ahead(norm, &bottleneck, &part));
                let weight = &values.packed[4 * layer + 2];
                let added = all.slice(width..width + growth);
                let mut part = within("norm2, relu2, conv2", || {
                    kernels.spatial_forward(&spatial, &bottleneck, &second.1, weight, &added)
                });
                let dropout = self.dropout(layer, run);
                if let Some(dropout) = dropout {
                    part = within("dropout", || {
                        kernels.drop_out(&added, map.size[0], dropout);
                        kernels.map_partials(&added, run.over)
                    });
                }
                let last = layer + 1 == self.sizes.layers;
                match &stats {
                    Some(stats) if last => {
                        let out = stats.slice(width..width + growth);
                        run.statistics("last", || part.clone(), &out);
                    }
                    Some(stats) => {
                        let read = stats.slice(0..width + growth);
                        next = run.channel_norm(norm + 1, &part, read, pixels);
                    }
                    None if last => {}
                    None => next = made(evaluated(norm + 1)),
                }
                if run.keeps {
                    let bottleneck = (self.keep == DenseLayers::Keep).then_some(bottleneck);
                    let norms = [first, second].map(|(stats, norm)| (stats, norm.affine));
                    let dropped = dropout.map(|dropout| {
                        let made = || kernels.unchanged(growth, run.over);
                        Dropped { dropout, unchanged: unchanged.get_or_insert_with(made).clone() }
                    });
                    kept.push(SavedLayer { bottleneck, norms, dropped });
                }
            });
        }
        let output = DeviceMap { data: all, stats: stats.clone(), ..map };
        let saved = stats.filter(|_| run.keeps);
        let saved = saved.map(|stats| Saved { map: output.clone(), stats, layers: kept });
        (Value::Map(output), saved)
    }

    fn backward(&self, back: &Back<'_>, kept: Saved, gradient: Value) -> Option<DeviceMap> {
        let Saved { map, stats, mut layers } = kept;
        let DeviceMap { data: summed, pending, .. } = gradient.into_map();
        let pending = (summed, pending.expect("the stage behind gives S"));
        // The gradient between a layer's convolutions, of one layer after another.
        let between = back.kernels.empty_map(map.data.pixels(), self.sizes.bottleneck);
        for layer in (0..self.sizes.layers).rev() {
            let kept = layers.pop().expect("one for each layer");
            within(&self.labels[layer], || {
                self.backward_layer(layer, back, (&map, &stats), kept, &between, &pending);
            });
        }
        let (summed, sums) = pending;
        let input = 0..self.sizes.input;
        let (data, sums) = (summed.slice(input.clone()), sums.slice(input.clone()));
        // The layers before add theirs.
        if self.sizes.input > self.sizes.of_block {
            return Some(DeviceMap { data, stats: None, pending: Some(sums), ..map });
        }
        let given = Summed {
            data: &data,
            map: &map.data.slice(input.clone()),
            stats: &stats.slice(input),
            missing: &sums,
        };
        back.kernels.input_gradient(given, back.synced);
        Some(DeviceMap { data, stats: None, pending: None, ..map })
    }

    fn checkpoint(&self, kernels: &Kernels, map: &DeviceMap) -> Option<DeviceMap> {
        let data = &map.data;
        if data.stride() == data.channels() {
            return None;
        }
        let compact = kernels.empty_map(data.pixels(), data.channels());
        kernels.copy(data, &compact);
        // The first run goes on to write the statistics of its own channels behind these.
        let stats = map.stats.as_ref().map(|stats| stats.copied(&map.gpu));
        Some(DeviceMap { data: compact, stats, ..map.clone() })
    }

    fn buffers<'a>(&self, kept: &'a mut Saved) -> Vec<&'a mut Buffer> {
        let bottlenecks = kept.layers.iter_mut().filter_map(|layer| layer.bottleneck.as_mut());
        let maps = std::iter::once(&mut kept.map.data).chain(bottlenecks);
        maps.map(ChannelsLast::buffer_mut).collect()
    }
}

impl Block {
    /// Makes the gradient of the channels that a layer wrote from S and what is missing of it, takes
    /// it back through the layer, adds the layer's share to both, and writes the gradients of its
    /// parameters.
    fn backward_layer(
        &self,
        layer: usize,
        back: &Back<'_>,
        (map, stats): (&DeviceMap, &ChannelStats),
        kept: SavedLayer,
        between: &ChannelsLast,
        (summed, sums): &(ChannelsLast, GradientSums),
    ) {
        let Back { kernels, values, room, over, .. } = *back;
        let [pointwise, spatial] = convolutions(map.size);
        let (width, growth) = (self.sizes.width(layer), self.sizes.growth);
        let (pixels, middle) = (map.data.pixels(), self.sizes.bottleneck);
        let [(stats1, affine1), (stats2, affine2)] = &kept.norms;
        let input = map.data.slice(0..width);

        let bottleneck = kept.bottleneck.unwrap_or_else(|| {
            let bottleneck = kernels.empty_map(pixels, middle);
            let weight = &values.packed[4 * layer];
            kernels.normed_convolve(&input, &affine1.into(), weight, &bottleneck, None);
            bottleneck
        });
        let written = width..width + growth;
        let written = Summed {
            data: &summed.slice(written.clone()),
            map: &map.data.slice(written.clone()),
            stats: &stats.slice(written.clone()),
            missing: &sums.slice(written),
        };
        let missing = kernels.sums(middle, over);
        let conv2 = NormedConvolution {
            convolution: &spatial,
            weight: &values.packed[4 * layer + 3],
            map: &bottleneck,
            normalised: back.normalised(2 * layer + 1, stats2, affine2),
        };
        let parameters = room.gradients(2 * layer + 1);
        let pending = (between, &missing);
        kernels.spatial_backward(conv2, written, kept.dropped.as_ref(), parameters, pending);
        ended("conv2");
        let gradient = Summed { data: between, map: &bottleneck, stats: stats2, missing: &missing };
        let conv1 = NormedConvolution {
            convolution: &pointwise,
            weight: &values.packed[4 * layer + 1],
            map: &input,
            normalised: back.normalised(2 * layer, stats1, affine1),
        };
        let pending = (&summed.slice(0..width), &sums.slice(0..width));
        kernels.pointwise_backward(conv1, gradient, room.gradients(2 * layer), pending);
        ended("norm2, relu2, norm1, relu1, conv1");
    }
}
