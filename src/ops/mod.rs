//! Operations that Burn lacks or is slow at: [`reference`] defines each fused one in plain Burn
//! operations, and `cuda` runs it in hand-written kernels; [`convolution`], [`linear`], [`sum`],
//! [`seed`] and [`after_backward`] take tensors, with autodiff or without, and are right for every device.

mod after_backward;
mod convolution;
mod narrow_norm;
mod numbers;
mod primitives;
mod product;
pub mod reference;
mod seed;
mod sum;
#[cfg(feature = "cpu")]
mod widened;

pub use after_backward::after_backward;
pub use convolution::{
    Products, bias_gradient, biased, convolution, convolution_gradients, convolution_with, linear,
    linear_gradients, products, with_products,
};
pub use narrow_norm::{Over, narrow_norm};
pub use numbers::{is_narrow, wide};
pub use seed::seed;
pub use sum::sum;

#[cfg(feature = "cuda")]
pub mod cuda;
