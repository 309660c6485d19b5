//! RMSprop (Hinton's lecture 6e; centred after Graves 2013, arXiv:1308.0850).

use burn::tensor::Tensor;

use super::RmspropConfig;
use super::lerp::lerp;
use super::rule::{ParameterState, Rule, Step};

const SQUARE: &str = "square_avg";
const MEAN: &str = "grad_avg";
const BUFFER: &str = "momentum_buffer";

/// `torch.optim.RMSprop`: `eps` is added after the root, and the learning rate acts on the momentum
/// rather than in it.
pub(super) struct Rmsprop(pub(super) RmspropConfig);

impl Rule for Rmsprop {
    fn leaves(&self) -> Vec<&'static str> {
        let mut leaves = vec![SQUARE];
        if self.0.centered {
            leaves.push(MEAN);
        }
        if self.0.momentum > 0.0 {
            leaves.push(BUFFER);
        }
        leaves
    }

    fn step(
        &self,
        step: Step,
        value: Tensor<1>,
        gradient: Tensor<1>,
        kept: &mut ParameterState,
    ) -> Tensor<1> {
        let RmspropConfig { alpha, eps, momentum, centered, weight_decay, .. } = self.0;
        let gradient = step.regularised(gradient, &value, weight_decay);
        let square = kept.take_or_zeros(SQUARE, &gradient).mul_scalar(alpha)
            + gradient.clone().square().mul_scalar(1.0 - alpha);
        kept.put(SQUARE, square.clone());
        let spread = if centered {
            let mean = lerp(kept.take_or_zeros(MEAN, &gradient), gradient.clone(), 1.0 - alpha);
            kept.put(MEAN, mean.clone());
            square - mean.square()
        } else {
            square
        };
        let direction = gradient / spread.sqrt().add_scalar(eps);
        if momentum == 0.0 {
            return value - direction.mul_scalar(step.lr);
        }
        let buffer = match kept.take(BUFFER) {
            Some(buffer) => buffer.mul_scalar(momentum) + direction,
            None => direction,
        };
        kept.put(BUFFER, buffer.clone());
        value - buffer.mul_scalar(step.lr)
    }
}

#[cfg(test)]
mod tests {
    use crate::optim::oracle;

    #[test]
    fn rmsprop_steps_as_pytorchs_does() {
        oracle::follow("rmsprop");
    }
}
