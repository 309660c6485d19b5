//! Gaussian blur.

use rand::RngExt;

use super::super::config::AugmentConfig;
use super::super::prepare::{Place, Resized};

/// Blurs by a standard deviation between 0 and `blur` pixels.
pub(super) fn apply(image: &mut Resized, config: &AugmentConfig, place: Place) {
    if config.blur > 0.0 {
        let deviation = config.blur * place.stream("augment/blur").random::<f64>();
        soften(image, deviation);
    }
}

/// As torchvision's `gaussian_blur` with a kernel that reaches three standard deviations: the image
/// is mirrored at its borders (those of what it fills).
pub(super) fn soften(image: &mut Resized, deviation: f64) {
    // The weight of the next pixel is below e⁻⁵⁰: 32-bit numbers would not change.
    if deviation < 0.1 {
        return;
    }
    let weights = weights(deviation);
    let (content, width) = (image.content, image.size[1]);
    for plane in image.planes_mut() {
        let across: Vec<Vec<f32>> =
            content.rows(plane, width).map(|row| along(row, &weights)).collect();
        for (place, row) in content.rows_mut(plane, width).enumerate() {
            let near = |distance: isize| {
                across[mirrored(place as isize + distance, across.len())].as_slice()
            };
            scaled(row, near(0), weights[0]);
            for (distance, &weight) in (1..).zip(&weights[1..]) {
                add(row, near(-distance), near(distance), weight);
            }
        }
    }
}

/// From the middle outwards; with both sides they add up to 1.
fn weights(deviation: f64) -> Vec<f32> {
    let reach = (3.0 * deviation).ceil() as i32;
    let density = |distance: i32| (-0.5 * (f64::from(distance) / deviation).powi(2)).exp();
    let sum: f64 = (-reach..=reach).map(density).sum();
    (0..=reach).map(|distance| (density(distance) / sum) as f32).collect()
}

/// A row blurred along itself.
fn along(row: &[f32], weights: &[f32]) -> Vec<f32> {
    let reach = weights.len() - 1;
    let padded: Vec<f32> = (0..row.len() + 2 * reach)
        .map(|place| row[mirrored(place as isize - reach as isize, row.len())])
        .collect();
    let near = |start: usize| &padded[start..start + row.len()];
    let mut blurred = vec![0.0; row.len()];
    scaled(&mut blurred, row, weights[0]);
    for (distance, &weight) in weights.iter().enumerate().skip(1) {
        add(&mut blurred, near(reach - distance), near(reach + distance), weight);
    }
    blurred
}

fn scaled(row: &mut [f32], of: &[f32], weight: f32) {
    row.iter_mut().zip(of).for_each(|(level, of)| *level = of * weight);
}

fn add(row: &mut [f32], one: &[f32], other: &[f32], weight: f32) {
    let pairs = one.iter().zip(other);
    row.iter_mut().zip(pairs).for_each(|(level, (one, other))| *level += (one + other) * weight);
}

/// The place within `length` that `place` beyond its ends is the mirror image of; the ends
/// themselves are not repeated.
pub(super) fn mirrored(place: isize, length: usize) -> usize {
    let period = (2 * length as isize - 2).max(1);
    let place = place.rem_euclid(period);
    place.min(period - place).min(length as isize - 1) as usize
}
