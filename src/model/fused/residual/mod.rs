//! A residual block.

mod backward;

use super::{Back, Program, Run, Value};
use crate::memory::DenseLayers;
use crate::memory::measure::within;
use crate::model::fuse::ResidualSizes;
use crate::ops::gpu::{
    Affine, Buffer, ChannelStats, ChannelsLast, DeviceMap, Form, Kernels, Over, Partials, Shortcut,
};

/// Convolutions, each followed by a norm; ReLU between them and after the shortcut is added.
///
/// The outputs of 3×3 convolutions are kept for the backward pass, and so are the block's input and
/// output, which its neighbours hold as well. What 1×1 convolutions give is kept or computed again, and what
/// norms make of it is computed again.
pub(super) struct Residual {
    /// Its sizes.
    pub sizes: ResidualSizes,
    /// Whether the outputs of 1×1 convolutions are kept.
    pub keep: DenseLayers,
}

pub(super) struct Saved {
    input: DeviceMap,
    output: ChannelsLast,
    layers: Vec<Layer>,
}

/// A convolution and its norm, after the forward pass.
pub(super) struct Layer {
    /// The convolution's output; `None` where it is computed again.
    map: Option<ChannelsLast>,
    stats: ChannelStats,
    affine: Affine,
}

impl Residual {
    /// What convolution `index` and the norm behind it are called.
    fn names(&self, index: usize) -> [&'static str; 2] {
        const PATH: [[&str; 2]; 3] = [["conv1", "bn1"], ["conv2", "bn2"], ["conv3", "bn3"]];
        if index == self.sizes.convs.len() { ["downsample.0", "downsample.1"] } else { PATH[index] }
    }

    /// Room for the output of convolution `index` of maps of `size`.
    fn output(&self, kernels: &Kernels, index: usize, size: [usize; 3]) -> ChannelsLast {
        let conv = self.sizes.all()[index];
        kernels.empty_map(conv.output(size).iter().product(), conv.channels[1])
    }

    /// What convolution `index` makes of `map`, of `size`, after the norm and ReLU before it; and what
    /// it leaves of its channels.
    fn convolve(
        &self,
        run: &Run<'_>,
        index: usize,
        (map, size): (&ChannelsLast, [usize; 3]),
        before: Option<&Affine>,
    ) -> (ChannelsLast, Partials) {
        let (kernels, conv) = (run.kernels, self.sizes.all()[index]);
        let (convolution, weight) = (conv.on(size), &run.values.packed[2 * index]);
        let name = self.names(index)[0];
        let convolved = |map: &ChannelsLast| {
            let out = self.output(kernels, index, size);
            let part = kernels.conv_forward(&convolution, map, weight, &out, run.over);
            (out, part)
        };
        let Some(affine) = before else { return within(name, || convolved(map)) };
        let norm = self.names(index - 1)[1];
        if conv.window.kernel == 1 {
            return within(format_args!("{norm}, relu, {name}"), || {
                let out = self.output(kernels, index, size);
                let part = kernels.layer_forward(map, &affine.into(), weight, &out);
                (out, part)
            });
        }
        let normal = within(format_args!("{norm}, relu"), || kernels.normalised(map, affine));
        within(name, || convolved(&normal))
    }

    /// Whether a forward pass keeps the output of convolution `index` for the backward pass.
    fn keeps(&self, run: &Run<'_>, index: usize) -> bool {
        let is_kept = self.keep == DenseLayers::Keep || self.sizes.all()[index].window.kernel > 1;
        run.keeps && is_kept
    }

