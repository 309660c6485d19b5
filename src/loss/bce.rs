//! Binary cross-entropy on logits, as PyTorch's `BCEWithLogitsLoss`.

use burn::tensor::Tensor;

use super::known::Known;
use super::logistic::Logistic;
use super::weights::{positive_weights, row};
use super::{BceConfig, Loss};
use crate::data::LabelCounts;

/// −p·y·ln σ(x) − (1 − y)·ln(1 − σ(x)), with y smoothed and p the weight of positives.
pub(super) struct Bce {
    /// One per label; 1 for every label when absent.
    pos_weight: Option<Vec<f64>>,
    label_smoothing: f64,
}

impl Bce {
    pub fn new(config: &BceConfig, labels: usize, counts: &LabelCounts) -> Self {
        let pos_weight = config.pos_weight.as_ref().map(|rule| positive_weights(rule, counts));
        debug_assert!(pos_weight.as_ref().is_none_or(|weights| weights.len() == labels));
        Self { pos_weight, label_smoothing: config.label_smoothing }
    }
}

impl Loss for Bce {
    fn sum(&self, outputs: Tensor<2>, targets: Tensor<2>, mask: Tensor<2>) -> Tensor<1> {
        let known = Known::new(outputs, targets, mask);
        let smoothing = self.label_smoothing;
        let y = known.targets.mul_scalar(1.0 - smoothing).add_scalar(smoothing / 2.0);
        let negative = y.clone().neg().add_scalar(1.0);
        let positive = match &self.pos_weight {
            Some(weights) => y.clone() * row(weights, &y.device()),
            None => y,
        };
        let logistic = Logistic::new(known.outputs);
        let loss = logistic.minus_ln_positive * positive + logistic.minus_ln_negative * negative;
        Known::sum(known.mask, loss)
    }
}
