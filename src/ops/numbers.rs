//! What tensors are computed in.

use burn::tensor::DType;

/// Whether tensors in `numbers` are kept in them only, and computed in 32 bits.
pub fn is_narrow(numbers: DType) -> bool {
    matches!(numbers, DType::F16 | DType::BF16)
}

/// What sums and statistics of tensors in `numbers` are computed in.
pub fn wide(numbers: DType) -> DType {
    if is_narrow(numbers) { DType::F32 } else { numbers }
}
