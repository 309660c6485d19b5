//! A transition.

use super::{Back, NormedInput, Program, Run, Value, input_gradient};
use crate::memory::measure::{ended, within};
use crate::ops::Window;
use crate::ops::gpu::{Buffer, ChannelsLast, Convolution, DeviceMap, Form};

/// Norm, ReLU, 1×1 convolution to fewer channels, 2×2 average pooling.
///
/// It pools before the convolution, which is a quarter of the products. What is pooled would be rounded to TF32 once, where
/// the other order rounds four numbers and pools: so gradients would be 2% farther from exact ones. Where the other stages
/// round to TF32 this one does not, and still multiplies less than in the other order.
pub(super) struct Transition {
    /// Channels of the output.
    pub channels: usize,
    /// Channels that the output's rows have room for.
    pub room: usize,
}

/// A 1×1 convolution of maps whose pixels lie in one line.
fn pointwise(map: &ChannelsLast) -> Convolution {
    Convolution { size: [1, 1, map.pixels()], window: Window::PIXEL }
}

impl Program for Transition {
    type Saved = NormedInput;
    const READS_STATISTICS: bool = true;

    fn forms(&self) -> Vec<(usize, Form)> {
        Form::both_passes(1)
    }

    fn forward(&self, run: &Run<'_>, input: Value) -> (Value, Option<NormedInput>) {
        let kernels = &run.kernels.with_full_products();
        let normed = within("norm", || run.norm_of_input(input));
        let NormedInput { map, affine, .. } = &normed;
        let [batch, height, width] = map.size;
        let size = [batch, height / 2, width / 2];
        let data = kernels.empty_map(size.iter().product(), self.room).slice(0..self.channels);
        let weight = &run.values.packed[0];
        let pooled =
            within("norm, relu, pool", || kernels.transition_pool(&map.data, map.size, affine));
        let part = within("conv", || {
            kernels.conv_forward(&pointwise(&pooled), &pooled, weight, &data, run.over)
        });
        let next = run.next(&part, self.channels, self.room);
        let output = DeviceMap { stats: next, ..DeviceMap::new(kernels, data, size) };
        (Value::Map(output), run.keeps.then_some(normed))
    }

    fn backward(&self, back: &Back<'_>, kept: NormedInput, gradient: Value) -> Option<DeviceMap> {
        let kernels = &back.kernels.with_full_products();
        let gradient = gradient.into_map().data;
        let NormedInput { map, stats, affine } = kept;
        let data = &map.data;
        let summed = kernels.empty_map(data.pixels(), data.channels());
        let normalised = back.normalised(0, &stats, &affine);
        let (packed, size) = (&back.values.packed[1], map.size);
        let (pooled, part) =
            kernels.transition_backward_input(&gradient, packed, data, size, normalised, &summed);
        let sums = kernels.first_sums(&part, normalised, &back.room.norms[0]);
        ended("norm, relu, pool");
        let weight = &back.room.weights[0];
        kernels.conv_backward_weight(&pointwise(&pooled), &pooled, &gradient, weight);
        ended("conv");
        Some(input_gradient(back, map, &stats, summed, sums))
    }

    fn buffers<'a>(&self, kept: &'a mut NormedInput) -> Vec<&'a mut Buffer> {
        vec![kept.map.data.buffer_mut()]
    }
}
