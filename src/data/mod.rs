//! From files on disk to batches: one file per layout, one per file format, splits, the loader.
//!
//! [`open`] reads the tables of a layout into two [`Dataset`]s; a [`Loader`] turns one into
//! [`Batch`]es, epoch by epoch. [`check_labels`] tells without any file whether the heads' labels
//! are on offer.

mod augment;
mod batch;
mod chexpert;
mod config;
mod contain;
mod dataset;
mod error;
mod image;
mod labels;
mod layout;
mod loader;
mod npy;
mod phantom;
mod resize;
mod split;
mod table;

pub use batch::*;
pub use config::*;
pub use dataset::{Dataset, Sample, Splits, open};
pub use error::DataError;
pub use labels::{FINDINGS, FaultPlace, LabelFault, check_labels};
pub use loader::{Epoch, Loader, LoaderConfig};
pub use phantom::{PHANTOM_SIZES, PhantomSettings, PhantomState, ensure_phantom, write_phantom};
