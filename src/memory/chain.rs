//! The chain of stages that a model is.

#[cfg(feature = "cuda")]
use std::collections::BTreeMap;

use burn::tensor::{DType, Device, Tensor};

use super::stage::Statistics;
use super::{Bucket, Parameter, Stage, StageSpec};
use crate::ops::gpu::Buffer;
#[cfg(feature = "cuda")]
use crate::ops::gpu::{Gpu, Moving};

/// The share of a batch's statistics in the running ones, as `torch.nn.BatchNorm2d` has it.
const MOMENTUM: f64 = 0.1;

/// A model: stages from the images to the heads' outputs.
pub struct Chain {
    stages: Vec<Box<dyn Stage>>,
}

impl Chain {
    /// The stages of `specs` on `device`, their weights drawn from `seed`.
    pub fn init(specs: &[Box<dyn StageSpec>], device: &Device, seed: u64) -> Self {
        Self { stages: specs.iter().map(|spec| spec.init(device, seed)).collect() }
    }

    #[cfg(test)]
    pub(super) fn of(stages: Vec<Box<dyn Stage>>) -> Self {
        Self { stages }
    }

    /// Of which stages what they keep can be moved off the device.
    pub fn moves_saved(&self) -> Vec<bool> {
        self.stages.iter().map(|stage| stage.moves_saved()).collect()
    }

    /// The stages, first to last.
    pub fn stages(&self) -> &[Box<dyn Stage>] {
        &self.stages
    }

    /// Every parameter and running statistic, in the order of the stages.
    pub fn parameters(&self) -> Vec<Parameter> {
        self.stages.iter().flat_map(|stage| stage.parameters()).collect()
    }

    /// Replaces each parameter or statistic by what `change` makes of its name and flattened value.
    pub fn map_parameters(&mut self, mut change: impl FnMut(&str, Tensor<1>) -> Tensor<1>) {
        for stage in &mut self.stages {
            stage.map_parameters(&mut change);
        }
    }

    /// Every parameter and running statistic as they lie in memory, in the order of the stages.
    pub fn buckets(&self) -> Vec<Bucket> {
        self.stages.iter().flat_map(|stage| stage.buckets()).collect()
    }

    /// Replaces each bucket by what `change` makes of its key and values.
    pub fn map_buckets(&mut self, mut change: impl FnMut(&str, Tensor<1>) -> Tensor<1>) {
        for stage in &mut self.stages {
            stage.map_buckets(&mut change);
        }
    }

    /// The stages' names, first to last.
    pub fn names(&self) -> Vec<&str> {
        self.stages.iter().map(|stage| stage.name()).collect()
    }

    /// Moves the running statistics towards those of a step's batch, computed as these were. Where a GPU has `decided` about
    /// the step ([`Factor::OnGpu`](crate::ops::gpu::Factor)) they stay as they are if it is left out.
    pub fn move_statistics(&mut self, statistics: &Statistics, decided: Option<&Buffer>) {
        #[cfg(feature = "cuda")]
        if let Some(gpu) = statistics.values().next().and_then(|any| Gpu::of(&any.device())) {
            return self.move_on_gpu(&gpu, statistics, decided);
        }
        let _ = decided;
        self.map_buckets(|key, value| match statistics.get(key) {
            Some(batch) => {
                let dtype = value.dtype();
                let value = value.cast(batch.dtype()).mul_scalar(1.0 - MOMENTUM);
                (value + batch.clone().mul_scalar(MOMENTUM)).cast(dtype)
            }
            None => value,
        });
    }

    /// [`Chain::move_statistics`] in one kernel over all of them. The moved ones have other memory: those that stayed
    /// where the first step has put them could lie in the middle of a page that steps need as a whole.
    #[cfg(feature = "cuda")]
    fn move_on_gpu(&mut self, gpu: &Gpu, statistics: &Statistics, decided: Option<&Buffer>) {
        let pair = |bucket: Bucket| {
            let batch = statistics.get(bucket.key())?.clone();
            let pair = [&bucket.value, &batch].map(|values| values.clone().cast(DType::F32));
            Some((bucket.key().to_owned(), pair.map(Buffer::of_tensor)))
        };
        let pairs = self.buckets().into_iter().filter_map(pair);
        let (keys, averages): (Vec<String>, Vec<[Buffer; 2]>) = pairs.unzip();
        let moved = gpu.moving_average(Moving::Statistics, MOMENTUM, averages, decided);
        let mut moved: BTreeMap<String, Buffer> = keys.into_iter().zip(moved).collect();
        self.map_buckets(|key, value| match moved.remove(key) {
            Some(moved) => gpu.tensor(&moved, [moved.len()]).cast(value.dtype()),
            None => value,
        });
    }

    /// The chain with every parameter and running statistic rounded to `dtype`.
    pub fn cast(mut self, dtype: DType) -> Self {
        if dtype != DType::F32 {
            self.map_parameters(|_, value| value.cast(dtype));
        }
        self
    }
}
