//! AdamW: Adam with decoupled weight decay (Loshchilov and Hutter 2019, arXiv:1711.05101).

use burn::tensor::Tensor;

use super::AdamWConfig;
use super::adam::Moments;
use super::fused_step::FusedStep;
use super::rule::{ParameterState, Rule, Step};

/// `torch.optim.AdamW`: the value shrinks by `lr · weight_decay` before Adam's update.
pub(super) struct AdamW(pub(super) AdamWConfig);

impl Rule for AdamW {
    fn leaves(&self) -> Vec<&'static str> {
        Moments::leaves(self.0.amsgrad)
    }

    fn step(
        &self,
        step: Step,
        value: Tensor<1>,
        gradient: Tensor<1>,
        kept: &mut ParameterState,
    ) -> Tensor<1> {
        let AdamWConfig { betas, eps, weight_decay, amsgrad, .. } = self.0;
        let value = step.decayed(value, weight_decay);
        Moments { betas, eps, amsgrad }.step(step, value, gradient, kept)
    }

    fn fused_step(&self) -> Option<FusedStep> {
        let AdamWConfig { betas, eps, weight_decay, amsgrad, .. } = self.0;
        (!amsgrad).then_some(FusedStep::Adam { betas, eps, weight_decay, decoupled: true })
    }
}

#[cfg(test)]
mod tests {
    use crate::optim::oracle;

    #[test]
    fn adamw_steps_as_pytorchs_does() {
        oracle::follow("adamw");
    }
}
