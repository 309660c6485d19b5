//! AUC-margin loss (Yuan et al. 2021, arXiv:2012.03173), as LibAUC's `AUCMLoss` of the form `v1`.
//!
//! It stands for the area under the ROC curve: the squares of `margin` − (h(positive) − h(negative)) over
//! all pairs, where h = σ(x). Written as a minimum over two numbers a and b and a maximum over a third,
//! α ≥ 0, for each label (equation 6 there), it is a sum over images:
//!
//! ```text
//! (1 − p)·y·(h − a)² + p·(1 − y)·(h − b)² + 2α·(p(1 − p)·margin + p·(1 − y)·h − (1 − p)·y·h) − p(1 − p)·α²
//! ```
//!
//! with p the share of positives among the training labels (LibAUC's `imratio`). A soft label counts
//! in part as a positive; LibAUC leaves it out.

use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};

use super::known::Known;
use super::logistic::Logistic;
use super::weights::row;
use super::{AucMarginConfig, Loss};
use crate::data::LabelCounts;

/// What the loss learns beside the weights: three numbers for each label, all 0 at first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AucVariables {
    /// Where the probabilities of positives lie.
    pub a: Vec<f32>,
    /// Where those of negatives lie.
    pub b: Vec<f32>,
    /// How much the distance of the two counts; 0 or more.
    pub alpha: Vec<f32>,
}

/// The α that LibAUC lets no label go above.
const LARGEST_ALPHA: f64 = 999.0;

/// The loss, and where its variables stand.
pub struct AucMargin {
    margin: f64,
    /// p, one per label.
    share: Vec<f64>,
    variables: AucVariables,
}

impl AucMargin {
    pub(super) fn new(config: &AucMarginConfig, counts: &LabelCounts) -> Self {
        let labels = counts.positives.iter().zip(&counts.negatives);
        // A label without any has nothing to be told apart, whatever p.
        let share = |(positives, negatives): (&f64, &f64)| {
            if positives + negatives > 0.0 { positives / (positives + negatives) } else { 0.0 }
        };
        let share: Vec<f64> = labels.map(share).collect();
        let zeros = vec![0.0; share.len()];
        let variables = AucVariables { a: zeros.clone(), b: zeros.clone(), alpha: zeros };
        Self { margin: config.margin, share, variables }
    }

    /// What it has learned.
    pub fn variables(&self) -> &AucVariables {
        &self.variables
    }

    /// Goes on from `variables`; whether they are of as many labels.
    pub fn set_variables(&mut self, variables: AucVariables) -> bool {
        let AucVariables { a, b, alpha } = &variables;
        let fits = [a, b, alpha].iter().all(|values| values.len() == self.share.len());
        if fits {
            self.variables = variables;
        }
        fits
    }

    /// `[2 · labels]`: all a, then all b, which an optimizer changes as it does weights.
    pub fn centres(&self) -> Vec<f32> {
        [self.variables.a.as_slice(), &self.variables.b].concat()
    }

    /// The gradient of [`Loss::sum`] with respect to [`AucMargin::centres`], given the same but without
    /// autodiff. Those of micro-batches add up to that of the batch.
    pub fn gradient(&self, outputs: Tensor<2>, targets: Tensor<2>, mask: Tensor<2>) -> Tensor<1> {
        let known = Known::new(outputs, targets, mask);
        let device = known.mask.device();
        let [h, _] = Logistic::new(known.outputs).probabilities();
        let [a, b, _] = self.rows(&device);
        let [positive, negative] = self.shares(known.targets);
        let of = |weight: Tensor<2>, centre: Tensor<2>| {
            let each = weight * (h.clone() - centre) * known.mask.clone();
            each.sum_dim(0).mul_scalar(-2.0).reshape([-1])
        };
        Tensor::cat(vec![of(positive, a), of(negative, b)], 0)
    }

    /// Takes a step: a and b are now `centres`, and α rises at `learning_rate`, as LibAUC's optimizer
    /// `PESG` has it: by the gradient of 2α·(margin + b − a) − α².
    pub fn learn(&mut self, centres: &[f32], learning_rate: f64) {
        let (a, b) = centres.split_at(self.share.len());
        let AucVariables { alpha, .. } = &mut self.variables;
        for ((alpha, a), b) in alpha.iter_mut().zip(a).zip(b) {
            let [before, a, b] = [*alpha, *a, *b].map(f64::from);
            let slope = 2.0 * (self.margin + b - a - before);
            *alpha = (before + learning_rate * slope).clamp(0.0, LARGEST_ALPHA) as f32;
        }
        self.variables.a = a.to_vec();
        self.variables.b = b.to_vec();
    }

    /// a, b and α, `[1, labels]` each.
    fn rows(&self, device: &Device) -> [Tensor<2>; 3] {
        let AucVariables { a, b, alpha } = &self.variables;
        [a, b, alpha].map(|values| {
            let values: Vec<f64> = values.iter().map(|&value| f64::from(value)).collect();
            row(&values, device)
        })
    }

    /// (1 − p)·y and p·(1 − y).
    fn shares(&self, y: Tensor<2>) -> [Tensor<2>; 2] {
        let p = row(&self.share, &y.device());
        let positive = p.clone().neg().add_scalar(1.0) * y.clone();
        [positive, p * y.neg().add_scalar(1.0)]
    }
}

impl Loss for AucMargin {
    fn sum(&self, outputs: Tensor<2>, targets: Tensor<2>, mask: Tensor<2>) -> Tensor<1> {
        let Known { outputs, targets: y, mask } = Known::new(outputs, targets, mask);
        let device = mask.device();
        let [h, _] = Logistic::new(outputs).probabilities();
        let [a, b, alpha] = self.rows(&device);
        let [positive, negative] = self.shares(y);
        let square = |centre: Tensor<2>| {
            let distance = h.clone() - centre;
            distance.clone() * distance
        };
        let pull = h.clone() * alpha.mul_scalar(2.0);
        let alone = self.share.iter().zip(&self.variables.alpha).map(|(p, &alpha)| {
            let alpha = f64::from(alpha);
            p * (1.0 - p) * alpha * (2.0 * self.margin - alpha)
        });
        let alone = row(&alone.collect::<Vec<_>>(), &device);
        let each = positive * (square(a) - pull.clone()) + negative * (square(b) + pull) + alone;
        Known::sum(mask, each)
    }

    fn auc_margin(&self) -> Option<&AucMargin> {
        Some(self)
    }

    fn auc_margin_mut(&mut self) -> Option<&mut AucMargin> {
        Some(self)
    }
}
