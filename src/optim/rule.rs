//! What one optimizer is: its arithmetic on one parameter, and the tensors it keeps of it.

use std::collections::BTreeMap;

use burn::tensor::Tensor;

use super::fused_step::FusedStep;
use crate::memory::offload::OffloadTensor;
#[cfg(feature = "cuda")]
use crate::ops::gpu::{Buffer, Gpu};

/// One optimizer's arithmetic on one parameter.
pub(super) trait Rule: Send + Sync {
    /// The tensors kept of a parameter after its first step, each as long as the parameter.
    fn leaves(&self) -> Vec<&'static str>;

    /// The parameter's new value. What becomes of a number depends on the numbers at its place alone. `kept` is empty on the
    /// first step and holds [`Rule::leaves`] after every step.
    fn step(
        &self,
        step: Step,
        value: Tensor<1>,
        gradient: Tensor<1>,
        kept: &mut ParameterState,
    ) -> Tensor<1>;

    /// The same arithmetic as a kernel that steps many parameters at once, where there is one.
    fn fused_step(&self) -> Option<FusedStep> {
        None
    }
}

/// One step of one parameter.
#[derive(Clone, Copy)]
pub(super) struct Step {
    pub(super) lr: f64,
    /// Whether weight decay acts on this parameter.
    pub(super) decay: bool,
    /// Counted from 1.
    pub(super) number: u64,
}

impl Step {
    /// The gradient with that of L2 regularisation added.
    pub(super) fn regularised(
        self,
        gradient: Tensor<1>,
        value: &Tensor<1>,
        weight_decay: f64,
    ) -> Tensor<1> {
        if !self.decay || weight_decay == 0.0 {
            return gradient;
        }
        gradient + value.clone().mul_scalar(weight_decay)
    }

    /// The value after decoupled weight decay.
    pub(super) fn decayed(self, value: Tensor<1>, weight_decay: f64) -> Tensor<1> {
        if !self.decay || weight_decay == 0.0 {
            return value;
        }
        value.mul_scalar(1.0 - self.lr * weight_decay)
    }
}

/// The tensors kept of one parameter. Rules take them out and put new ones in, so that Burn may
/// write in place.
#[derive(Default)]
pub(super) struct ParameterState {
    tensors: BTreeMap<&'static str, Tensor<1>>,
    /// What kernels write over; nothing else points to it.
    #[cfg(feature = "cuda")]
    buffers: BTreeMap<&'static str, (Gpu, Buffer)>,
}

impl ParameterState {
    pub(super) fn take(&mut self, leaf: &'static str) -> Option<Tensor<1>> {
        #[cfg(feature = "cuda")]
        if let Some((gpu, buffer)) = self.buffers.remove(leaf) {
            return Some(gpu.tensor(&buffer, [buffer.len()]));
        }
        self.tensors.remove(leaf)
    }

    /// Zeros in the shape of `like` on the first step.
    pub(super) fn take_or_zeros(&mut self, leaf: &'static str, like: &Tensor<1>) -> Tensor<1> {
        self.take(leaf).unwrap_or_else(|| like.zeros_like())
    }

    /// Memory to write over that holds what is kept, or whatever it held before where nothing is.
    #[cfg(feature = "cuda")]
    pub(super) fn take_buffer(&mut self, leaf: &'static str, gpu: &Gpu, length: usize) -> Buffer {
        if let Some((_, buffer)) = self.buffers.remove(leaf) {
            return buffer;
        }
        match self.tensors.remove(leaf) {
            // What was loaded nobody else holds, so that a step takes no memory for it.
            Some(tensor) => {
                let buffer = Buffer::of_tensor(tensor);
                if buffer.is_held_alone() { buffer } else { gpu.copied(&buffer, buffer.len()) }
            }
            None => gpu.floats(length),
        }
    }

    /// Everything kept, to be moved off the device; in the order of [`ParameterState::iter`].
    pub(super) fn offload_tensors(&mut self) -> Vec<OffloadTensor<'_>> {
        let tensors = self.tensors.values_mut().map(OffloadTensor::Flat);
        #[cfg(feature = "cuda")]
        let tensors = tensors.chain(
            self.buffers
                .values_mut()
                .map(|(gpu, buffer)| OffloadTensor::Buffer(gpu.clone(), buffer)),
        );
        tensors.collect()
    }

    /// The leaves in this order.
    pub(super) fn leaves(&self) -> impl Iterator<Item = &'static str> {
        let leaves = self.tensors.keys().copied();
        #[cfg(feature = "cuda")]
        let leaves = leaves.chain(self.buffers.keys().copied());
        leaves
    }

    /// Every tensor and its leaf.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static str, Tensor<1>)> {
        let tensors = self.tensors.iter().map(|(leaf, tensor)| (*leaf, tensor.clone()));
        #[cfg(feature = "cuda")]
        let tensors = tensors.chain(
            self.buffers
                .iter()
                .map(|(leaf, (gpu, buffer))| (*leaf, gpu.tensor(buffer, [buffer.len()]))),
        );
        tensors
    }

    pub(super) fn put(&mut self, leaf: &'static str, tensor: Tensor<1>) {
        self.tensors.insert(leaf, tensor);
    }

    #[cfg(feature = "cuda")]
    pub(super) fn put_buffer(&mut self, leaf: &'static str, gpu: &Gpu, buffer: Buffer) {
        self.buffers.insert(leaf, (gpu.clone(), buffer));
    }
}
