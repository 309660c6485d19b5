//! Losses with masks and weights; one file each.

mod config;

pub use config::*;
