//! What the user writes under `[data]`.

mod augment;
mod cache;
mod image;
mod layouts;
mod sampling;
mod source;
mod validation;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use augment::*;
pub use cache::*;
pub use image::*;
pub use layouts::*;
pub use sampling::*;
pub use source::*;
pub use validation::*;

use crate::choice::Choice;

/// `[data]`: where the images and labels come from and how an image becomes a tensor.
///
/// Exactly one layout table (`[data.chexpert]`, `[data.csv]`, …) must be given, or several sources
/// as `[[data.sources]]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DataConfig {
    /// The size, channels, fit and scale of the images the model sees.
    pub image: ImageConfig,
    /// How images are set aside for validation.
    #[serde(default)]
    pub validation: ValidationConfig,
    /// A folder in CheXpert's layout: `train.csv`, perhaps `valid.csv`, and the images they name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chexpert: Option<ChexpertConfig>,
    /// A folder in MIMIC-CXR-JPG's or MIMIC-CXR's layout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mimic: Option<MimicConfig>,
    /// A folder in NIH ChestX-ray14's layout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nih: Option<NihConfig>,
    /// A folder in PadChest's layout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub padchest: Option<PadchestConfig>,
    /// A folder in VinDr-CXR's layout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vindr: Option<VindrConfig>,
    /// A folder in MURA's layout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mura: Option<MuraConfig>,
    /// Any table of images and labels: CSV, gzip'd CSV or Parquet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub csv: Option<CsvConfig>,
    /// NumPy arrays of images and targets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrays: Option<ArraysConfig>,
    /// Synthetic chest-like radiographs, written on first use and then read like any other data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phantom: Option<PhantomConfig>,
    /// Several data sets in one run, each supplying the labels it has; the others are masked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<SourceConfig>,
    /// Random changes to training images; none unless this table is given.
    #[serde(default)]
    pub augment: AugmentConfig,
    /// Which training images an epoch is made of, and in which order.
    #[serde(default)]
    pub sampler: Choice<SamplerConfig>,
    /// Leave out the last batch of a training epoch when it is not full.
    #[serde(default)]
    pub drop_last: bool,
    /// Where decoded and resized images are kept between epochs and runs.
    #[serde(default)]
    pub cache: Choice<CacheConfig>,
    /// What an image that cannot be read does: end the run, or be skipped, counted and listed.
    #[serde(default)]
    pub on_bad_image: OnBadImage,
    /// With `on_bad_image = "skip"`: more bad images than this end the run.
    #[serde(default = "default_bad_image_limit")]
    pub bad_image_limit: usize,
    /// Threads that decode images: all cores when absent, none (the training thread does it) for 0.
    /// Results do not depend on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<usize>,
    /// Batches prepared ahead of the model, at most.
    #[serde(default = "default_prefetch")]
    pub prefetch: usize,
    /// Give every image the labels of another one: a model trained so must not beat chance, which
    /// shows that labels do not leak.
    #[serde(default)]
    pub shuffle_labels: bool,
}

fn default_bad_image_limit() -> usize {
    100
}

fn default_prefetch() -> usize {
    4
}

/// What an image that cannot be read does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnBadImage {
    /// Ends the run, naming the file and its row.
    #[default]
    Stop,
    /// Is left out, counted, and listed in `skipped_images.csv` in the run folder.
    Skip,
}
