//! Optimizer steps in a few kernels over all parameters.

#[cfg(feature = "cuda")]
use burn::tensor::DType;

use super::SgdConfig;
#[cfg(feature = "cuda")]
use super::Update;
#[cfg(feature = "cuda")]
use super::rule::ParameterState;
use crate::ops::gpu::{ADAM_STEP, Kernel, SGD_STEP};
#[cfg(feature = "cuda")]
use crate::ops::gpu::{AdamStep, Buffer, Factor, Gpu, SgdStep, Stepped};

/// A rule that a kernel knows.
#[derive(Debug, Clone)]
#[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "only a GPU takes its steps"))]
pub(super) enum FusedStep {
    /// Adam, or AdamW where the weight decay is decoupled.
    Adam { betas: [f64; 2], eps: f64, weight_decay: f64, decoupled: bool },
    /// SGD.
    Sgd(SgdConfig),
}

/// The GPU that holds an update's numbers as kernels take them: 32 bits.
#[cfg(feature = "cuda")]
pub(super) fn gpu_of(update: &Update) -> Option<Gpu> {
    let single = |tensor: &burn::tensor::Tensor<1>| tensor.dtype() == DType::F32;
    if !single(&update.value) || !single(&update.gradient) {
        return None;
    }
    Gpu::of(&update.value.device())
}

impl FusedStep {
    /// What its steps launch.
    pub(super) fn kernel(&self) -> Kernel {
        match self {
            Self::Adam { .. } => ADAM_STEP.clone(),
            Self::Sgd(_) => SGD_STEP.clone(),
        }
    }
}

#[cfg(feature = "cuda")]
impl FusedStep {
    /// The new values of parameters that take step `number`, counted from 1, at learning rate `lr`;
    /// `leaves` are what is kept of each.
    pub(super) fn step(
        &self,
        gpu: &Gpu,
        (lr, factor, number): (f64, Factor<'_>, u64),
        leaves: &[&'static str],
        parameters: Vec<(Update, &mut ParameterState)>,
    ) -> Vec<(String, Buffer)> {
        let (names, each): (Vec<String>, Vec<(Stepped, &mut ParameterState)>) = parameters
            .into_iter()
            .map(|(Update { name, value, gradient, decay, .. }, kept)| {
                let (value, gradient) = (Buffer::of_tensor(value), Buffer::of_tensor(gradient));
                let length = value.len();
                let taken = leaves.iter().map(|leaf| kept.take_buffer(leaf, gpu, length));
                let taken = taken.collect();
                (name, (Stepped { value, gradient, decays: decay, kept: taken }, kept))
            })
            .unzip();
        let (stepped, kept): (Vec<Stepped>, Vec<&mut ParameterState>) = each.into_iter().unzip();
        let values = self.launch(gpu, (lr, factor, number), &stepped);
        for (stepped, kept) in stepped.into_iter().zip(kept) {
            for (leaf, buffer) in leaves.iter().zip(stepped.kept) {
                kept.put_buffer(leaf, gpu, buffer);
            }
        }
        names.into_iter().zip(values).collect()
    }

    fn launch(
        &self,
        gpu: &Gpu,
        (lr, factor, number): (f64, Factor<'_>, u64),
        parameters: &[Stepped],
    ) -> Vec<Buffer> {
        let first = number == 1;
        match self {
            Self::Adam { betas, eps, weight_decay, decoupled } => {
                let correction = |beta: f64| 1.0 - beta.powf(number as f64);
                let step = AdamStep {
                    first,
                    factor,
                    size: lr / correction(betas[0]),
                    root: correction(betas[1]).sqrt(),
                    betas: *betas,
                    eps: *eps,
                    keep: if *decoupled { 1.0 - lr * weight_decay } else { 1.0 },
                    l2: if *decoupled { 0.0 } else { *weight_decay },
                };
                gpu.adam_step(&step, parameters)
            }
            Self::Sgd(SgdConfig { momentum, dampening, nesterov, weight_decay, .. }) => {
                let step = SgdStep {
                    first,
                    factor,
                    lr,
                    momentum: *momentum,
                    dampening: *dampening,
                    nesterov: *nesterov,
                    l2: *weight_decay,
                };
                gpu.sgd_step(&step, parameters)
            }
        }
    }
}
