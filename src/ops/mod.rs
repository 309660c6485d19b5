//! Operations that Burn lacks or is slow at.
//!
//! They take tensors of any device: on the CPU they run Burn's own operations or those of the crate
//! `trainer_cpu`, on CUDA the kernels in [`gpu`], on which the fused stages run as well.

mod after_backward;
#[cfg(feature = "cpu")]
mod convolve;
mod device;
mod dropout;
mod dtype;
pub mod gpu;
#[cfg(feature = "cpu")]
mod host;
mod inner_product;
mod join;
mod matmul;
mod norm;
#[cfg(feature = "cpu")]
mod parts;
mod pool;
mod primitives;
mod recorded;
mod sum;
mod window;

pub use after_backward::after_backward;
pub use device::is_gpu;
pub use dropout::{Dropout, DropoutKey, dropout};
pub use dtype::{accumulation_dtype, is_16bit};
pub use inner_product::inner_product;
pub use join::{added, joined};
pub use matmul::{
    MatmulPrecision, bias_gradient, biased, convolution, convolution_gradients, linear,
    linear_gradients, row_groups,
};
pub use norm::{EPSILON, batch_norm, batch_norm_evaluation, group_count, group_norm};
#[cfg(feature = "cpu")]
pub use parts::{comes_in_parts, in_parts};
pub use pool::{avg_pool, global_pool, max_pool};
pub use sum::{sum, sum_of_squares};
pub use window::Window;
