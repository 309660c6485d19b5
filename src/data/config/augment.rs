//! `[data.augment]`: random changes to training images.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[data.augment]`: random changes to training images, drawn from (seed, epoch, image). Grey levels
/// are 0 (black) to 1 (white) here, whatever `data.image.normalize` makes of them afterwards.
/// `trainer data preview` shows what they do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AugmentConfig {
    /// The image is rotated by a random angle of up to this many degrees to either side; from 0 to
    /// 180.
    #[schemars(example = 10.0)]
    pub rotate_degrees: f64,
    /// The image is shifted at random by up to this share of its size in each direction; from 0 to
    /// 0.5.
    #[schemars(example = 0.05)]
    pub translate: f64,
    /// The image is scaled by a random factor between 1 − `scale` and 1 + `scale`; from 0 to 0.5.
    #[schemars(example = 0.1)]
    pub scale: f64,
    /// The image is sheared along its rows by a random angle of up to this many degrees to either
    /// side; from 0 to 45.
    #[schemars(example = 5.0)]
    pub shear_degrees: f64,
    /// The probability that the image is mirrored left to right; from 0 to 1.
    #[schemars(example = 0.5)]
    pub horizontal_flip: f64,
    /// A random part of the resized image is enlarged to the whole (Szegedy et al. 2015,
    /// arXiv:1409.4842), where this table is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub random_resized_crop: Option<RandomResizedCrop>,
    /// Levels are multiplied by a random factor between 1 − `brightness` and 1 + `brightness`; from
    /// 0 to 1.
    #[schemars(example = 0.2)]
    pub brightness: f64,
    /// Distances from the mean level are multiplied by a random factor between 1 − `contrast` and 1
    /// + `contrast`; from 0 to 1.
    #[schemars(example = 0.2)]
    pub contrast: f64,
    /// Levels are raised to a random power between 1 / (1 + `gamma`) and 1 + `gamma`; from 0 to 1.
    #[schemars(example = 0.2)]
    pub gamma: f64,
    /// Gaussian noise is added, with a random standard deviation of up to this many levels (white
    /// is 1); from 0 to 1.
    #[schemars(example = 0.02)]
    pub noise: f64,
    /// The image is blurred by a Gaussian with a random standard deviation of up to this many
    /// pixels; from 0 to 10.
    #[schemars(example = 1.0)]
    pub blur: f64,
    /// Contrast-limited adaptive histogram equalisation (Zuiderveld 1994), where this table is
    /// given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clahe: Option<Clahe>,
    /// A rectangle is painted over (Zhong et al. 2017, arXiv:1708.04896), where this table is
    /// given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub random_erasing: Option<RandomErasing>,
    /// Images of a batch and their labels are blended in pairs, by a share drawn from Beta(`mixup`,
    /// `mixup`) (Zhang et al. 2018, arXiv:1710.09412); from 0 (never) to 100. A label that only one
    /// of the two images has is masked.
    #[schemars(example = 0.2)]
    pub mixup: f64,
    /// A rectangle of each image comes from another image of the batch, and so does its share of
    /// the labels; the share is drawn from Beta(`cutmix`, `cutmix`) (Yun et al. 2019,
    /// arXiv:1905.04899); from 0 (never) to 100. With `mixup` too, each batch has one of the two.
    #[schemars(example = 1.0)]
    pub cutmix: f64,
}

/// `[data.augment.random_resized_crop]`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RandomResizedCrop {
    /// The smallest and the largest share of the image's area.
    #[schemars(example = [0.5, 1.0])]
    pub area: [f64; 2],
    /// The smallest and the largest ratio of width to height.
    #[schemars(example = [0.9, 1.1])]
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
    #[schemars(example = 1.0)]
    pub probability: f64,
    /// The steepest slope that the mapping of levels may have; from 1 to 256.
    #[schemars(example = 4.0)]
    pub clip_limit: f64,
    /// How many tiles there are down and across; from 1 to 64 each.
    #[schemars(example = [4, 4])]
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
    #[schemars(example = 0.25)]
    pub probability: f64,
    /// The smallest and the largest share of the image's area.
    #[schemars(example = [0.02, 0.2])]
    pub area: [f64; 2],
    /// The smallest and the largest ratio of width to height.
    #[schemars(example = [0.5, 2.0])]
    pub ratio: [f64; 2],
    /// The level that it is painted with; from 0 (black) to 1 (white).
    #[schemars(example = 0.5)]
    pub value: f64,
}

impl Default for RandomErasing {
    fn default() -> Self {
        Self { probability: 0.5, area: [0.02, 0.33], ratio: [0.3, 3.3], value: 0.0 }
    }
}
