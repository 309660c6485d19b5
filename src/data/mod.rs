//! From files on disk to batches: one file per layout, one per file format, splits, the loader.

mod batch;
mod config;
mod error;
mod labels;
mod phantom;

pub use batch::*;
pub use config::*;
pub use error::DataError;
pub use labels::FINDINGS;
pub use phantom::{PHANTOM_SIZES, PhantomSettings, PhantomState, ensure_phantom, write_phantom};