    /// The output of convolution `index`, whether it was kept or not: a 1×1 convolution may be computed again, with the
    /// same bits.
    fn map(
        &self,
        back: &Back<'_>,
        input: &DeviceMap,
        layers: &[Layer],
        index: usize,
    ) -> ChannelsLast {
        if let Some(map) = &layers[index].map {
            return map.clone();
        }
        let &Back { kernels, values, over, .. } = back;
        let (conv, weight) = (self.sizes.all()[index], &values.packed[2 * index]);
        debug_assert_eq!(conv.window.kernel, 1, "other convolutions' outputs are kept");
        // The first on the path and the projection read the block's input.
        let before = index.checked_sub(1).filter(|_| index < self.sizes.convs.len());
        let Some(before) = before else {
            let out = self.output(kernels, index, input.size);
            let convolution = conv.on(input.size);
            match over {
                // With what nobody reads of its channels: without, it may be another kernel, with other bits.
                Over::Batch => {
                    kernels.conv_forward(&convolution, &input.data, weight, &out, over);
                }
                Over::Images(_) => {
                    kernels.convolve(&convolution, &input.data, weight, &out, None);
                }
            }
            return out;
        };
        let map = self.map(back, input, layers, before);
        let out = self.output(kernels, index, self.sizes.inputs(input.size)[index]);
        kernels.normed_convolve(&map, &(&layers[before].affine).into(), weight, &out, None);
        out
    }
}

impl Program for Residual {
    type Saved = Saved;

    fn forms(&self) -> Vec<(usize, Form)> {
        Form::both_passes(self.sizes.all().len())
    }

    fn forward(&self, run: &Run<'_>, input: Value) -> (Value, Option<Saved>) {
        let (kernels, input) = (run.kernels, input.into_map());
        let mut layers: Vec<Layer> = Vec::new();
        let mut map = input.data.clone();
        for (index, size) in self.sizes.inputs(input.size).into_iter().enumerate() {
            let before = layers.last().map(|layer| &layer.affine);
            let (out, part) = self.convolve(run, index, (&map, size), before);
            map = out;
            let (stats, affine) = within(self.names(index)[1], || run.norm_of(index, &map, &part));
            let kept = self.keeps(run, index).then(|| map.clone());
            layers.push(Layer { map: kept, stats, affine });
        }
        let last = layers.len() - 1;
        let size = self.sizes.output(input.size);
        if self.sizes.projection.is_some() {
            let index = layers.len();
            let (map, part) = self.convolve(run, index, (&input.data, input.size), None);
            let (stats, affine) = within(self.names(index)[1], || run.norm_of(index, &map, &part));
            layers.push(Layer { map: Some(map), stats, affine });
        }
        let data = {
            let shortcut = match layers.get(last + 1) {
                Some(Layer { map: Some(map), affine, .. }) => {
                    Shortcut { map, size, stride: 1, affine: Some(affine) }
                }
                _ => {
                    let (map, stride) = (&input.data, self.sizes.stride);
                    Shortcut { map, size: input.size, stride, affine: None }
                }
            };
            let norm = self.names(last)[1];
            let projected = if self.sizes.projection.is_some() { ", downsample.1" } else { "" };
            within(format_args!("{norm}{projected}, add, relu"), || {
                kernels.residual_forward(&map, &layers[last].affine, &shortcut)
            })
        };
        if let Some(projection) = layers.get_mut(last + 1)
            && !self.keeps(run, last + 1)
        {
            projection.map = None;
        }
        let kept = run.keeps.then(|| Saved { input, output: data.clone(), layers });
        (Value::Map(DeviceMap::new(kernels, data, size)), kept)
    }

    fn backward(&self, back: &Back<'_>, kept: Saved, gradient: Value) -> Option<DeviceMap> {
        Some(self.backward_block(back, kept, gradient.into_map().data))
    }

    fn buffers<'a>(&self, kept: &'a mut Saved) -> Vec<&'a mut Buffer> {
        let Saved { input, output, layers } = kept;
        let maps = layers.iter_mut().filter_map(|layer| layer.map.as_mut());
        let maps = [&mut input.data, output].into_iter().chain(maps);
        maps.map(ChannelsLast::buffer_mut).collect()
    }
}
