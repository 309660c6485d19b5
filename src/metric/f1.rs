//! The harmonic mean of precision and recall.

use super::Example;

/// 2·TP / (2·TP + FP + FN); `None` without positives, where recall is undefined.
///
/// Whether it is defined depends on the labels alone. (scikit-learn gives 0 to a class that never
/// occurs, so that its mean over classes moves with false positives of such classes.)
pub(super) fn f1(examples: &[Example]) -> Option<f64> {
    let count = |wanted: fn(&Example) -> bool| examples.iter().filter(|e| wanted(e)).count() as f64;
    let found = count(|example| example.predicted && example.positive);
    let predicted = count(|example| example.predicted);
    let positives = count(|example| example.positive);
    (positives > 0.0).then(|| 2.0 * found / (predicted + positives))
}
