//! Adagrad (Duchi, Hazan and Singer 2011).

use burn::tensor::Tensor;

use super::AdagradConfig;
use super::rule::{ParameterState, Rule, Step};

const SUM: &str = "sum";

/// `torch.optim.Adagrad` with its initial accumulator of 0.
pub(super) struct Adagrad(pub(super) AdagradConfig);

impl Rule for Adagrad {
    fn leaves(&self) -> Vec<&'static str> {
        vec![SUM]
    }

    fn step(
        &self,
        step: Step,
        value: Tensor<1>,
        gradient: Tensor<1>,
        kept: &mut ParameterState,
    ) -> Tensor<1> {
        let AdagradConfig { lr_decay, eps, weight_decay, .. } = self.0;
        let gradient = step.regularised(gradient, &value, weight_decay);
        let sum = kept.take_or_zeros(SUM, &gradient) + gradient.clone().square();
        kept.put(SUM, sum.clone());
        let lr = step.lr / (1.0 + (step.number - 1) as f64 * lr_decay);
        value - gradient.mul_scalar(lr) / sum.sqrt().add_scalar(eps)
    }
}

#[cfg(test)]
mod tests {
    use crate::optim::oracle;

    #[test]
    fn adagrad_steps_as_pytorchs_does() {
        oracle::follow("adagrad");
    }
}
