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
        let y = match self.label_smoothing {
            0.0 => known.targets,
            smoothing => known.targets.mul_scalar(1.0 - smoothing).add_scalar(smoothing / 2.0),
        };
        let logistic = Logistic::new(known.outputs);
        // With w = p·y + 1 − y the loss is w·(max(−x, 0) + ln(1 + e^−|x|)) + (1 − y)·x, as PyTorch has it. What x is multiplied by is
        // a constant, so few kernels compute the loss and its gradient.
        let loss = match &self.pos_weight {
            None => logistic.tail + logistic.x * (logistic.positive - y),
            Some(weights) => {
                let rest = y.clone().neg().add_scalar(1.0);
                let weight = y.clone() * row(weights, &y.device()) + rest.clone();
                let slope = rest - weight.clone() * logistic.negative();
                logistic.tail * weight + logistic.x * slope
            }
        };
        Known::sum(known.mask, loss)
    }

    #[cfg(feature = "cuda")]
    fn sum_and_gradient(
        &self,
        outputs: Tensor<2>,
        targets: Tensor<2>,
        mask: Tensor<2>,
        factor: f64,
    ) -> (Tensor<1>, Tensor<2>) {
        use burn::tensor::DType;

        use crate::ops::gpu::{BceLabels, Buffer, Gpu};

        let gpu = Gpu::of(&outputs.device()).filter(|_| outputs.dtype() == DType::F32);
        let Some(gpu) = gpu else {
            return super::by_autodiff(|leaf| self.sum(leaf, targets, mask), outputs, factor);
        };
        let shape: [usize; 2] = outputs.dims();
        let weights = self.pos_weight.as_ref().map(|weights| row(weights, &outputs.device()));
        let weights = weights.map(Buffer::of_tensor);
        let [logits, targets, known] =
            [outputs, targets.inner(), mask.inner()].map(Buffer::of_tensor);
        let labels = BceLabels {
            logits: &logits,
            targets: &targets,
            known: &known,
            positive_weight: weights.as_ref(),
            per_image: shape[1],
            smoothing: self.label_smoothing,
        };
        let [sum, gradient] = gpu.bce(&labels, factor);
        (gpu.tensor(&sum, [1]), gpu.tensor(&gradient, shape))
    }
}
