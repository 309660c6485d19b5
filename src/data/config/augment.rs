//! `[data.augment]`: random changes to training images.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[data.augment]`: random changes to training images, drawn from (seed, epoch, image). Grey levels
/// are 0 (black) to 1 (white) here, whatever `data.image.normalize` makes of them afterwards.
/// `trainer data preview` shows what they do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AugmentConfig {
    /// Rotation between −this and this many degrees, 0 to 180.
    pub rotate_degrees: f64,
    /// Shift by up to this share of the image in each direction, 0 to 0.5.
    pub translate: f64,
    /// Scaling by a factor between 1 − this and 1 + this, 0 to 0.5.
    pub scale: f64,
    /// Shear along the rows between −this and this many degrees, 0 to 45.
    pub shear_degrees: f64,
    /// Mirroring left to right, with this probability.
    pub horizontal_flip: f64,
    /// A random part of the resized image, enlarged to the whole (Szegedy et al. 2015, arXiv:1409.4842).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub random_resized_crop: Option<RandomResizedCrop>,
    /// Levels times a factor between 1 − this and 1 + this, 0 to 1.
    pub brightness: f64,
    /// Distances from the mean level times a factor between 1 − this and 1 + this, 0 to 1.
    pub contrast: f64,
    /// Levels to the power of a factor between 1/(1 + this) and 1 + this, 0 to 1.
    pub gamma: f64,
    /// Gaussian noise of a standard deviation between 0 and this, in levels, 0 to 1.
    pub noise: f64,
    /// Gaussian blur of a standard deviation between 0 and this many pixels, 0 to 10.
    pub blur: f64,
    /// Contrast-limited adaptive histogram equalisation (Zuiderveld 1994).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clahe: Option<Clahe>,
    /// A rectangle painted over (Zhong et al. 2017, arXiv:1708.04896).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub random_erasing: Option<RandomErasing>,
    /// Blending with another image of the batch and its labels by a share drawn from
    /// Beta(this, this) (Zhang et al. 2018, arXiv:1710.09412), 0 to 100; 0 for none. A label that
    /// only one of the two images has is masked.
    pub mixup: f64,
    /// A rectangle from another image of the batch, and its share of that image's labels, the share
    /// drawn from Beta(this, this) (Yun et al. 2019, arXiv:1905.04899), 0 to 100; 0 for none. With `mixup`
    /// too, each batch has one of the two.
    pub cutmix: f64,
}

/// `[data.augment.random_resized_crop]`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RandomResizedCrop {
    /// The smallest and largest share of the image's area.
    pub area: [f64; 2],
    /// The smallest and largest width to height.
    pub ratio: [f64; 2],
}

impl Default for RandomResizedCrop {
    fn default() -> Self {
        Self { area: [0.08, 1.0], ratio: [3.0 / 4.0, 4.0 / 3.0] }
    }
}

/// `[data.augment.clahe]`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Clahe {
    /// The probability that an image is equalised.
    pub probability: f64,
    /// The steepest allowed slope of the mapping, 1 to 256.
    pub clip_limit: f64,
    /// Tiles down and across, 1 to 64 each.
    pub tiles: [usize; 2],
}

impl Default for Clahe {
    fn default() -> Self {
        Self { probability: 0.5, clip_limit: 2.0, tiles: [8, 8] }
    }
}

/// `[data.augment.random_erasing]`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RandomErasing {
    /// The probability that a rectangle is erased.
    pub probability: f64,
    /// The smallest and largest share of the image's area.
    pub area: [f64; 2],
    /// The smallest and largest width to height.
    pub ratio: [f64; 2],
    /// The level it is painted with, 0 to 1.
    pub value: f64,
}

impl Default for RandomErasing {
    fn default() -> Self {
        Self { probability: 0.5, area: [0.02, 0.33], ratio: [0.3, 3.3], value: 0.0 }
    }
}
