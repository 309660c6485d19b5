//! Linear interpolation as PyTorch rounds it.

use burn::tensor::Tensor;

/// `start` moved towards `end` by `weight`, 0 to 1, in the form `torch.lerp` has: exact at both
/// ends.
pub(super) fn lerp(start: Tensor<1>, end: Tensor<1>, weight: f64) -> Tensor<1> {
    let way = end.clone() - start.clone();
    if weight < 0.5 { start + way.mul_scalar(weight) } else { end - way.mul_scalar(1.0 - weight) }
}
