//! The chain of stages, schedules over it, and the executor that runs them.

mod config;
mod gradients;

pub use config::*;
pub use gradients::Gradients;
