//! Convolutions and norms on the CPU, forward and backward, in 32 bits. The bits of a result do not depend on the
//! number of threads.

mod convolution;
mod join;
mod matrix;
mod norm;
mod unfold;
mod workspace;

pub use join::{add, joined};
pub use norm::{BatchNorm, Statistics};
pub use unfold::{Convolution, Maps};
pub use workspace::Workspace;
