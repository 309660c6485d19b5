//! PESG, the proximal epoch stochastic gradient method (Yuan et al. 2021, arXiv:2012.03173, algorithm 1), as LibAUC's
//! optimizer of that name in its mode `sgd`.

use burn::tensor::Tensor;

use super::PesgConfig;
use super::rule::{ParameterState, Rule, Step};

const BUFFER: &str = "momentum_buffer";
/// v_ref: what the weights are drawn towards.
const REFERENCE: &str = "reference";
/// The sum of the values since the reference moved.
const SUM: &str = "sum";

/// SGD whose weights are drawn towards a reference: the weights at first, and from each stage to the next their mean over
/// the stage's steps (`update_regularizer` there). LibAUC draws the first reference at random; the paper has the weights.
pub(super) struct Pesg(pub(super) PesgConfig);

impl Pesg {
    fn draws(&self) -> bool {
        self.0.epoch_decay > 0.0
    }

    /// The gradient, clipped number by number, with what draws the weights.
    fn direction(
        &self,
        step: Step,
        value: &Tensor<1>,
        gradient: Tensor<1>,
        reference: Option<&Tensor<1>>,
    ) -> Tensor<1> {
        let PesgConfig { clip_value, epoch_decay, weight_decay, .. } = self.0;
        let mut direction = gradient.clamp(-clip_value, clip_value);
        if let Some(reference) = reference {
            let distance = value.clone() - reference.clone();
            direction = direction + distance.mul_scalar(epoch_decay);
        }
        step.regularised(direction, value, weight_decay)
    }
}

impl Rule for Pesg {
    fn leaves(&self) -> Vec<&'static str> {
        let momentum = [BUFFER].into_iter().filter(|_| self.0.momentum > 0.0);
        let reference = [REFERENCE, SUM].into_iter().filter(|_| self.draws());
        momentum.chain(reference).collect()
    }

    fn step(
        &self,
        step: Step,
        value: Tensor<1>,
        gradient: Tensor<1>,
        kept: &mut ParameterState,
    ) -> Tensor<1> {
        let PesgConfig { momentum, stage_steps, .. } = self.0;
        let reference = self.draws().then(|| kept.take(REFERENCE).unwrap_or_else(|| value.clone()));
        let mut direction = self.direction(step, &value, gradient, reference.as_ref());
        if momentum > 0.0 {
            // The share of the gradient, not of what came before, as LibAUC has it.
            if let Some(buffer) = kept.take(BUFFER) {
                direction = buffer.mul_scalar(1.0 - momentum) + direction.mul_scalar(momentum);
            }
            kept.put(BUFFER, direction.clone());
        }
        let value = value - direction.mul_scalar(step.lr);
        if let Some(reference) = reference {
            let sum = kept.take_or_zeros(SUM, &value) + value.clone();
            let ends = step.number.is_multiple_of(stage_steps);
            let (reference, sum) = match ends {
                true => (sum.clone().div_scalar(stage_steps as f64), sum.zeros_like()),
                false => (reference, sum),
            };
            kept.put(REFERENCE, reference);
            kept.put(SUM, sum);
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use crate::optim::oracle;

    #[derive(serde::Deserialize)]
    struct Fixture {
        optimizers: oracle::Course,
    }

    #[test]
    fn pesg_steps_as_libaucs_does() {
        let text = include_str!("../../tests/fixtures/pesg.json");
        let fixture: Fixture = serde_json::from_str(text).expect("the fixture reads");
        assert_eq!(fixture.optimizers.cases.len(), 4);
        oracle::follow_course(&fixture.optimizers, "pesg");
    }
}
