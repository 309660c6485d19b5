//! The curves whose areas are AUROC and AUPRC, point by point.

use super::Undefined;
use super::delong::check;

/// What deciding positive from one score up is worth.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CurvePoint {
    /// The least score that is decided positive; infinite at the first point, where none is.
    pub threshold: f64,
    /// Positives decided positive.
    pub true_positives: usize,
    /// Negatives decided positive.
    pub false_positives: usize,
    /// All positives.
    pub positives: usize,
    /// All negatives.
    pub negatives: usize,
}

impl CurvePoint {
    /// The true positive rate, also called sensitivity or recall.
    pub fn recall(&self) -> f64 {
        self.true_positives as f64 / self.positives as f64
    }

    /// The false positive rate, 1 less specificity.
    pub fn false_positive_rate(&self) -> f64 {
        self.false_positives as f64 / self.negatives as f64
    }

    /// The share of those decided positive that are; 1 where none is decided so.
    pub fn precision(&self) -> f64 {
        let decided = self.true_positives + self.false_positives;
        if decided == 0 { 1.0 } else { self.true_positives as f64 / decided as f64 }
    }
}

/// The points of the receiver operating characteristic and of the precision–recall curve: one above all
/// scores, then one for each score that occurs, from the highest down. They are those of scikit-learn's
/// `roc_curve(drop_intermediate=False)`, and of its `precision_recall_curve` the other way round.
///
/// # Errors
/// No image, a score that is not finite, or one class only.
///
/// # Panics
/// If the slices differ in length.
pub fn curve_points(scores: &[f64], positive: &[bool]) -> Result<Vec<CurvePoint>, Undefined> {
    assert_eq!(scores.len(), positive.len(), "one score for each image");
    let positives = check(scores, positive)?;
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_unstable_by(|&a, &b| scores[b].total_cmp(&scores[a]));
    let mut point = CurvePoint {
        threshold: f64::INFINITY,
        true_positives: 0,
        false_positives: 0,
        positives,
        negatives: scores.len() - positives,
    };
    let mut points = vec![point];
    for tied in order.chunk_by(|&a, &b| scores[a] == scores[b]) {
        let found = tied.iter().filter(|&&image| positive[image]).count();
        point.threshold = scores[tied[0]];
        point.true_positives += found;
        point.false_positives += tied.len() - found;
        points.push(point);
    }
    Ok(points)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    struct Case {
        name: String,
        scores: Vec<f64>,
        positive: Vec<bool>,
        false_positive_rate: Vec<f64>,
        true_positive_rate: Vec<f64>,
        /// Without the first, which is infinite.
        thresholds: Vec<f64>,
        precision: Vec<f64>,
        recall: Vec<f64>,
    }

    #[test]
    fn the_points_are_those_of_scikit_learn() {
        let text = include_str!("../../tests/fixtures/curves.json");
        let cases: Vec<Case> = serde_json::from_str(text).expect("fixture");
        assert!(cases.len() >= 4, "{} cases", cases.len());
        for case in cases {
            let points = curve_points(&case.scores, &case.positive).expect("defined");
            let near = |what, found: Vec<f64>, expected: &[f64]| {
                assert_eq!(found.len(), expected.len(), "{}: {what}", case.name);
                for (found, expected) in found.iter().zip(expected) {
                    assert!((found - expected).abs() < 1e-12, "{}: {what}", case.name);
                }
            };
            let all = |of: fn(&CurvePoint) -> f64| points.iter().map(of).collect::<Vec<_>>();
            near("fpr", all(CurvePoint::false_positive_rate), &case.false_positive_rate);
            near("tpr", all(CurvePoint::recall), &case.true_positive_rate);
            near("thresholds", all(|point| point.threshold)[1..].to_vec(), &case.thresholds);
            near("precision", all(CurvePoint::precision), &case.precision);
            near("recall", all(CurvePoint::recall), &case.recall);
            assert_eq!(points[0].threshold, f64::INFINITY);
        }
    }

    #[test]
    fn one_class_and_scores_that_are_no_numbers_have_no_curve() {
        assert_eq!(curve_points(&[], &[]), Err(Undefined::NoKnownLabel));
        assert_eq!(curve_points(&[f64::NAN, 1.0], &[true, false]), Err(Undefined::NotFinite));
        let one_class = Undefined::OneClass { positives: 2, images: 2 };
        assert_eq!(curve_points(&[0.5, 1.0], &[true, true]), Err(one_class));
    }
}
