//! From files on disk to batches: one file per layout, one per file format, splits, the loader.

mod batch;
mod config;

pub use batch::*;
pub use config::*;
