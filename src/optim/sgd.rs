//! Stochastic gradient descent.

use burn::tensor::Tensor;

use super::SgdConfig;
use super::fused_step::FusedStep;
use super::rule::{ParameterState, Rule, Step};

const BUFFER: &str = "momentum_buffer";

/// `torch.optim.SGD`: the momentum starts as the first gradient, undamped.
pub(super) struct Sgd(pub(super) SgdConfig);

impl Rule for Sgd {
    fn leaves(&self) -> Vec<&'static str> {
        if self.0.momentum == 0.0 { vec![] } else { vec![BUFFER] }
    }

    fn step(
        &self,
        step: Step,
        value: Tensor<1>,
        gradient: Tensor<1>,
        kept: &mut ParameterState,
    ) -> Tensor<1> {
        let SgdConfig { momentum, dampening, nesterov, weight_decay, .. } = self.0;
        let gradient = step.regularised(gradient, &value, weight_decay);
        if momentum == 0.0 {
            return value - gradient.mul_scalar(step.lr);
        }
        let buffer = match kept.take(BUFFER) {
            Some(buffer) => {
                buffer.mul_scalar(momentum) + gradient.clone().mul_scalar(1.0 - dampening)
            }
            None => gradient.clone(),
        };
        kept.put(BUFFER, buffer.clone());
        let direction = if nesterov { gradient + buffer.mul_scalar(momentum) } else { buffer };
        value - direction.mul_scalar(step.lr)
    }

    fn fused_step(&self) -> Option<FusedStep> {
        Some(FusedStep::Sgd(self.0.clone()))
    }
}

#[cfg(test)]
mod tests {
    use crate::optim::oracle;

    #[test]
    fn sgd_steps_as_pytorchs_does() {
        oracle::follow("sgd");
    }
}
