//! Softmax cross-entropy over classes, as PyTorch's `CrossEntropyLoss`.

use burn::tensor::{FloatDType, Tensor};

use super::known::Known;
use super::weights::{class_weights, row};
use super::{CrossEntropyConfig, Loss};
use crate::data::{LabelCounts, Targets};

/// −Σ_c w_c·t_c·ln softmax(x)_c, with t = (1 − s)·[c is true] + s / classes.
///
/// The weights act on the smoothed part too, and the sum is divided by the weights of the true
/// classes alone, both as in PyTorch.
pub(super) struct CrossEntropy {
    /// One per class.
    weights: Vec<f64>,
    label_smoothing: f64,
}

impl CrossEntropy {
    pub fn new(config: &CrossEntropyConfig, classes: usize, counts: &LabelCounts) -> Self {
        let weights = match &config.class_weights {
            Some(rule) => class_weights(rule, counts),
            None => vec![1.0; classes],
        };
        debug_assert_eq!(weights.len(), classes);
        Self { weights, label_smoothing: config.label_smoothing }
    }

    /// `[images, classes]`: w_c·t_c, from the index of the class, `[images, 1]`.
    fn weighted_targets(&self, index: Tensor<2>) -> Tensor<2> {
        let classes = self.weights.len();
        let shape = [index.dims()[0], classes];
        let numbers: Vec<f64> = (0..classes).map(|class| class as f64).collect();
        let device = index.device();
        let all = row(&numbers, &device).expand(shape);
        let truth = all.equal(index.expand(shape)).float().cast(FloatDType::F32);
        let spread = self.label_smoothing / classes as f64;
        let smoothed = truth.mul_scalar(1.0 - self.label_smoothing).add_scalar(spread);
        smoothed * row(&self.weights, &device)
    }
}

impl Loss for CrossEntropy {
    fn normalizer(&self, targets: &Targets) -> f64 {
        let known = targets.values.iter().zip(&targets.mask).filter(|&(_, &mask)| mask != 0.0);
        known.map(|(&class, _)| self.weights[class as usize]).sum()
    }

    fn sum(&self, outputs: Tensor<2>, targets: Tensor<2>, mask: Tensor<2>) -> Tensor<1> {
        let known = Known::new(outputs, targets, mask);
        // The greatest logit is taken off as a constant: the result does not depend on it.
        let greatest = known.outputs.clone().inner().max_dim(1);
        let shifted = known.outputs - greatest;
        let ln_softmax = shifted.clone() - shifted.exp().sum_dim(1).log();
        let per_image = (ln_softmax * self.weighted_targets(known.targets)).sum_dim(1).neg();
        Known::sum(known.mask, per_image)
    }
}
