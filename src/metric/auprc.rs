//! Area under the curve of precision over recall.

use super::Example;
use super::ranking::{Ranking, Tied};

/// Average precision, Σ (recall step × precision) over the thresholds, as scikit-learn's
/// `average_precision_score`: no interpolation, which would be too optimistic (Davis and Goadrich
/// 2006). `None` without positives or without negatives.
pub(super) fn auprc(examples: &[Example]) -> Option<f64> {
    of_groups(&Ranking::new(examples)?.tied(|_| 1))
}

/// [`auprc`] from groups of equal scores, ascending.
pub(crate) fn of_groups(groups: &[Tied]) -> Option<f64> {
    let (mut positives, mut above, mut sum) = (0, 0, 0.0);
    // A group without positives adds nothing, and one that no resample drew has no precision.
    for group in groups.iter().rev() {
        positives += group.positives;
        above += group.positives + group.negatives;
        if group.positives > 0 {
            sum += group.positives as f64 * (positives as f64 / above as f64);
        }
    }
    (positives > 0 && positives < above).then(|| sum / positives as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_that_no_resample_drew_change_nothing() {
        let tied = |positives, negatives| Tied { positives, negatives };
        let drawn = [tied(1, 2), tied(3, 1), tied(0, 2), tied(1, 0)];
        let between = [0, 1, 2, 3].map(|place| [tied(0, 0), drawn[place]]).concat();
        let around = [&between[..], &[tied(0, 0)]].concat();
        assert!(of_groups(&drawn).is_some());
        assert_eq!(of_groups(&around), of_groups(&drawn));
    }
}
