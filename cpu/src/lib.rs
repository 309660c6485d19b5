//! Convolutions, norms and max-pooling on the CPU, forward and backward, in 32 bits. The bits of a result do not depend on the
//! number of threads.

mod convolution;
mod join;
mod matrix;
mod norm;
mod pool;
mod squares;
mod unfold;
mod widest;
mod window;
mod winograd;
mod workspace;

pub use join::{add, joined};
pub use norm::{BatchNorm, Statistics};
pub use pool::Pool;
pub use squares::sum_of_squares;
pub use unfold::{Convolution, Maps};
pub use workspace::Workspace;
