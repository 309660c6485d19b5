//! The interval of an AUROC that is right for few patients too.
//!
//! DeLong's variance is estimated at the AUROC that was found. Where that is high by luck, the variance is too small, and so
//! is an interval of 1.96 standard errors on any scale. A score interval asks of each area A whether the one found is
//! likely, with the variance that A would have:
//!
//! ```text
//! all A with |found − A| ≤ t · √(c · v(A)),    v(A) = A (1 − A) (1 + N (1 − A) / (2 − A) + N A / (1 + A)) / (m n)
//! ```
//!
//! - v is the variance of an AUROC by Hanley and McNeil (1982) with N = (m + n) / 2 − 1 in place of their two numbers
//!   (Newcombe 2006, "Confidence intervals for an effect size measure based on the Mann-Whitney statistic. Part 2", method
//!   5), of m positives and n negatives. By itself it takes a model for the scores' distribution.
//! - c makes it the data's own: c · v(found) is the variance by (clustered) DeLong, without the bias that patients of
//!   different numbers of images give it ([`Spread`]), moderated towards d · v(found), where the design effect d is the
//!   clustered variance over the plain one. It is weighted as if it came from 20 more degrees of freedom, as Smyth (2004)
//!   moderates variances. With many patients it is DeLong's.
//! - t is Student's quantile. Its degrees of freedom are 20 and those of the variance, as long as each patient has one
//!   image. Else d is uncertain too, both as a factor of the own variance and of the one it is moderated towards. It is a
//!   ratio of two sums over patients, so its relative variance is r = Σ(sᵢ − pᵢ)², where sᵢ and pᵢ are the shares of the two
//!   sums that patient i has (Cochran 1977, "Sampling Techniques", section 2.11). f degrees of freedom are a relative
//!   variance of 2 / f (Satterthwaite 1946): t has 2 / (2 / f + r).
//!
//! There is no such c where all positives rank above all negatives, nor where one class is of one patient. Then v is taken
//! of as many images as say, by themselves, what those of patients whose images are all alike do: (Σk)² / Σk² of a class, of
//! k images each (Kish 1965). This errs on the side of a wide interval.

use super::Range;
use super::influence::Spread;
use crate::metric::interval::student_quantile;

/// The degrees of freedom with which the design effect counts.
const PRIOR: f64 = 20.0;

/// What the interval follows from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    pub area: f64,
    pub model: Model,
}

/// What v is taken of.
#[derive(Debug, Clone, Copy)]
pub(super) enum Model {
    /// The data's own variance.
    Own {
        /// How many images are positive, and negative.
        images: [f64; 2],
        clustered: Spread,
        /// The variance with each image by itself.
        alone: f64,
        /// r, the relative variance of the design effect.
        uncertainty: f64,
    },
    /// No variance but v's.
    Alike {
        /// (Σk)² / Σk² of positives and negatives.
        images: [f64; 2],
        /// Of the class of fewer patients, the patients less one.
        freedom: f64,
    },
}

impl Found {
    /// The 95% interval; `None` where the variances are no numbers.
    pub fn range(&self) -> Option<Range> {
        Some(self.range_at(student_quantile(self.freedom())?))
    }

    /// Those of Student's quantile.
    pub fn freedom(&self) -> f64 {
        match self.model {
            Model::Alike { freedom, .. } => freedom + PRIOR,
            Model::Own { clustered, uncertainty, .. } => {
                (2.0 / (2.0 / (clustered.freedom + PRIOR) + uncertainty)).max(1.0)
            }
        }
    }

    /// The interval of another share than 95%, by the quantile that Student's distribution has for it.
    pub fn range_at(&self, quantile: f64) -> Range {
        let reach = quantile * quantile * self.factor();
        let is_likely = |area: f64| (self.area - area).powi(2) <= reach * self.shape(area);
        Range { low: last(self.area, 0.0, is_likely), high: last(self.area, 1.0, is_likely) }
    }

    /// c.
    fn factor(&self) -> f64 {
        let Model::Own { clustered: Spread { variance, freedom }, alone, .. } = self.model else {
            return 1.0;
        };
        let [own, prior] = [variance / self.shape(self.area), variance / alone];
        (freedom * own + PRIOR * prior) / (freedom + PRIOR)
    }

