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
///
/// In a mixed batch the truth is a share of each class. The sum is that of PyTorch's probability
/// targets, and what it is divided by are the weights of the classes by their shares, so that the
/// quotient goes over into that of whole classes; PyTorch divides by the number of images there,
/// which is the same without class weights.
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

    /// `[images, classes]`: w_c·t_c, from the index of the class, `[images, 1]`, or from shares of
    /// the classes, `[images, classes]`.
    fn weighted_targets(&self, targets: Tensor<2>) -> Tensor<2> {
        let classes = self.weights.len();
        let [images, width] = targets.dims();
        let device = targets.device();
        let truth = if width == 1 {
            let numbers: Vec<f64> = (0..classes).map(|class| class as f64).collect();
            let shape = [images, classes];
            let all = row(&numbers, &device).expand(shape);
            all.equal(targets.expand(shape)).float().cast(FloatDType::F32)
        } else {
            targets
        };
        let spread = self.label_smoothing / classes as f64;
        let smoothed = truth.mul_scalar(1.0 - self.label_smoothing).add_scalar(spread);
        smoothed * row(&self.weights, &device)
    }
}

impl Loss for CrossEntropy {
    fn normalizer(&self, targets: &Targets) -> f64 {
        let known = targets.values.iter().zip(&targets.mask).enumerate();
        let known = known.filter(|&(_, (_, &mask))| mask != 0.0);
        known
            .map(|(place, (&value, _))| match targets.width {
                1 => self.weights[value as usize],
                classes => self.weights[place % classes] * f64::from(value),
            })
            .sum()
    }

    fn sum(&self, outputs: Tensor<2>, targets: Tensor<2>, mask: Tensor<2>) -> Tensor<1> {
        let known = Known::new(outputs, targets, mask);
        // The greatest logit is taken off as a constant: the result does not depend on it.
        let greatest = known.outputs.clone().inner().max_dim(1);
        let shifted = known.outputs - greatest;
        let ln_softmax = shifted.clone() - shifted.exp().sum_dim(1).log();
        let per_image = (ln_softmax * self.weighted_targets(known.targets)).sum_dim(1).neg();
        // All columns of the mask are alike.
        Known::sum(known.mask.narrow(1, 0, 1), per_image)
    }
}
