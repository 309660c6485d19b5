//! Area under the curve of precision over recall.

use super::Example;
use super::ranking::Ranking;

/// Average precision, Σ (recall step × precision) over the thresholds, as scikit-learn's
/// `average_precision_score`: no interpolation, which would be too optimistic (Davis and Goadrich
/// 2006). `None` without positives or without negatives.
pub(super) fn auprc(examples: &[Example]) -> Option<f64> {
    let groups = Ranking::new(examples)?.tied(|_| 1);
    let (mut positives, mut above, mut sum) = (0, 0, 0.0);
    for group in groups.iter().rev() {
        positives += group.positives;
        above += group.positives + group.negatives;
        sum += group.positives as f64 * (positives as f64 / above as f64);
    }
    (positives > 0 && positives < above).then(|| sum / positives as f64)
}
