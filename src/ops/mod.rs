//! Operations that Burn lacks or is slow at: [`reference`] defines each in plain Burn operations, and
//! `cuda` runs it in hand-written kernels.

mod convolution;
#[cfg(any(feature = "cuda", test))]
mod product;
pub mod reference;

pub use convolution::{Products, convolution, convolution_with, linear};

#[cfg(feature = "cuda")]
pub mod cuda;
