//! Images of a batch mixed with others of it, and their labels with theirs.
//!
//! Partner and share are drawn once a batch from (seed, epoch, batch). Each image's partner is the
//! one a random number of places further on, so every image is once the first and once the second.

mod cutmix;
mod labels;
mod mixup;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Beta, Distribution};

use self::labels::mix_labels;
use super::batch::Batch;
use super::config::AugmentConfig;
use super::prepare::Place;

/// Mixes a training batch as `config` says; `classes` is the number of classes of each head that is
/// `multiclass`. Nothing happens without a setting, or to fewer than two images.
///
/// With both settings each batch is mixed by one of the two, each as often.
pub(super) fn mix(
    mut batch: Batch,
    classes: &[Option<usize>],
    config: &AugmentConfig,
    place: Place,
) -> Batch {
    let count = batch.shape[0];
    if count < 2 || (config.mixup <= 0.0 && config.cutmix <= 0.0) {
        return batch;
    }
    let both = config.mixup > 0.0 && config.cutmix > 0.0;
    let cuts = match both {
        true => place.stream("mix").random::<bool>(),
        false => config.cutmix > 0.0,
    };
    let (purpose, alpha) = if cuts { ("cutmix", config.cutmix) } else { ("mixup", config.mixup) };
    let mut random = place.stream(purpose);
    let partner = random.random_range(1..count);
    let share = share(alpha, &mut random);
    let share = match cuts {
        true => {
            let hole = cutmix::hole(share, &batch.shape, &mut random);
            cutmix::apply(&mut batch, partner, hole)
        }
        false => mixup::apply(&mut batch, partner, share as f32),
    };
    for (head, classes) in batch.targets.iter_mut().zip(classes) {
        *head = mix_labels(head, *classes, partner, share);
    }
    batch
}

/// The first image's share, drawn from Beta(`alpha`, `alpha`).
fn share(alpha: f64, random: &mut ChaCha8Rng) -> f64 {
    // Both numbers behind the share underflow where alpha is next to 0: it is then 0 or 1.
    match Beta::new(alpha, alpha).map(|beta| beta.sample(random)) {
        Ok(share) if share.is_finite() => share,
        _ => f64::from(u8::from(random.random::<bool>())),
    }
}

/// Calls `change(image, other)` for every image with the one `partner` places further on as it was
/// before any change.
fn each_with_partner(
    images: &mut [Vec<f32>],
    partner: usize,
    mut change: impl FnMut(&mut [f32], &[f32]),
) {
    let count = images.len();
    let mut changed = vec![false; count];
    for start in 0..count {
        if changed[start] {
            continue;
        }
        // Going from partner to partner leads back here; only the first must be remembered.
        let first = images[start].clone();
        let mut at = start;
        loop {
            changed[at] = true;
            let next = (at + partner) % count;
            if next == start {
                change(&mut images[at], &first);
                break;
            }
            let [image, other] =
                images.get_disjoint_mut([at, next]).expect("they are two of the images");
            change(image, other);
            at = next;
        }
    }
}

#[cfg(test)]
mod tests;
