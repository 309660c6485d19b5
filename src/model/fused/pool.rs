//! The last norm and the mean over each map.

use super::{Back, Program, Run, Value, input_gradient};
use crate::memory::measure::{ended, within};
use crate::model::Norm;
use crate::ops::gpu::{Affine, Buffer, ChannelStats, DeviceMap, Kernels, Normalised};

/// Norm, ReLU, the mean over each feature map.
pub(super) struct NormPool {
    /// Its norm.
    pub norm: Norm,
}

pub(super) struct Saved {
    map: DeviceMap,
    stats: ChannelStats,
    affine: Affine,
}

impl Program for NormPool {
    type Saved = Saved;

    fn norm(&self) -> Norm {
        self.norm
    }

    fn input(&self, kernels: &Kernels, shape: [usize; 4]) -> Value {
        Value::map(kernels, shape, shape[1], Some(self.norm))
    }

    fn forward(&self, run: &Run<'_>, input: Value) -> (Value, Option<Saved>) {
        let (kernels, map) = (run.kernels, input.into_map());
        let (stats, affine) = within("norm5", || {
            run.norm(0, map.data.pixels(), || run.stats(&map, map.data.channels()))
        });
        let features = within("norm5, relu, mean", || {
            kernels.global_pool_forward(&map.data, map.size[0], &affine)
        });
        (Value::Features(features), run.keeps.then_some(Saved { map, stats, affine }))
    }

    fn backward(&self, back: &Back<'_>, kept: Saved, gradient: Value) -> Option<DeviceMap> {
        let (kernels, gradient) = (back.kernels, gradient.into_features());
        let Saved { map, stats, affine } = kept;
        let data = &map.data;
        let summed = kernels.empty_map(data.pixels(), data.channels());
        let norm = &back.values.norms[0];
        let normalised = Normalised { stats: &stats, affine: &affine, norm, synced: back.synced };
        let part = kernels.global_pool_backward(&gradient, data, map.size[0], normalised, &summed);
        let sums = kernels.first_sums(&part, normalised, &back.room.norms[0]);
        ended("norm5, relu, mean");
        Some(input_gradient(back, map, &stats, summed, sums))
    }

    fn buffers<'a>(&self, kept: &'a mut Saved) -> Vec<&'a mut Buffer> {
        vec![kept.map.data.buffer_mut()]
    }
}
