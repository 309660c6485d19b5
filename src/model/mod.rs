//! Networks as chains of stages; one file each.

mod config;
pub mod weights;

pub use config::*;
