//! The logistic function's logarithms without overflow, cancellation or kinks.

use burn::tensor::{FloatDType, Tensor};

/// The parts of ln σ(x) and ln(1 − σ(x)), for logits x of any size.
///
/// |x| is written x·s with the sign s held constant. Autodiff then gives the derivative of ln σ at
/// x = 0 too, where the derivatives of |x| and max(x, 0) that it would otherwise use do not add up
/// to it (a head whose last layer is all zeros starts exactly there).
pub(super) struct Logistic {
    /// 1 where x ≥ 0, else 0; a constant.
    pub positive: Tensor<2>,
    /// e^−|x|, in [0, 1].
    pub decay: Tensor<2>,
    /// ln(1 + e^−|x|).
    pub tail: Tensor<2>,
    /// −ln σ(x) = max(−x, 0) + ln(1 + e^−|x|).
    pub minus_ln_positive: Tensor<2>,
    /// −ln(1 − σ(x)) = max(x, 0) + ln(1 + e^−|x|).
    pub minus_ln_negative: Tensor<2>,
}

impl Logistic {
    pub fn new(x: Tensor<2>) -> Self {
        let positive = x.clone().inner().greater_equal_elem(0.0).float().cast(FloatDType::F32);
        let negative = positive.clone().neg().add_scalar(1.0);
        let sign = positive.clone() - negative.clone();
        let decay = (x.clone() * sign.neg()).exp();
        let tail = decay.clone().log1p();
        Self {
            minus_ln_positive: tail.clone() - x.clone() * negative,
            minus_ln_negative: tail.clone() + x * positive.clone(),
            positive,
            decay,
            tail,
        }
    }
    /// σ(x) and 1 − σ(x), each exact where it is small.
    pub fn probabilities(&self) -> [Tensor<2>; 2] {
        let negative = self.positive.clone().neg().add_scalar(1.0);
        let whole = self.decay.clone().add_scalar(1.0);
        let small = self.decay.clone() / whole.clone();
        let large = whole.recip();
        [
            large.clone() * self.positive.clone() + small.clone() * negative.clone(),
            small * self.positive.clone() + large * negative,
        ]
    }
}
