//! CutMix (Yun et al. 2019, arXiv:1905.04899).

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::super::area::Area;
use super::super::batch::Batch;
use super::each_with_partner;

/// A rectangle of the image's shape with 1 − `share` of its area, around a random pixel; what would
/// lie outside is cut off.
pub(super) fn hole(share: f64, shape: &[usize; 4], random: &mut ChaCha8Rng) -> Area {
    let [_, _, height, width] = *shape;
    let half = 0.5 * (1.0 - share).sqrt();
    let mut ends = |length: usize| {
        let centre = random.random_range(0..length);
        let reach = (half * length as f64) as usize;
        (centre.saturating_sub(reach), (centre + reach).min(length))
    };
    let ((left, right), (top, bottom)) = (ends(width), ends(height));
    Area { top, left, height: bottom - top, width: right - left }
}

/// Fills the hole in each image from its partner. Returns the share of the image that is left.
pub(super) fn apply(batch: &mut Batch, partner: usize, hole: Area) -> f32 {
    let [_, _, height, width] = batch.shape;
    each_with_partner(&mut batch.images, partner, |image, other| {
        let planes = image.chunks_exact_mut(height * width).zip(other.chunks_exact(height * width));
        for (plane, other) in planes {
            let rows = hole.rows_mut(plane, width).zip(hole.rows(other, width));
            rows.for_each(|(row, other)| row.copy_from_slice(other));
        }
    });
    1.0 - hole.pixels() as f32 / (height * width) as f32
}
