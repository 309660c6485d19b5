//! `data.image`: what an image becomes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `data.image`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ImageConfig {
    /// Height and width in pixels: 32 or more each, or 1 or more for `[data.arrays]`.
    #[schemars(example = [320, 320])]
    pub size: [usize; 2],
    /// 1 (grey; colours become luma) or 3 (red, green and blue, for weights trained on colour images;
    /// grey is repeated). For `[data.arrays]` it is the number of the array's channels.
    #[serde(default = "default_channels")]
    #[schemars(example = 3)]
    pub channels: usize,
    /// How an image of another shape is brought to `size`.
    #[serde(default)]
    pub fit: Fit,
    /// How grey levels, from 0 (black) to 1 (white), become the numbers that the model sees: by
    /// name, or by numbers of your own. Where this is left out and `model.init` names weights of
    /// torchxrayvision's, it is `"xrv"`.
    #[serde(default)]
    #[schemars(example = &"imagenet")]
    pub normalize: Normalize,
}

fn default_channels() -> usize {
    1
}

/// How an image of another shape is brought to the wanted size.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Fit {
    /// The image is scaled to fit inside; the rest is black, or under `per_image` the image's mean.
    #[default]
    Letterbox,
    /// The image is scaled to cover everything; its centre is kept.
    Crop,
    /// The image is scaled in each direction on its own.
    Stretch,
}

/// How grey levels become the numbers that the model sees.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Normalize {
    /// By name.
    Named(NormalizeKind),
    /// By numbers.
    Numbers(NormalizeNumbers),
}

impl Default for Normalize {
    fn default() -> Self {
        Self::Named(NormalizeKind::Unit)
    }
}

/// A scale without settings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NormalizeKind {
    /// Levels stay as they are: 0 (black) to 1 (white).
    #[default]
    Unit,
    /// Each image gets the mean 0 and the standard deviation 1, both measured before random changes
    /// and without the bars of a letterbox. The bars, and what a rotation or shift uncovers, become 0,
    /// the mean.
    PerImage,
    /// Levels become what torchvision's models for ImageNet expect: less the means of the three
    /// channels, 0.485, 0.456 and 0.406, and divided by their standard deviations, 0.229, 0.224 and
    /// 0.225. Images of one channel get the averages of both, 0.449 and 0.226.
    Imagenet,
    /// Levels become −1024 (black) to 1024 (white), as torchxrayvision's models expect (Cohen et
    /// al. 2022, arXiv:2111.00595).
    Xrv,
}

/// A scale by numbers: `{ mean, std }`, `{ percentile }`, or all three, percentiles first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NormalizeNumbers {
    /// What is taken off the levels: one number, or one for each channel. It needs `std`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = [0.485, 0.456, 0.406])]
    pub mean: Option<PerChannel>,
    /// What the difference is divided by: one number, or one for each channel. It needs `mean`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = 0.25)]
    pub std: Option<PerChannel>,
    /// The percentiles of each image that become 0 and 1, before `mean` and `std`, before random
    /// changes and without the bars of a letterbox. What lies outside is clipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = [0.5, 99.5])]
    pub percentile: Option<[f64; 2]>,
}

/// One number for all channels, or one for each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum PerChannel {
    /// The same for all.
    All(f64),
    /// One for each.
    Each(Vec<f64>),
}
