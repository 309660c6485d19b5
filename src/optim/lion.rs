//! Lion (Chen et al. 2023, arXiv:2302.06675, algorithm 2).

use burn::tensor::Tensor;

use super::LionConfig;
use super::rule::{ParameterState, Rule, Step};

const MEAN: &str = "exp_avg";

/// Lion with decoupled weight decay, `lr · weight_decay`, as its authors have it.
pub(super) struct Lion(pub(super) LionConfig);

impl Rule for Lion {
    fn leaves(&self) -> Vec<&'static str> {
        vec![MEAN]
    }

    fn step(
        &self,
        step: Step,
        value: Tensor<1>,
        gradient: Tensor<1>,
        kept: &mut ParameterState,
    ) -> Tensor<1> {
        let LionConfig { betas: [beta1, beta2], weight_decay, .. } = self.0;
        let value = step.decayed(value, weight_decay);
        let mean = kept.take_or_zeros(MEAN, &gradient);
        let update = mean.clone().mul_scalar(beta1) + gradient.clone().mul_scalar(1.0 - beta1);
        kept.put(MEAN, mean.mul_scalar(beta2) + gradient.mul_scalar(1.0 - beta2));
        value - update.sign().mul_scalar(step.lr)
    }
}

#[cfg(test)]
mod tests {
    use crate::optim::oracle;

    #[test]
    fn lion_steps_as_its_published_form_does() {
        oracle::follow("lion");
    }
}
