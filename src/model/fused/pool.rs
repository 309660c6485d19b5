//! The last norm and the mean over each map.

use super::{Back, NormedInput, Program, Run, Value, input_gradient};
use crate::memory::measure::{ended, within};
use crate::ops::gpu::{Buffer, DeviceMap};

/// Norm, ReLU, the mean over each feature map.
pub(super) struct NormPool;

impl Program for NormPool {
    type Saved = NormedInput;
    const READS_STATISTICS: bool = true;

    fn forward(&self, run: &Run<'_>, input: Value) -> (Value, Option<NormedInput>) {
        let normed = within("norm5", || run.norm_of_input(input));
        let NormedInput { map, affine, .. } = &normed;
        let features = within("norm5, relu, mean", || {
            run.kernels.global_pool_forward(&map.data, map.size[0], affine)
        });
        (Value::Features(features), run.keeps.then_some(normed))
    }

    fn backward(&self, back: &Back<'_>, kept: NormedInput, gradient: Value) -> Option<DeviceMap> {
        let (kernels, gradient) = (back.kernels, gradient.into_features());
        let NormedInput { map, stats, affine } = kept;
        let data = &map.data;
        let summed = kernels.empty_map(data.pixels(), data.channels());
        let normalised = back.normalised(0, &stats, &affine);
        let part = kernels.global_pool_backward(&gradient, data, map.size[0], normalised, &summed);
        let sums = kernels.first_sums(&part, normalised, &back.room.norms[0]);
        ended("norm5, relu, mean");
        Some(input_gradient(back, map, &stats, summed, sums))
    }

    fn buffers<'a>(&self, kept: &'a mut NormedInput) -> Vec<&'a mut Buffer> {
        vec![kept.map.data.buffer_mut()]
    }
}
