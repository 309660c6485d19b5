//! Asymmetric loss on logits (Ridnik et al. 2021, arXiv:2009.14119), as the authors' `AsymmetricLoss`.

use burn::tensor::Tensor;

use super::known::Known;
use super::logistic::Logistic;
use super::{AsymmetricConfig, Loss};

/// −u^γ·(y·ln p + (1 − y)·ln(1 − p_m)), where p = σ(x), p_m = max(p − m, 0), u = y·(1 − p) + (1 − y)·p_m
/// and γ = γ₊·y + γ₋·(1 − y).
///
/// The authors hold both logarithms above ln 10⁻⁸, so that a label given up for lost has no gradient;
/// here they are exact for every logit.
pub(super) struct Asymmetric {
    gamma_neg: f64,
    gamma_pos: f64,
    /// m.
    clip: f64,
}

impl Asymmetric {
    pub fn new(config: &AsymmetricConfig) -> Self {
        let AsymmetricConfig { gamma_neg, gamma_pos, clip } = *config;
        Self { gamma_neg, gamma_pos, clip }
    }

    /// p_m and −ln(1 − p_m).
    fn shifted(&self, logistic: &Logistic) -> (Tensor<2>, Tensor<2>) {
        let [p, rest] = logistic.probabilities();
        if self.clip as f32 == 0.0 {
            return (p, logistic.minus_ln_negative());
        }
        // Below m there is no loss and no gradient.
        let above = p.clone().inner().greater_elem(self.clip).float().cast(p.dtype());
        let shifted = p.sub_scalar(self.clip) * above.clone();
        // 1 − p_m is not taken from p_m, which is rounded to 1 − m where 1 − p is small.
        let below = above.clone().neg().add_scalar(1.0);
        let complement = rest.add_scalar(self.clip) * above + below;
        (shifted, complement.log().neg())
    }
}

impl Loss for Asymmetric {
    fn sum(&self, outputs: Tensor<2>, targets: Tensor<2>, mask: Tensor<2>) -> Tensor<1> {
        let Known { outputs, targets: y, mask } = Known::new(outputs, targets, mask);
        let logistic = Logistic::new(outputs);
        let negative = y.clone().neg().add_scalar(1.0);
        let (shifted, minus_ln_negative) = self.shifted(&logistic);
        let [_, rest] = logistic.probabilities();
        // A power through its logarithm, whose derivative is finite at 0 for exponents below 1 too.
        let base = rest * y.clone() + shifted * negative.clone();
        let exponent =
            y.clone().mul_scalar(self.gamma_pos) + negative.clone().mul_scalar(self.gamma_neg);
        let focus = (base.add_scalar(f32::MIN_POSITIVE).log() * exponent).exp();
        let entropy = logistic.minus_ln_positive() * y + minus_ln_negative * negative;
        Known::sum(mask, entropy * focus)
    }
}
