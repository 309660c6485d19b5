//! Probabilities corrected by two numbers a label.

use serde::{Deserialize, Serialize};

use super::Undefined;
use super::delong::check;

/// Platt's (1999) scaling: the probability is sigmoid(`slope` × logit + `intercept`).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Platt {
    /// What the logit is multiplied with; 1 leaves it.
    pub slope: f64,
    /// What is added; 0 adds nothing.
    pub intercept: f64,
}

/// Newton's method needs some ten; more mean that it runs nowhere.
const MOST_STEPS: usize = 200;

impl Platt {
    /// The most likely scaling of `logits`, one an image, whose truth is `positive`.
    ///
    /// As Platt has it, a positive counts as (P + 1) / (P + 2) and a negative as 1 / (N + 2), which
    /// keeps the numbers finite where the logits separate the classes. Newton's method with
    /// backtracking, after Lin, Lin and Weng (2007), "A note on Platt's probabilistic outputs".
    ///
    /// # Errors
    /// No image, one class only, logits that are not finite or all the same, or no convergence.
    ///
    /// # Panics
    /// If the slices differ in length.
    pub fn fit(logits: &[f64], positive: &[bool]) -> Result<Self, Undefined> {
        assert_eq!(logits.len(), positive.len(), "one logit for each image");
        let positives = check(logits, positive)? as f64;
        let negatives = positive.len() as f64 - positives;
        if logits.iter().all(|logit| *logit == logits[0]) {
            return Err(Undefined::ConstantOutputs);
        }
        let target = |positive: bool| match positive {
            true => (positives + 1.0) / (positives + 2.0),
            false => 1.0 / (negatives + 2.0),
        };
        let images: Vec<(f64, f64)> =
            logits.iter().zip(positive).map(|(&logit, &one)| (logit, target(one))).collect();
        let start = ((positives + 1.0) / (negatives + 1.0)).ln();
        let mut at = Self { slope: 0.0, intercept: start };
        let mut loss = at.loss(&images);
        for _ in 0..MOST_STEPS {
            let Some(step) = at.newton(&images) else { break };
            let mut share = 1.0;
            let (next, lower) = loop {
                let next = Self {
                    slope: at.slope + share * step.slope,
                    intercept: at.intercept + share * step.intercept,
                };
                let lower = next.loss(&images);
                if lower <= loss || share < 1e-10 {
                    break (next, lower);
                }
                share /= 2.0;
            };
            let small = |step: f64, value: f64| step.abs() <= 1e-13 * value.abs().max(1.0);
            if lower > loss {
                // No step along Newton's direction is downhill: rounding is all that is left.
                return Ok(at);
            }
            (at, loss) = (next, lower);
            if small(step.slope, at.slope) && small(step.intercept, at.intercept) {
                return Ok(at);
            }
        }
        Err(Undefined::NotConverged)
    }

    /// The corrected probability of a logit.
    pub fn apply(&self, logit: f64) -> f64 {
        sigmoid(self.slope * logit + self.intercept)
    }

    /// The negative log-likelihood: ln(1 + exp z) − t z, so written that no exponential overflows.
    fn loss(&self, images: &[(f64, f64)]) -> f64 {
        let of_image = |&(logit, target): &(f64, f64)| {
            let z = self.slope * logit + self.intercept;
            z.max(0.0) + (-z.abs()).exp().ln_1p() - target * z
        };
        images.iter().map(of_image).sum()
    }

    /// Newton's step from here; `None` where the curvature vanishes.
    fn newton(&self, images: &[(f64, f64)]) -> Option<Self> {
        let (mut g1, mut g0, mut h11, mut h10, mut h00) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for &(logit, target) in images {
            let p = self.apply(logit);
            let (off, weight) = (p - target, p * (1.0 - p));
            g1 += off * logit;
            g0 += off;
            h11 += weight * logit * logit;
            h10 += weight * logit;
            h00 += weight;
        }
        let determinant = h11 * h00 - h10 * h10;
        (determinant > 0.0).then(|| Self {
            slope: (h10 * g0 - h00 * g1) / determinant,
            intercept: (h10 * g1 - h11 * g0) / determinant,
        })
    }
}

pub(super) fn sigmoid(z: f64) -> f64 {
    1.0 / (1.0 + (-z).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logits_that_separate_the_classes_have_a_finite_scaling() {
        let platt = Platt::fit(&[-300.0, -2.0, 1.0, 500.0], &[false, false, true, true]);
        let platt = platt.expect("defined");
        assert!(platt.slope > 0.0 && platt.slope.is_finite(), "{platt:?}");
        assert!(platt.apply(500.0) > 0.5 && platt.apply(-300.0) < 0.5);
    }

    #[test]
    fn what_cannot_be_fitted_has_its_reason() {
        assert_eq!(Platt::fit(&[], &[]), Err(Undefined::NoKnownLabel));
        assert_eq!(Platt::fit(&[2.0; 3], &[true, false, true]), Err(Undefined::ConstantOutputs));
        let one_class = Undefined::OneClass { positives: 0, images: 2 };
        assert_eq!(Platt::fit(&[2.0, 1.0], &[false, false]), Err(one_class));
        assert_eq!(Platt::fit(&[f64::NAN, 1.0], &[false, true]), Err(Undefined::NotFinite));
    }
}
