//! The logistic function's logarithms without overflow, cancellation or kinks.

use burn::tensor::{FloatDType, Tensor};

/// The parts of ln σ(x) and ln(1 − σ(x)), for logits x of any size.
///
/// |x| is written x·s with the sign s held constant. Autodiff then gives the derivative of ln σ at
/// x = 0 too, where the derivatives of |x| and max(x, 0) that it would otherwise use do not add up
/// to it (a head whose last layer is all zeros starts exactly there).
pub(super) struct Logistic {
    /// x.
    pub x: Tensor<2>,
    /// 1 where x ≥ 0, else 0; a constant.
    pub positive: Tensor<2>,
    /// e^−|x|, in [0, 1].
    pub decay: Tensor<2>,
    /// ln(1 + e^−|x|).
    pub tail: Tensor<2>,
}

impl Logistic {
    pub fn new(x: Tensor<2>) -> Self {
        let positive = x.clone().inner().greater_equal_elem(0.0).float().cast(FloatDType::F32);
        let minus_sign = positive.clone().mul_scalar(-2.0).add_scalar(1.0);
        let decay = (x.clone() * minus_sign).exp();
        let tail = decay.clone().log1p();
        Self { x, positive, decay, tail }
    }

    /// 1 where x < 0, else 0; a constant.
    pub fn negative(&self) -> Tensor<2> {
        self.positive.clone().neg().add_scalar(1.0)
    }

    /// −ln σ(x) = max(−x, 0) + ln(1 + e^−|x|).
    pub fn minus_ln_positive(&self) -> Tensor<2> {
        self.tail.clone() - self.x.clone() * self.negative()
    }

    /// −ln(1 − σ(x)) = max(x, 0) + ln(1 + e^−|x|).
    pub fn minus_ln_negative(&self) -> Tensor<2> {
        self.tail.clone() + self.x.clone() * self.positive.clone()
    }

    /// σ(x) and 1 − σ(x), each exact where it is small.
    pub fn probabilities(&self) -> [Tensor<2>; 2] {
        let negative = self.negative();
        let whole = self.decay.clone().add_scalar(1.0);
        let small = self.decay.clone() / whole.clone();
        let large = whole.recip();
        [
            large.clone() * self.positive.clone() + small.clone() * negative.clone(),
            small * self.positive.clone() + large * negative,
        ]
    }
}
