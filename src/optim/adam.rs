//! Adam (Kingma and Ba 2015, arXiv:1412.6980).

use burn::tensor::Tensor;

use super::AdamConfig;
use super::fused_step::FusedStep;
use super::lerp::lerp;
use super::rule::{ParameterState, Rule, Step};

pub(super) const MEAN: &str = "exp_avg";
pub(super) const SQUARE: &str = "exp_avg_sq";
const LARGEST: &str = "max_exp_avg_sq";

/// `torch.optim.Adam`.
pub(super) struct Adam(pub(super) AdamConfig);

impl Rule for Adam {
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
        let AdamConfig { betas, eps, weight_decay, amsgrad, .. } = self.0;
        let gradient = step.regularised(gradient, &value, weight_decay);
        Moments { betas, eps, amsgrad }.step(step, value, gradient, kept)
    }

    fn fused_step(&self) -> Option<FusedStep> {
        let AdamConfig { betas, eps, weight_decay, amsgrad, .. } = self.0;
        (!amsgrad).then_some(FusedStep::Adam { betas, eps, weight_decay, decoupled: false })
    }
}

/// The update that Adam and AdamW share.
pub(super) struct Moments {
    pub(super) betas: [f64; 2],
    pub(super) eps: f64,
    pub(super) amsgrad: bool,
}

impl Moments {
    pub(super) fn leaves(amsgrad: bool) -> Vec<&'static str> {
        if amsgrad { vec![MEAN, SQUARE, LARGEST] } else { vec![MEAN, SQUARE] }
    }

    /// `eps` is added after the bias correction of the square. Corrections are worked out in `f64`.
    pub(super) fn step(
        &self,
        step: Step,
        value: Tensor<1>,
        gradient: Tensor<1>,
        kept: &mut ParameterState,
    ) -> Tensor<1> {
        let [beta1, beta2] = self.betas;
        let mean = kept.take_or_zeros(MEAN, &gradient);
        let square = kept.take_or_zeros(SQUARE, &gradient);
        let mean = lerp(mean, gradient.clone(), 1.0 - beta1);
        let square = square.mul_scalar(beta2) + gradient.square().mul_scalar(1.0 - beta2);
        let scale = if self.amsgrad {
            // The largest running square itself, not the largest after correction.
            let largest = kept.take_or_zeros(LARGEST, &square).max_pair(square.clone());
            kept.put(LARGEST, largest.clone());
            largest
        } else {
            square.clone()
        };
        kept.put(MEAN, mean.clone());
        kept.put(SQUARE, square);

        let steps = step.number as f64;
        let correction1 = 1.0 - beta1.powf(steps);
        let correction2 = 1.0 - beta2.powf(steps);
        let denominator = scale.sqrt().div_scalar(correction2.sqrt()).add_scalar(self.eps);
        value - mean.mul_scalar(step.lr / correction1) / denominator
    }
}

#[cfg(test)]
mod tests {
    use crate::optim::oracle;

    #[test]
    fn adam_steps_as_pytorchs_does() {
        oracle::follow("adam");
    }
}
