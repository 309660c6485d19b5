//! The numbers that kernels compute with, and how they lie in memory.

use burn::tensor::DType;

use crate::ops::MatmulPrecision;

/// What a variant of a kernel multiplies; sums are always 32-bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Element {
    /// 32-bit numbers, products exact to about 2⁻²¹ (three TF32 products each, or six of bfloat16).
    F32,
    /// 32-bit numbers, rounded to TF32 where they are multiplied.
    Tf32,
    /// bfloat16.
    Bf16,
    /// IEEE half precision.
    F16,
}

impl Element {
    /// That of maps of `dtype`.
    pub fn of(dtype: DType, precision: MatmulPrecision) -> Self {
        match (dtype, precision) {
            (DType::BF16, _) => Self::Bf16,
            (DType::F16, _) => Self::F16,
            (_, MatmulPrecision::Full) => Self::F32,
            (_, MatmulPrecision::Tf32) => Self::Tf32,
        }
    }

    /// The value of the macro `ELEMENT`.
    pub fn macro_name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Tf32 => "tf32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        }
    }

    /// How its numbers lie in memory.
    pub fn storage(self) -> DType {
        match self {
            Self::F32 | Self::Tf32 => DType::F32,
            Self::Bf16 => DType::BF16,
            Self::F16 => DType::F16,
        }
    }
}
