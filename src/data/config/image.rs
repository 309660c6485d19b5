//! `data.image`: what an image becomes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `data.image`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ImageConfig {
    /// Height and width in pixels, 32 or more each (for `[data.arrays]` 1 or more).
    pub size: [usize; 2],
    /// 1 (grey; colours become luma) or 3 (red, green and blue; grey is repeated, for weights trained on
    /// colour images). For `[data.arrays]` the channels of the array.
    #[serde(default = "default_channels")]
    pub channels: usize,
    /// How an image of another shape is brought to `size`.
    #[serde(default)]
    pub fit: Fit,
    /// How grey levels become the numbers that the model sees.
    #[serde(default)]
    pub normalize: Normalize,
}

fn default_channels() -> usize {
    1
}

/// How an image of another shape is brought to the wanted size.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Fit {
    /// Scaled to fit inside, the rest black (under `per_image` the image's mean).
    #[default]
    Letterbox,
    /// Scaled to cover, the centre kept.
    Crop,
    /// Scaled in each direction on its own.
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
    /// 0 (black) to 1 (white).
    #[default]
    Unit,
    /// Each image to mean 0 and standard deviation 1. Both are measured before random changes, without
    /// a letterbox's bars. The bars, and what a rotation or shift uncovers, become 0, the mean.
    PerImage,
    /// −1024 (black) to 1024 (white), as torchxrayvision's models expect (Cohen et al. 2022,
    /// arXiv:2111.00595).
    Xrv,
}

/// A scale by numbers: `{ mean, std }`, `{ percentile }`, or all three, percentiles first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NormalizeNumbers {
    /// Subtracted from the levels of 0 to 1, with `std`: one number, or one per channel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean: Option<PerChannel>,
    /// What the difference is divided by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub std: Option<PerChannel>,
    /// The percentiles of each image that become 0 and 1, before random changes and not counting a
    /// letterbox's bars; what lies outside is clipped.
    #[serde(skip_serializing_if = "Option::is_none")]
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
