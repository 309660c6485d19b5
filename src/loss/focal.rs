//! Focal loss on logits (Lin et al. 2017, arXiv:1708.02002), as torchvision's `sigmoid_focal_loss`.

use burn::tensor::Tensor;

use super::known::Known;
use super::logistic::Logistic;
use super::{FocalConfig, Loss};

/// α_t·(1 − p_t)^γ·bce, with p_t the probability given to the truth.
pub(super) struct Focal {
    gamma: f64,
    /// The weight of positives; `None` weighs both alike with 1.
    alpha: Option<f64>,
}

impl Focal {
    pub fn new(config: &FocalConfig) -> Self {
        Self { gamma: config.gamma, alpha: (config.alpha >= 0.0).then_some(config.alpha) }
    }

    /// (1 − p_t)^γ, through its logarithm: the derivative of a power is infinite at 0 for γ < 1,
    /// while the derivative of this stays finite.
    fn modulation(&self, y: Tensor<2>, logistic: &Logistic) -> Tensor<2> {
        // With d = e^−|x|, 1 − p_t = (a·d + 1 − a) / (1 + d), where a is the share of the target
        // that the sign of x gets right.
        let positive = logistic.positive.clone();
        let both_negative = (y.clone().neg() + 1.0) * logistic.negative();
        let right = positive * y + both_negative;
        let wrong = right.clone().neg() + 1.0;
        // The smallest normal number keeps the logarithm finite where d has underflowed to 0.
        let numerator = logistic.decay.clone() * right + wrong.add_scalar(f32::MIN_POSITIVE);
        (numerator.log() - logistic.tail.clone()).mul_scalar(self.gamma).exp()
    }
}

impl Loss for Focal {
    fn sum(&self, outputs: Tensor<2>, targets: Tensor<2>, mask: Tensor<2>) -> Tensor<1> {
        let Known { outputs, targets: y, mask } = Known::new(outputs, targets, mask);
        let logistic = Logistic::new(outputs);
        let modulation = self.modulation(y.clone(), &logistic);
        let negative = y.clone().neg().add_scalar(1.0);
        let bce = logistic.minus_ln_positive() * y.clone()
            + logistic.minus_ln_negative() * negative.clone();
        let loss = bce * modulation;
        let weighted = match self.alpha {
            Some(alpha) => loss * (y.mul_scalar(alpha) + negative.mul_scalar(1.0 - alpha)),
            None => loss,
        };
        Known::sum(mask, weighted)
    }
}
