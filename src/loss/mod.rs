//! Losses with masks and weights; one file each.
//!
//! A loss is a sum over known labels and a number to divide by, kept apart: the gradient of a batch
//! is then the sum of its micro-batches' gradients, each divided by the whole batch's number.

mod asymmetric;
mod auc_margin;
mod bce;
mod check;
mod config;
mod cross_entropy;
mod focal;
mod huber;
mod known;
mod l1;
mod logistic;
mod mse;
mod weights;

use burn::tensor::Tensor;

use crate::choice::{NoSettings, name_of};
use crate::data::{LabelCounts, Targets};
use crate::model::Task;

pub use auc_margin::{AucMargin, AucVariables};
pub use check::check;
pub use config::*;

/// One head's loss, split into a sum over known labels and what it is divided by, so that
/// micro-batches of one batch give the gradient of the whole.
///
/// What is masked counts for exactly 0 in value and gradient, whatever the output and target there
/// (NaN included). On known labels the value and gradient are finite for every finite logit.
pub trait Loss: Send + Sync {
    /// What the sum over this batch is divided by: the number of known labels; for cross-entropy
    /// with class weights the sum of the true classes' weights, as PyTorch's `mean` does. 0 when
    /// the head has no known label.
    fn normalizer(&self, targets: &Targets) -> f64 {
        targets.mask.iter().map(|&known| f64::from(known)).sum()
    }

    /// `[1]`, in 32-bit: the sum over known labels.
    ///
    /// `outputs` is `[images, outputs]` in any floating-point type, with or without autodiff;
    /// `targets` and `mask` are `[images, width]` on the same device, as [`Targets`] holds them;
    /// cross-entropy takes shares of classes too.
    fn sum(&self, outputs: Tensor<2>, targets: Tensor<2>, mask: Tensor<2>) -> Tensor<1>;

    /// The same of `outputs` without autodiff, and the gradient of `factor` times it with respect to them.
    fn sum_and_gradient(
        &self,
        outputs: Tensor<2>,
        targets: Tensor<2>,
        mask: Tensor<2>,
        factor: f64,
    ) -> (Tensor<1>, Tensor<2>) {
        by_autodiff(|leaf| self.sum(leaf, targets, mask), outputs, factor)
    }

    /// The loss that learns numbers of its own, where it is that one.
    fn auc_margin(&self) -> Option<&AucMargin> {
        None
    }

    /// The same, to be changed.
    fn auc_margin_mut(&mut self) -> Option<&mut AucMargin> {
        None
    }
}

/// What `sum` makes of `outputs`, and the gradient of `factor` times it with respect to them.
fn by_autodiff(
    sum: impl FnOnce(Tensor<2>) -> Tensor<1>,
    outputs: Tensor<2>,
    factor: f64,
) -> (Tensor<1>, Tensor<2>) {
    let leaf = outputs.autodiff().require_grad();
    let sum = sum(leaf.clone());
    let mut gradients = sum.clone().mul_scalar(factor).backward();
    let gradient = leaf.grad_remove(&mut gradients);
    let gradient = gradient.unwrap_or_else(|| leaf.without_autodiff().zeros_like());
    (sum.without_autodiff(), gradient)
}

/// The loss of a head that names none.
pub fn default_loss(task: Task) -> LossConfig {
    match task {
        Task::Multilabel | Task::Binary => LossConfig::Bce(BceConfig::default()),
        Task::Multiclass => LossConfig::CrossEntropy(CrossEntropyConfig::default()),
        Task::Regression => LossConfig::Mse(NoSettings {}),
    }
}

impl LossConfig {
    /// The loss of a head with this many labels or classes, whose training labels count `counts`.
    ///
    /// The configuration must have passed [`check`].
    pub fn init(&self, task: Task, labels: usize, counts: &LabelCounts) -> Box<dyn Loss> {
        debug_assert!(check::fits(self, task), "`check` refuses {} for {task:?}", self.name());
        match self {
            Self::Bce(config) => Box::new(bce::Bce::new(config, labels, counts)),
            Self::Focal(config) => Box::new(focal::Focal::new(config)),
            Self::Asymmetric(config) => Box::new(asymmetric::Asymmetric::new(config)),
            Self::AucMargin(config) => Box::new(AucMargin::new(config, counts)),
            Self::CrossEntropy(config) => {
                Box::new(cross_entropy::CrossEntropy::new(config, labels, counts))
            }
            Self::Mse(_) => Box::new(mse::Mse),
            Self::L1(_) => Box::new(l1::L1),
            Self::Huber(config) => Box::new(huber::Huber::new(config)),
        }
    }

    /// As a configuration writes it, such as `cross_entropy`.
    pub fn name(&self) -> &'static str {
        name_of(self)
    }
}

#[cfg(test)]
mod tests;
