//! Levels times a random factor.

use super::super::config::AugmentConfig;
use super::super::prepare::{Place, Resized};
use super::within;

/// Multiplies by a factor between 1 − `brightness` and 1 + `brightness`.
pub(super) fn apply(image: &mut Resized, config: &AugmentConfig, place: Place) {
    if config.brightness > 0.0 {
        let factor = 1.0 + within(&mut place.stream("augment/brightness"), config.brightness);
        brighten(image, factor as f32);
    }
}

/// As torchvision's `adjust_brightness`.
pub(super) fn brighten(image: &mut Resized, factor: f32) {
    for row in image.inside_mut() {
        row.iter_mut().for_each(|level| *level = (*level * factor).clamp(0.0, 1.0));
    }
}
