//! Mixup (Zhang et al. 2018, arXiv:1710.09412).

use super::super::batch::Batch;
use super::each_with_partner;

/// Each image becomes `share` of itself and the rest of its partner. Returns the share.
pub(super) fn apply(batch: &mut Batch, partner: usize, share: f32) -> f32 {
    each_with_partner(&mut batch.images, partner, |image, other| {
        let pixels = image.iter_mut().zip(other);
        pixels.for_each(|(pixel, other)| *pixel = *pixel * share + other * (1.0 - share));
    });
    share
}
