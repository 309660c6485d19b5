//! Mixing: partners, shares, labels.

use super::*;
use crate::data::batch::Targets;

/// A batch of images of 2 planes of 4×6, each of one number, with a head of two labels, one of three
/// classes and one number.
fn batch(count: usize) -> Batch {
    let known = |place: usize| f32::from(u8::from(place % 5 != 3));
    let masked = |values: Vec<f32>, width: usize| {
        let mask: Vec<f32> = (0..values.len()).map(known).collect();
        let values = values.iter().zip(&mask).map(|(value, mask)| value * mask).collect();
        Targets { values, mask, width }
    };
    Batch {
        images: (0..count).map(|image| vec![image as f32 + 1.0; 48]).collect(),
        shape: [count, 2, 4, 6],
        targets: vec![
            masked((0..2 * count).map(|place| (place % 3 % 2) as f32).collect(), 2),
            masked((0..count).map(|place| (place % 3) as f32).collect(), 1),
            masked((0..count).map(|place| place as f32 * 10.0).collect(), 1),
        ],
        indices: (0..count).collect(),
        skipped: Vec::new(),
    }
}

const CLASSES: [Option<usize>; 3] = [None, Some(3), None];

fn config(text: &str) -> AugmentConfig {
    toml::from_str(text).expect("reads")
}

fn mixed(text: &str, count: usize, number: usize) -> Batch {
    mix(batch(count), &CLASSES, &config(text), Place { seed: 4, epoch: 2, number })
}

/// The partner of each image and its own share, read off its pixels: each is the image's own
/// number, its partner's or a mixture.
fn read_off(mixed: &Batch, partner: usize) -> Vec<f64> {
    let count = mixed.shape[0];
    let images = mixed.images.iter().enumerate();
    images
        .map(|(image, pixels)| {
            let own = image as f64 + 1.0;
            let other = ((image + partner) % count) as f64 + 1.0;
            let mean = pixels.iter().map(|&pixel| f64::from(pixel)).sum::<f64>() / 48.0;
            (mean - other) / (own - other)
        })
        .collect()
}

/// The first partner with which every image has the same share: the only one, but where images are
/// left as they were.
fn partner_and_share(mixed: &Batch) -> (usize, f64) {
    let count = mixed.shape[0];
    let fits = |&partner: &usize| {
        let shares = read_off(mixed, partner);
        shares.iter().all(|share| (share - shares[0]).abs() < 1e-4)
    };
    let fitting: Vec<usize> = (1..count).filter(fits).collect();
    assert!(!fitting.is_empty(), "the images have no common share");
    (fitting[0], read_off(mixed, fitting[0])[0])
}

#[test]
fn images_and_labels_are_mixed_by_the_same_share_with_the_same_partner() {
    let mut whole = 21;
    for text in ["mixup = 1.0", "cutmix = 1.0", "mixup = 1.0\ncutmix = 1.0"] {
        for (count, number) in [(2, 0), (3, 1), (6, 2), (6, 3), (7, 4), (12, 5), (12, 6)] {
            let plain = batch(count);
            let mixed = mixed(text, count, number);
            let (partner, share) = partner_and_share(&mixed);
            if share > 0.9999 {
                continue;
            }
            whole -= 1;
            let rest = 1.0 - share;
            for image in 0..count {
                let other = (image + partner) % count;
                for (head, classes) in CLASSES.iter().enumerate() {
                    let (before, after) = (&plain.targets[head], &mixed.targets[head]);
                    let width = before.width;
                    for label in 0..width {
                        let (a, b) = (image * width + label, other * width + label);
                        let known = before.mask[a] != 0.0 && before.mask[b] != 0.0;
                        let (a, b) = (before.values[a], before.values[b]);
                        let classes = classes.unwrap_or(0);
                        for class in 0..classes.max(1) {
                            let (place, expected) = if classes > 0 {
                                let of = |truth: f32| f64::from(u8::from(truth as usize == class));
                                (image * classes + class, share * of(a) + rest * of(b))
                            } else {
                                (image * width + label, share * f64::from(a) + rest * f64::from(b))
                            };
                            let expected = if known { expected } else { 0.0 };
                            let value = f64::from(after.values[place]);
                            assert!((value - expected).abs() < 1e-3, "{value} for {expected}");
                            assert_eq!(after.mask[place] != 0.0, known);
                        }
                    }
                }
            }
        }
    }
    assert!(whole < 6, "{whole} batches were left as they were");
}

