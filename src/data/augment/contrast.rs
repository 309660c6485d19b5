//! Distances from the mean level times a random factor.

use super::super::config::AugmentConfig;
use super::super::prepare::{Place, Resized};
use super::within;

/// Stretches by a factor between 1 − `contrast` and 1 + `contrast`.
pub(super) fn apply(image: &mut Resized, config: &AugmentConfig, place: Place) {
    if config.contrast > 0.0 {
        let factor = 1.0 + within(&mut place.stream("augment/contrast"), config.contrast);
        stretch(image, factor as f32);
    }
}

/// As torchvision's `adjust_contrast`; the mean is that of what the image fills.
pub(super) fn stretch(image: &mut Resized, factor: f32) {
    let (mut count, mut sum) = (0, 0.0);
    for row in image.inside() {
        count += row.len();
        sum += f64::from(total(row));
    }
    let offset = (1.0 - factor) * (sum / count as f64) as f32;
    for row in image.inside_mut() {
        row.iter_mut().for_each(|level| *level = (*level * factor + offset).clamp(0.0, 1.0));
    }
}

/// In sixteen sums side by side, which a processor adds at once.
fn total(row: &[f32]) -> f32 {
    let mut sums = [0.0; 16];
    let chunks = row.chunks_exact(16);
    let rest: f32 = chunks.remainder().iter().sum();
    for chunk in chunks {
        sums.iter_mut().zip(chunk).for_each(|(sum, level)| *sum += level);
    }
    sums.iter().sum::<f32>() + rest
}
