//! What the user writes under `[data]`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[data]`: where the images and labels come from and how an image becomes a tensor.
///
/// Exactly one layout table (`[data.chexpert]`, `[data.phantom]`) must be given.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DataConfig {
    /// The size, channels and fit of the images the model sees.
    pub image: ImageConfig,
    /// How images are set aside for validation.
    #[serde(default)]
    pub validation: ValidationConfig,
    /// A folder in CheXpert's layout: `train.csv`, perhaps `valid.csv`, and the images they name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chexpert: Option<ChexpertConfig>,
    /// Synthetic chest-like radiographs, written on first use and then read like any other data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phantom: Option<PhantomConfig>,
    /// Random changes to training images; none unless this table is given.
    #[serde(default)]
    pub augment: AugmentConfig,
    /// What an image that cannot be read does: end the run, or be skipped, counted and listed.
    #[serde(default)]
    pub on_bad_image: OnBadImage,
    /// With `on_bad_image = "skip"`: more bad images than this end the run.
    #[serde(default = "default_bad_image_limit")]
    pub bad_image_limit: usize,
    /// Threads that decode images; all cores when absent. Results do not depend on it.
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

/// `data.image`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ImageConfig {
    /// Height and width in pixels, 32 or more each.
    pub size: [usize; 2],
    /// 1 (grey) or 3 (grey repeated, for weights trained on colour images).
    #[serde(default = "default_channels")]
    pub channels: usize,
    /// How an image of another shape is brought to `size`.
    #[serde(default)]
    pub fit: Fit,
}

fn default_channels() -> usize {
    1
}

/// How an image of another shape is brought to the wanted size.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Fit {
    /// Scaled to fit inside, the rest black.
    #[default]
    Letterbox,
    /// Scaled to cover, the centre kept.
    Crop,
    /// Scaled in each direction on its own.
    Stretch,
}

/// `data.validation`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ValidationConfig {
    /// The share of patients set aside for validation; the layout's own list is used when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fraction: Option<f64>,
    /// What is kept whole by the split: every image of a patient is on one side.
    pub by: SplitBy,
}

impl Default for ValidationConfig {
    fn default() -> Self {
        Self { fraction: None, by: SplitBy::Patient }
    }
}

/// What a split keeps whole.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SplitBy {
    /// All images of a patient are on one side.
    #[default]
    Patient,
}

/// `[data.chexpert]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChexpertConfig {
    /// The folder that holds `train.csv`.
    pub root: PathBuf,
    /// What a label of −1 (uncertain) becomes in training, for all labels or per label. In
    /// validation such labels count as missing.
    #[serde(default)]
    pub uncertain: Uncertain,
    /// The views used; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub views: Option<Vec<View>>,
}

/// `[data.phantom]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PhantomConfig {
    /// The folder; made on first use by `trainer data phantom` with the settings below.
    pub root: PathBuf,
    /// How many patients, each with one to four images.
    pub patients: usize,
    /// Height and width of the images in pixels, 32 to 3000.
    pub size: usize,
    /// The same seed gives the same files, byte for byte.
    #[serde(default)]
    pub seed: u64,
    /// What a label of −1 (uncertain) becomes in training, for all labels or per label. In
    /// validation such labels count as missing.
    #[serde(default)]
    pub uncertain: Uncertain,
    /// The views used; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub views: Option<Vec<View>>,
}

/// A radiograph's view, as CheXpert names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum View {
    /// Postero-anterior.
    #[serde(rename = "PA")]
    Pa,
    /// Antero-posterior.
    #[serde(rename = "AP")]
    Ap,
    /// From the side.
    Lateral,
}

/// What becomes of an uncertain label (−1) in training.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum UncertainPolicy {
    /// As if it were missing.
    #[default]
    Ignore,
    /// Negative.
    Zeros,
    /// Positive.
    Ones,
    /// A soft label drawn uniformly between the two numbers, the same one every epoch
    /// (Pham et al. 2019, arXiv:1911.06475).
    Smooth([f64; 2]),
}

/// One policy for all labels, or one per label with a `default`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Uncertain {
    /// The same for every label.
    All(UncertainPolicy),
    /// By label; the key `default` stands for the labels not named (`"ignore"` when absent).
    PerLabel(BTreeMap<String, UncertainPolicy>),
}

impl Default for Uncertain {
    fn default() -> Self {
        Self::All(UncertainPolicy::Ignore)
    }
}

/// `[data.augment]`: random changes to training images, drawn from (seed, epoch, image).
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AugmentConfig {
    /// Rotation between −this and this many degrees, 0 to 180.
    pub rotate_degrees: f64,
    /// Shift by up to this share of the image in each direction, 0 to 0.5.
    pub translate: f64,
    /// Scaling by a factor between 1 − this and 1 + this, 0 to 0.5.
    pub scale: f64,
    /// Mirroring left to right, with this probability.
    pub horizontal_flip: f64,
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
