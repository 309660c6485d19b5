//! Absolute error, as PyTorch's `L1Loss`.

use burn::tensor::Tensor;

use super::Loss;
use super::known::Known;

/// |x − y|; its derivative at 0 is 0.
pub(super) struct L1;

impl Loss for L1 {
    fn sum(&self, outputs: Tensor<2>, targets: Tensor<2>, mask: Tensor<2>) -> Tensor<1> {
        let known = Known::new(outputs, targets, mask);
        Known::sum(known.mask, (known.outputs - known.targets).abs())
    }
}
