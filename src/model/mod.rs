//! Networks as chains of stages; one file each.

mod config;

pub use config::*;
