//! What a loss computes on: 32-bit numbers that are finite wherever a label is missing.

use burn::tensor::{FloatDType, Tensor};

use crate::ops::sum;

/// Outputs, targets and mask of a head, ready for arithmetic.
pub(super) struct Known {
    /// `[images, outputs]`, 0 where the label is missing, so that a NaN there goes nowhere:
    /// `0 × NaN` would be NaN, in the value and in the gradient.
    pub outputs: Tensor<2>,
    /// `[images, width]`, 0 where the label is missing.
    pub targets: Tensor<2>,
    /// `[images, width]`: 1 where the label is known, else 0.
    pub mask: Tensor<2>,
}

impl Known {
    pub fn new(outputs: Tensor<2>, targets: Tensor<2>, mask: Tensor<2>) -> Self {
        let missing = mask.clone().inner().equal_elem(0.0);
        // One column of mask stands for all classes of a `multiclass` head.
        let of_outputs = missing.clone().expand(outputs.dims());
        Self {
            outputs: outputs.cast(FloatDType::F32).mask_fill(of_outputs, 0.0),
            targets: targets.inner().cast(FloatDType::F32).mask_fill(missing, 0.0),
            mask: mask.inner().cast(FloatDType::F32),
        }
    }

    /// `[1]`: the sum of `values` (`[images, width]`) where labels are known.
    pub fn sum(mask: Tensor<2>, values: Tensor<2>) -> Tensor<1> {
        sum(values * mask)
    }
}