    /// v(A).
    fn shape(&self, area: f64) -> f64 {
        let (Model::Own { images: [m, n], .. } | Model::Alike { images: [m, n], .. }) = self.model;
        let (pairs, rest) = ((m + n) / 2.0 - 1.0, 1.0 - area);
        area * rest * (1.0 + pairs * rest / (2.0 - area) + pairs * area / (1.0 + area)) / (m * n)
    }
}

/// The last value on the way from `from` to `to` that is likely, where the first is and what follows the last is not.
pub(super) fn last(from: f64, to: f64, is_likely: impl Fn(f64) -> bool) -> f64 {
    let (mut inside, mut outside) = (from, to);
    if from == to {
        return from;
    }
    for _ in 0..100 {
        let middle = f64::midpoint(inside, outside);
        *(if is_likely(middle) { &mut inside } else { &mut outside }) = middle;
    }
    inside
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate::{Delong, Scale};

    #[derive(serde::Deserialize)]
    struct Fixture {
        /// Degrees of freedom and the quantile.
        student: Vec<[f64; 2]>,
        cases: Vec<Case>,
    }

    #[derive(serde::Deserialize)]
    struct Case {
        name: String,
        scores: Vec<f64>,
        positive: Vec<bool>,
        patient: Vec<usize>,
        low: f64,
        high: f64,
    }

    fn fixture() -> Fixture {
        let text = include_str!("../../tests/fixtures/score_interval.json");
        serde_json::from_str(text).expect("the fixture reads")
    }

    #[test]
    fn quantiles_are_those_of_scipy() {
        for [freedom, quantile] in fixture().student {
            let off = (student_quantile(freedom).expect("defined") - quantile).abs();
            assert!(off < 1e-9, "{freedom}: {off}");
        }
    }

    #[test]
    fn the_ends_are_those_that_scipy_finds() {
        let cases = fixture().cases;
        assert_eq!(cases.len(), 10);
        for Case { name, scores, positive, patient, low, high } in cases {
            let delong = Delong::new(&scores, &positive, Some(&patient)).expect("defined");
            let range = delong.range(Scale::Score).expect("defined");
            assert!((range.low - low).abs() < 1e-6, "{name}: {} for {low}", range.low);
            assert!((range.high - high).abs() < 1e-6, "{name}: {} for {high}", range.high);
        }
    }

    #[test]
    fn with_many_patients_it_is_the_plain_interval() {
        let images = 40_000;
        let scores: Vec<f64> = (0..images).map(|image| f64::from(image * 7919 % 10_007)).collect();
        let positive: Vec<bool> = scores.iter().map(|score| score % 97.0 < score / 150.0).collect();
        let delong = Delong::new(&scores, &positive, None).expect("defined");
        let [score, plain] =
            [Scale::Score, Scale::Plain].map(|scale| delong.range(scale).expect("defined"));
        let width = plain.high - plain.low;
        assert!((score.low - plain.low).abs() < 0.01 * width, "{score:?} {plain:?}");
        assert!((score.high - plain.high).abs() < 0.01 * width, "{score:?} {plain:?}");
    }

    #[test]
    fn an_interval_stays_within_0_and_1_and_mirrors_where_the_classes_change_places() {
        for Case { scores, positive, patient, .. } in fixture().cases {
            let of = |positive: &[bool]| {
                let delong = Delong::new(&scores, positive, Some(&patient)).expect("defined");
                delong.range(Scale::Score).expect("defined")
            };
            let other: Vec<bool> = positive.iter().map(|positive| !positive).collect();
            let (range, mirrored) = (of(&positive), of(&other));
            assert!(0.0 <= range.low && range.low < range.high && range.high <= 1.0);
            assert!((range.low + mirrored.high - 1.0).abs() < 1e-12, "{range:?} {mirrored:?}");
            assert!((range.high + mirrored.low - 1.0).abs() < 1e-12, "{range:?} {mirrored:?}");
        }
    }
}
