//! Stages: what a chain is made of, before and after it exists.

use std::any::Any;
use std::collections::BTreeMap;

use burn::tensor::{Device, Tensor};

use super::offload::OffloadTensor;
use super::{
    Activation, ActivationShape, Bucket, BucketMember, DryAllocator, DryStage, Footprint,
    Gradients, Pass, Target,
};
use crate::ops::gpu::Kernel;

/// Whether a stage keeps what its backward pass needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Only the output is returned.
    Nothing,
    /// What backward needs is returned beside the output.
    All,
}

/// What a stage keeps for its backward pass; only the stage that made it can read it.
pub struct Saved(pub(crate) Box<dyn Any>);

impl Saved {
    /// What `stage` has put in.
    ///
    /// # Panics
    ///
    /// When another stage has made it.
    pub fn open<T: 'static>(self, stage: &str) -> Box<T> {
        let opened = self.0.downcast::<T>();
        opened.unwrap_or_else(|_| panic!("{stage} was given what another stage kept"))
    }

    /// What `stage` has put in, in place.
    ///
    /// # Panics
    ///
    /// When another stage has made it.
    pub fn look<T: 'static>(&mut self, stage: &str) -> &mut T {
        let looked = self.0.downcast_mut::<T>();
        looked.unwrap_or_else(|| panic!("{stage} was given what another stage kept"))
    }
}

/// The statistics of a step's batches, by the key of the bucket of running statistics they move.
pub type Statistics = BTreeMap<String, Tensor<1>>;

/// A parameter or running statistic of a stage.
#[derive(Debug, Clone)]
pub struct Parameter {
    /// Its name, unique in the model, as torchvision names it.
    pub name: String,
    /// Its shape, as PyTorch has it.
    pub shape: Vec<usize>,
    /// Whether the optimizer changes it; running statistics are not trained.
    pub trained: bool,
    /// Its values, flattened, without autodiff.
    pub value: Tensor<1>,
}

/// A part of a model that runs forward and backward on its own.
pub trait Stage: Send {
    /// Its name, unique in the chain.
    fn name(&self) -> &str;

    /// Runs the stage on `input` (values without autodiff). Statistics of the batch go into
    /// `statistics` on the first training pass.
    fn forward(
        &self,
        input: Activation,
        keep: Keep,
        pass: &Pass,
        statistics: &mut Statistics,
    ) -> (Activation, Option<Saved>);

    /// Channels for which a map that comes from another device is best given room: the stage then writes beside its input. 0 where it does
    /// not.
    fn room(&self) -> usize {
        0
    }

    /// `input` as it is put aside to run the stage on once more: without room for what the stage
    /// writes beside it.
    fn checkpoint(&self, input: &Activation) -> Activation {
        input.clone()
    }

    /// The gradient with respect to the stage's input, given that with respect to its output; `None`
    /// where there is none, as of images. Parameter gradients are added to `gradients`.
    fn backward(
        &self,
        saved: Saved,
        gradient: Activation,
        gradients: &mut Gradients,
    ) -> Option<Activation>;

    /// Whether [`Stage::offload_tensors`] gives most of what the stage keeps.
    fn moves_saved(&self) -> bool {
        false
    }

    /// What of `saved` can be moved off the device until it is needed, in a fixed order.
    fn offload_tensors<'a>(&self, saved: &'a mut Saved) -> Vec<OffloadTensor<'a>> {
        let _ = saved;
        Vec::new()
    }

    /// Every parameter and running statistic, in a fixed order.
    fn parameters(&self) -> Vec<Parameter>;

    /// Replaces each parameter or statistic by what `change` makes of its name and flattened value.
    fn map_parameters(&mut self, change: &mut dyn FnMut(&str, Tensor<1>) -> Tensor<1>);

    /// Every parameter and running statistic as they lie in memory: what goes by parameter in
    /// [`Stage::backward`], [`Stage::forward`] and [`Stage::map_buckets`] goes by these buckets' keys.
    /// Each on its own, unless the stage lays them out together.
    fn buckets(&self) -> Vec<Bucket> {
        let bucket = |parameter: Parameter| {
            let member = BucketMember { name: parameter.name, shape: parameter.shape };
            let (trained, value) = (parameter.trained, parameter.value);
            Bucket { members: [member].into(), trained, value }
        };
        self.parameters().into_iter().map(bucket).collect()
    }

    /// Replaces each bucket by what `change` makes of its key and values.
    fn map_buckets(&mut self, change: &mut dyn FnMut(&str, Tensor<1>) -> Tensor<1>) {
        self.map_parameters(change);
    }
}

/// What a stage is before it exists: a model's configuration lists these, so that planning needs no
/// device.
pub trait StageSpec {
    /// Its name, unique in the chain.
    fn name(&self) -> &str;

    /// The shape of the output for an input of this shape.
    fn output(&self, input: &ActivationShape) -> ActivationShape;

    /// Trained numbers (weights, biases, scales, shifts).
    fn parameter_count(&self) -> usize;

    /// Layers in a row that have weights: what decides how long few images take.
    fn layers(&self) -> usize {
        1
    }

    /// What it costs for an input of this shape.
    fn footprint(&self, input: &ActivationShape, on: &Target) -> Footprint;

    /// The stage in whole steps on sizes alone, with memory from `memory`; `None` where no more than the
    /// footprint is known.
    fn dry(
        &self,
        input: &ActivationShape,
        on: &Target,
        memory: &DryAllocator,
    ) -> Option<Box<dyn DryStage>> {
        let _ = (input, on, memory);
        None
    }

    /// The hand-written kernels that it launches on a GPU for an input of this shape.
    fn kernels(&self, input: &ActivationShape, on: &Target) -> Vec<Kernel>;

    /// The stage on `device`, its weights drawn from `seed`.
    fn init(&self, device: &Device, seed: u64) -> Box<dyn Stage>;
}