#[test]
fn a_cut_has_the_share_of_the_area_that_the_labels_have() {
    let mut holes = 0;
    for number in 0..40 {
        let mixed = mixed("cutmix = 1.0", 5, number);
        for (image, pixels) in mixed.images.iter().enumerate() {
            let own = image as f32 + 1.0;
            let (one, other) = pixels.split_at(24);
            assert_eq!(one, other, "the hole is the same in all planes");
            // The hole is one rectangle of one partner.
            let rows: Vec<Vec<usize>> = one
                .chunks_exact(6)
                .map(|row| (0..6).filter(|&column| row[column] != own).collect())
                .filter(|row: &Vec<usize>| !row.is_empty())
                .collect();
            assert!(rows.windows(2).all(|pair| pair[0] == pair[1]));
            let mut others: Vec<f32> = one.iter().copied().filter(|&pixel| pixel != own).collect();
            others.dedup();
            assert!(others.len() <= 1);
            holes += others.len();
        }
    }
    assert!(holes > 60, "{holes}");
}

#[test]
fn nothing_happens_without_a_setting_or_to_a_single_image() {
    assert!(mixed("rotate_degrees = 5", 6, 1) == batch(6));
    assert!(mixed("mixup = 1.0", 1, 1) == batch(1));
    assert!(mixed("mixup = 1.0", 0, 1) == batch(0));
}

#[test]
fn the_same_batch_is_mixed_the_same_and_another_otherwise() {
    let at = |place| mix(batch(6), &CLASSES, &config("mixup = 1.0"), place);
    let place = Place { seed: 1, epoch: 1, number: 1 };
    assert!(at(place) == at(place));
    for other in
        [Place { number: 2, ..place }, Place { epoch: 2, ..place }, Place { seed: 2, ..place }]
    {
        assert!(at(place) != at(other));
    }
}

#[test]
fn with_both_settings_each_batch_has_one_of_the_two() {
    let mut cuts = 0;
    for number in 0..400 {
        let place = Place { seed: 8, epoch: 0, number };
        let both = mix(batch(6), &CLASSES, &config("mixup = 1.0\ncutmix = 0.5"), place);
        let mixup = mix(batch(6), &CLASSES, &config("mixup = 1.0"), place);
        let cutmix = mix(batch(6), &CLASSES, &config("cutmix = 0.5"), place);
        assert!(both == mixup || both == cutmix);
        cuts += usize::from(both == cutmix);
    }
    // Five standard deviations around 200.
    assert!((150..=250).contains(&cuts), "{cuts}");
}

#[test]
fn shares_are_beta_distributed_whatever_the_setting() {
    // The variance of Beta(α, α) is 1/(4(2α + 1)).
    for alpha in [1e-300, 1e-3, 0.2, 1.0, 5.0, 100.0] {
        let mut random = crate::random::stream(2, "test", &[]);
        let shares: Vec<f64> = (0..20000).map(|_| share(alpha, &mut random)).collect();
        assert!(shares.iter().all(|share| (0.0..=1.0).contains(share)));
        let count = shares.len() as f64;
        let mean = shares.iter().sum::<f64>() / count;
        let variance = shares.iter().map(|share| (share - 0.5).powi(2)).sum::<f64>() / count;
        let expected = 0.25 / (2.0 * alpha + 1.0);
        assert!((mean - 0.5).abs() < 5.0 * (expected / count).sqrt(), "{alpha}: {mean}");
        assert!((variance / expected - 1.0).abs() < 0.05, "{alpha}: {variance}, {expected}");
    }
}
