//! From files on disk to batches: one file per layout, one per file format, splits, the loader.
//!
//! [`open`] reads the tables of one layout or several sources into two [`Dataset`]s; a [`Loader`]
//! turns one into [`Batch`]es, epoch by epoch. [`check_layouts`] and [`check_labels`] tell without
//! any file whether the layouts' settings can be and the heads' labels are on offer.

mod area;
mod augment;
mod batch;
mod bench;
mod cache;
mod columns;
mod config;
mod dataset;
mod error;
mod files;
mod fingerprint;
mod folds;
mod image;
mod inspect;
mod known;
mod labels;
mod layout;
mod listing;
mod loader;
mod mix;
mod normalize;
mod npy;
mod opened;
mod overlap;
mod overlay;
mod phantom;
mod prepare;
mod preview;
mod random_arrays;
mod recognise;
mod resize;
mod same_image;
mod sampler;
mod source;
mod split;
mod spread;
mod standardize;
mod table;
mod thumbnail;

pub use area::Area;
pub use augment::{View, check as check_augment};
pub use batch::*;
pub use bench::{Rates, bench};
pub use cache::{Cache, Filling};
pub use columns::column;
pub use config::*;
pub use dataset::{
    Dataset, Sample, Splits, open, open_for_evaluation, open_in_full, open_with_test,
};
pub(crate) use error::meant_file;
pub use error::{DataError, TwoRows};
pub use files::check_files;
pub use fingerprint::{Fingerprint, SplitList};
pub use image::{Colour, Samples, read_image};
pub use inspect::*;
pub use known::check_known;
pub use layout::FINDINGS;
pub use listing::{Listing, list_images};
pub use loader::{Epoch, Loader, LoaderConfig, SharedBatch, SharedBatches, upcoming};
pub use normalize::{check as check_normalize, constant_scale};
pub use opened::TableSeal;
pub use overlap::shared_images;
pub use overlay::{Heat, overlay};
pub use phantom::{PHANTOM_SIZES, PhantomSettings, PhantomState, ensure_phantom, untold};
pub use prepare::{Place, Resized, prepare};
pub use preview::{Preview, PreviewSettings, preview};
pub use random_arrays::{RandomSettings, check_random, write_random};
pub use recognise::{ClassFolders, Found, FoundArrays, FoundTable, Offer, OfferValues, recognise};
pub use resize::Fitted;
pub use sampler::Sampler;
pub use source::{check_labels, check_layouts};
pub use split::DEFAULT_FRACTION;
pub use spread::Numbers;
pub use standardize::Standardizer;
pub(crate) use table::text::{UnixLines, line_of};
pub use thumbnail::{Thumbnail, thumbnail};
