//! Area under the receiver operating characteristic.

use super::Example;
use super::ranking::{Ranking, Tied};

/// The probability that a positive scores above a negative, a tie counting half; `None` without
/// both.
pub(super) fn auroc(examples: &[Example]) -> Option<f64> {
    of_groups(&Ranking::new(examples)?.tied(|_| 1))
}

/// [`auroc`] from groups of equal scores, ascending: the Mann-Whitney statistic, which is the area
/// by trapezoids.
pub(crate) fn of_groups(groups: &[Tied]) -> Option<f64> {
    let (mut positives, mut negatives) = (0, 0);
    // Twice the pairs in the right order, in whole numbers: exact for any number of images.
    let mut twice = 0_u128;
    for group in groups {
        twice += u128::from(group.positives) * u128::from(2 * negatives + group.negatives);
        positives += group.positives;
        negatives += group.negatives;
    }
    let pairs = u128::from(positives) * u128::from(negatives);
    (pairs > 0).then(|| twice as f64 / (2 * pairs) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn examples(scored: &[(i8, bool)]) -> Vec<Example> {
        let example = |(image, &(score, positive)): (usize, &(i8, bool))| Example {
            image,
            score: f64::from(score),
            predicted: score >= 0,
            positive,
        };
        scored.iter().enumerate().map(example).collect()
    }

    /// Every pair of a positive and a negative, one by one.
    fn by_pairs(examples: &[Example]) -> Option<f64> {
        let (mut right, mut pairs) = (0.0, 0.0);
        for positive in examples.iter().filter(|example| example.positive) {
            for negative in examples.iter().filter(|example| !example.positive) {
                pairs += 1.0;
                right += match positive.score.total_cmp(&negative.score) {
                    std::cmp::Ordering::Greater => 1.0,
                    std::cmp::Ordering::Equal => 0.5,
                    std::cmp::Ordering::Less => 0.0,
                };
            }
        }
        (pairs > 0.0).then(|| right / pairs)
    }

    proptest! {
        #[test]
        fn it_is_the_share_of_pairs_in_order(scored in prop::collection::vec((-4..5_i8, any::<bool>()), 0..40)) {
            let examples = examples(&scored);
            prop_assert_eq!(auroc(&examples), by_pairs(&examples));
        }
    }

    #[test]
    fn zero_and_minus_zero_are_one_score() {
        let mut examples = examples(&[(0, true), (0, false)]);
        examples[0].score = -0.0;
        assert_eq!(auroc(&examples), Some(0.5));
    }

    #[test]
    fn one_class_or_a_score_that_is_no_number_leaves_it_undefined() {
        assert_eq!(auroc(&examples(&[])), None);
        assert_eq!(auroc(&examples(&[(1, true), (2, true)])), None);
        assert_eq!(auroc(&examples(&[(1, false), (2, false)])), None);
        for score in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let mut examples = examples(&[(1, true), (2, false), (3, true)]);
            examples[1].score = score;
            assert_eq!(auroc(&examples), None);
        }
    }
}
