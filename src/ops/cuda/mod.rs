//! Hand-written CUDA kernels, launched through CubeCL and so on Burn's stream, with its allocator and
//! its cache of compiled kernels.
//!
//! A [`Kernel`] is CUDA C++ text with the macros that choose its variant; a [`Gpu`] launches it on
//! [`Buffer`]s, which come from tensors and become tensors again without a copy. Work is ordered by
//! the stream: what a kernel writes, a later kernel or Burn operation of the same thread reads.

mod buffer;
mod element;
mod gpu;
mod kernel;

pub use buffer::Buffer;
pub use element::{Element, Storage};
pub use gpu::{Gpu, Sizes};
pub use kernel::Kernel;
