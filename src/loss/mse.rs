//! Squared error, as PyTorch's `MSELoss`.

use burn::tensor::Tensor;

use super::Loss;
use super::known::Known;

/// (x − y)².
pub(super) struct Mse;

impl Loss for Mse {
    fn sum(&self, outputs: Tensor<2>, targets: Tensor<2>, mask: Tensor<2>) -> Tensor<1> {
        let known = Known::new(outputs, targets, mask);
        Known::sum(known.mask, (known.outputs - known.targets).square())
    }
}
