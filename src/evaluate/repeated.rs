//! Metrics of images that count several times each, as resamples have them.

/// A metric of images, of each of which is told how often it counts, the value and the truth.
pub(super) type ErrorMetric = fn(&mut dyn Iterator<Item = (f64, f64, f64)>) -> Option<f64>;

/// The mean of `of` value and truth.
fn mean_of(
    images: &mut dyn Iterator<Item = (f64, f64, f64)>,
    of: impl Fn(f64, f64) -> f64,
) -> Option<f64> {
    let (sum, count) = images.fold((0.0, 0.0), |(sum, count), (times, value, truth)| {
        (sum + times * of(value, truth), count + times)
    });
    (count > 0.0).then(|| sum / count)
}

pub(super) fn mae(images: &mut dyn Iterator<Item = (f64, f64, f64)>) -> Option<f64> {
    mean_of(images, |value, truth| (value - truth).abs())
}

pub(super) fn rmse(images: &mut dyn Iterator<Item = (f64, f64, f64)>) -> Option<f64> {
    mean_of(images, |value, truth| (value - truth).powi(2)).map(f64::sqrt)
}

/// The squared difference from a truth that is 1 or 0.
pub(super) fn squared(images: &mut dyn Iterator<Item = (f64, f64, f64)>) -> Option<f64> {
    mean_of(images, |value, truth| (value - f64::from(u8::from(truth >= 0.5))).powi(2))
}

pub(super) fn r2(images: &mut dyn Iterator<Item = (f64, f64, f64)>) -> Option<f64> {
    let images: Vec<(f64, f64, f64)> = images.collect();
    let mean = mean_of(&mut images.iter().copied(), |_, truth| truth)?;
    let left = mean_of(&mut images.iter().copied(), |value, truth| (value - truth).powi(2))?;
    let all = mean_of(&mut images.iter().copied(), |_, truth| (truth - mean).powi(2))?;
    (all > 0.0).then(|| 1.0 - left / all)
}

/// What an image with these probabilities of the classes adds, whose class is the number told.
pub(super) type ClassMetric = fn(&[f64], usize) -> f64;

/// 1 where the class is given the greatest probability; of equal ones the first counts.
pub(super) fn right(probabilities: &[f64], truth: usize) -> f64 {
    let above = |best, class| if probabilities[class] > probabilities[best] { class } else { best };
    f64::from(u8::from((0..probabilities.len()).fold(0, above) == truth))
}

pub(super) fn class_brier(probabilities: &[f64], truth: usize) -> f64 {
    let square =
        |(class, value): (usize, &f64)| (value - f64::from(u8::from(class == truth))).powi(2);
    probabilities.iter().enumerate().map(square).sum()
}
