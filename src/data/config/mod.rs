//! What the user writes under `[data]`.

mod augment;
mod cache;
mod image;
mod layouts;
mod sampling;
mod source;
mod tables;
mod validation;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use augment::*;
pub use cache::*;
pub use image::*;
pub use layouts::*;
pub use sampling::*;
pub use source::*;
pub use tables::*;
pub use validation::*;

use crate::choice::Choice;

/// `[data]`: where the images and labels come from and how an image becomes a tensor.
///
/// Exactly one layout table (`[data.chexpert]`, `[data.csv]`, …) must be given, or several sources
/// as `[[data.sources]]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DataConfig {
    /// What every image becomes before the model sees it: its size, channels and scale.
    pub image: ImageConfig,
    /// Which images are set aside for validation.
    #[serde(default)]
    pub validation: ValidationConfig,
    /// The layout of a single data set.
    #[serde(flatten)]
    pub layout: LayoutTables,
    /// Several data sets in one run. Each is an entry `[[data.sources]]` with its layout's table,
    /// such as `[data.sources.csv]`. A data set supplies the labels that it has; the others are
    /// masked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<SourceConfig>,
    /// Random changes to training images; there are none unless this table is given.
    #[serde(default)]
    pub augment: AugmentConfig,
    /// Which training images an epoch is made of, and in which order.
    #[serde(default)]
    pub sampler: Choice<SamplerConfig>,
    /// Whether the last batch of a training epoch is left out when it is not full.
    #[serde(default)]
    pub drop_last: bool,
    /// Where decoded and resized images are kept between epochs and runs.
    #[serde(default)]
    pub cache: Choice<CacheConfig>,
    /// What happens to an image that cannot be read.
    #[serde(default)]
    pub on_bad_image: OnBadImage,
    /// How many bad images may be skipped under `on_bad_image = "skip"`; more end the run.
    #[serde(default = "default_bad_image_limit")]
    #[schemars(example = 10)]
    pub bad_image_limit: usize,
    /// How many threads decode images. All cores do when this is left out, and with 0 the training
    /// thread does it itself; no more than 32 for each core are started. Results do not depend on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = 8)]
    pub workers: Option<usize>,
    /// How many batches are prepared ahead of the model, at most; at least 1.
    #[serde(default = "default_prefetch")]
    #[schemars(example = 8)]
    #[schemars(range(min = 1))]
    pub prefetch: usize,
    /// Whether every image gets the labels of another one. A model that is trained so must not beat
    /// chance, which shows that labels do not leak.
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
    /// The run ends and names the file and its row.
    #[default]
    Stop,
    /// The image is left out, counted, and listed in `skipped_images.csv` in the run folder.
    Skip,
}
