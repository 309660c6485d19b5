//! The mean over each map.

use super::{Back, Program, Run, Value};
use crate::memory::measure::{ended, within};
use crate::ops::gpu::DeviceMap;

/// The mean over each feature map, where the maps have been through ReLU.
pub(super) struct Mean;

impl Program for Mean {
    /// Batch, height and width of the maps.
    type Saved = [usize; 3];
    const KEEPS: bool = false;

    fn forward(&self, run: &Run<'_>, input: Value) -> (Value, Option<Self::Saved>) {
        let DeviceMap { data, size, .. } = input.into_map();
        let features = within("mean", || run.kernels.mean_forward(&data, size[0]));
        (Value::Features(features), run.keeps.then_some(size))
    }

    fn backward(&self, back: &Back<'_>, size: Self::Saved, gradient: Value) -> Option<DeviceMap> {
        let data = back.kernels.mean_backward(&gradient.into_features(), size);
        ended("mean");
        Some(DeviceMap::new(back.kernels, data, size))
    }
}
