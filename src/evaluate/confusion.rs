//! What decisions are worth: counts, and the measures taken from them.

use serde::Serialize;

use super::{Estimate, Range, Undefined, wilson};

/// How decisions about one label came out, in images.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Confusion {
    /// Positive, and decided so.
    #[serde(rename = "tp")]
    pub true_positives: usize,
    /// Negative, and decided positive.
    #[serde(rename = "fp")]
    pub false_positives: usize,
    /// Negative, and decided so.
    #[serde(rename = "tn")]
    pub true_negatives: usize,
    /// Positive, and decided negative.
    #[serde(rename = "fn")]
    pub false_negatives: usize,
}

/// The measures of a [`Confusion`], each with Wilson's interval, which takes images as independent:
/// where patients have several, [`super::bootstrap`] tells how much wider it should be.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct DecisionMeasures {
    /// The share of positives decided positive: TP / (TP + FN), also called recall.
    pub sensitivity: Estimate,
    /// The share of negatives decided negative: TN / (TN + FP).
    pub specificity: Estimate,
    /// The positive predictive value, TP / (TP + FP), also called precision.
    pub ppv: Estimate,
    /// The negative predictive value, TN / (TN + FN).
    pub npv: Estimate,
    /// 2 TP / (2 TP + FP + FN). Its interval is that of J = TP / (TP + FP + FN), a share of images, of
    /// which F1 = 2 J / (1 + J) is an increasing function.
    pub f1: Estimate,
    /// The share of right decisions.
    pub accuracy: Estimate,
}

impl Confusion {
    /// Counts images of which (decided, positive) is told.
    pub fn count(images: impl IntoIterator<Item = (bool, bool)>) -> Self {
        let mut counts = Self::default();
        for image in images {
            let count = match image {
                (true, true) => &mut counts.true_positives,
                (true, false) => &mut counts.false_positives,
                (false, false) => &mut counts.true_negatives,
                (false, true) => &mut counts.false_negatives,
            };
            *count += 1;
        }
        counts
    }

    /// Counts what a threshold decides: positive where the probability is at least as high.
    ///
    /// # Errors
    /// No image, or a probability that is not finite.
    ///
    /// # Panics
    /// If the slices differ in length.
    pub fn at(threshold: f64, probabilities: &[f64], positive: &[bool]) -> Result<Self, Undefined> {
        assert_eq!(probabilities.len(), positive.len(), "one probability for each image");
        if probabilities.is_empty() {
            return Err(Undefined::NoKnownLabel);
        }
        if probabilities.iter().any(|probability| !probability.is_finite()) {
            return Err(Undefined::NotFinite);
        }
        let decided = probabilities.iter().map(|&probability| probability >= threshold);
        Ok(Self::count(decided.zip(positive.iter().copied())))
    }

    /// The measures of these counts; of no image each is undefined.
    pub fn measures(&self) -> DecisionMeasures {
        let Self { true_positives, false_positives, true_negatives, false_negatives } = *self;
        let positives = true_positives + false_negatives;
        let (right, all) =
            (true_positives + true_negatives, positives + true_negatives + false_positives);
        DecisionMeasures {
            sensitivity: share(true_positives, positives, "positive"),
            specificity: share(true_negatives, true_negatives + false_positives, "negative"),
            ppv: share(true_positives, true_positives + false_positives, "decided positive"),
            npv: share(true_negatives, true_negatives + false_negatives, "decided negative"),
            f1: self.f1(),
            accuracy: share(right, all, "known"),
        }
    }

    /// Undefined without positives, as in [`crate::metric`].
    fn f1(&self) -> Estimate {
        let Self { true_positives, false_positives, false_negatives, .. } = *self;
        let of_jaccard = |jaccard: f64| 2.0 * jaccard / (1.0 + jaccard);
        let (found, either) = (true_positives, true_positives + false_positives + false_negatives);
        if true_positives + false_negatives == 0 {
            return Estimate::without_range(Err(Undefined::NoImage("positive")));
        }
        let value = 2.0 * found as f64 / (found + either) as f64;
        let range = wilson(found, either).ok_or(Undefined::NoImage("positive"));
        let range = range.map(|r| Range { low: of_jaccard(r.low), high: of_jaccard(r.high) });
        Estimate::new(Ok(value), range)
    }
}

/// A share with Wilson's interval; undefined of no image, where none is `kind`.
pub(super) fn share(successes: usize, of: usize, kind: &'static str) -> Estimate {
    let range = wilson(successes, of).ok_or(Undefined::NoImage(kind));
    Estimate::new(range.map(|_| successes as f64 / of as f64), range)
}

/// How often images of each class are given each class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConfusionMatrix {
    /// The classes, in the order of rows and columns.
    pub classes: Vec<String>,
    /// `[classes, classes]`: images of the class of the row that were given the class of the column.
    pub counts: Vec<Vec<usize>>,
}

impl ConfusionMatrix {
    /// Counts images of which (decided class, true class) is told by number.
    ///
    /// # Panics
    /// If a number is beyond the classes.
    pub fn count(classes: &[String], images: impl IntoIterator<Item = (usize, usize)>) -> Self {
        let mut counts = vec![vec![0; classes.len()]; classes.len()];
        for (decided, truth) in images {
            counts[truth][decided] += 1;
        }
        Self { classes: classes.to_vec(), counts }
    }

    /// The share of images given their own class (top-1 accuracy), with Wilson's interval.
    pub fn accuracy(&self) -> Estimate {
        let right = (0..self.classes.len()).map(|class| self.counts[class][class]).sum();
        share(right, self.counts.iter().flatten().sum(), "known")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_nothing_says_of_what() {
        let all_negative = Confusion { true_negatives: 4, ..Confusion::default() };
        let measures = all_negative.measures();
        let reason = |estimate: Estimate| estimate.undefined.map(|reason| reason.to_string());
        assert_eq!(reason(measures.sensitivity).as_deref(), Some("no image is positive"));
        assert_eq!(reason(measures.f1).as_deref(), Some("no image is positive"));
        assert_eq!(reason(measures.ppv).as_deref(), Some("no image is decided positive"));
        assert_eq!(measures.specificity.value, Some(1.0));
        let nothing = Confusion::default().measures();
        assert_eq!(reason(nothing.accuracy).as_deref(), Some("no image is known"));
        assert_eq!(Confusion::at(0.5, &[], &[]), Err(Undefined::NoKnownLabel));
        assert_eq!(Confusion::at(0.5, &[f64::NAN], &[true]), Err(Undefined::NotFinite));
        let json = serde_json::to_string(&measures.sensitivity).expect("serialises");
        assert_eq!(
            json,
            r#"{"value":null,"low":null,"high":null,"undefined":"no image is positive"}"#
        );
    }

    #[test]
    fn a_threshold_takes_in_what_equals_it() {
        let counts = Confusion::at(0.5, &[0.5, 0.4, 0.5, 0.6], &[true, true, false, true]);
        let expected = Confusion {
            true_positives: 2,
            false_positives: 1,
            true_negatives: 0,
            false_negatives: 1,
        };
        assert_eq!(counts, Ok(expected));
        let json = serde_json::to_string(&expected).expect("serialises");
        assert_eq!(json, r#"{"tp":2,"fp":1,"tn":0,"fn":1}"#);
    }
}
