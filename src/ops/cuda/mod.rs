//! Hand-written CUDA kernels, launched through CubeCL and so on Burn's stream, with its allocator and
//! its cache of compiled kernels.
//!
//! A [`Kernel`] is CUDA C++ text with the macros that choose its variant; a [`Gpu`] launches it on
//! [`Buffer`]s, which come from tensors and become tensors again without a copy. Work is ordered by
//! the stream: what a kernel writes, a later kernel or Burn operation of the same thread reads.
//! [`Kernels`] are all of those that a model needs at one precision; `kernels/README*.md` say what
//! each computes and how it is launched.

mod ahead;
mod arrays;
mod buffer;
mod columns;
mod conv;
mod dropout;
mod element;
mod general;
mod gpu;
mod kernel;
mod kernels;
mod layer;
mod map;
mod norm;
mod pool;
mod residual;
mod squares;
mod stem;
mod steps;
mod transfer;
mod transition;
mod weights;

pub use ahead::{Compiler, rehearsal};
pub use buffer::{Buffer, Identity};
pub use columns::{Affine, Columns, Moments, Partials, Sums};
pub use conv::Convolution;
pub(super) use dropout::dropout_mask;
pub use element::{Element, Storage};
pub(super) use general::General;
pub use gpu::{Gpu, Sizes};
pub use kernel::Kernel;
pub use kernels::Kernels;
pub use layer::Normalised;
pub use map::DeviceMap;
pub use norm::{NormBuffers, Record};
pub use residual::Shortcut;
pub use stem::Images;
pub use steps::{AdamStep, SgdStep, Stepped};
pub use transfer::{Download, Transfers};
pub use weights::{Form, Packed, Packing, Segment};
