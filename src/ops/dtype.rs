//! In which dtype sums are computed.

use burn::tensor::DType;

/// Whether numbers have 16 bits: they are stored so, and computed with in 32 bits.
pub fn is_16bit(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

/// What sums and statistics of tensors in `dtype` are computed in: at least 32 bits.
pub fn accumulation_dtype(dtype: DType) -> DType {
    if is_16bit(dtype) { DType::F32 } else { dtype }
}
