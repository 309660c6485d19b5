//! Optimizers over flat parameters, learning-rate schedules, clipping and the average of weights.

mod config;

pub use config::*;
