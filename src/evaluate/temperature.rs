//! Probabilities corrected by one number a head.

use serde::{Deserialize, Serialize};

use super::Undefined;

/// Temperature scaling (Guo et al. 2017): logits are divided by this number, greater than 0, before
/// the sigmoid or softmax. It changes how sure a model sounds and never what it ranks first.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Temperature(pub f64);

/// A scale so great counts as infinite: a logit of 1 would be sure to all digits of a million.
const GREATEST_SCALE: f64 = 1e6;
const MOST_STEPS: usize = 200;

impl Temperature {
    /// The most likely temperature. `logits` is `[images, classes]`, `truth` the class of each image.
    /// A single logit z is the two classes [0, z].
    ///
    /// The negative log-likelihood is convex in the scale 1 / T. Newton's method finds where its
    /// derivative vanishes, halving the interval that holds the root where a step would leave it.
    ///
    /// # Errors
    /// No image, logits that are not finite, that separate the classes (the best temperature is 0), or
    /// that do not rank true classes above others (the best one is infinite or negative).
    ///
    /// # Panics
    /// If the slices do not fit each other.
    pub fn fit(logits: &[f64], truth: &[usize]) -> Result<Self, Undefined> {
        let classes = logits.len().checked_div(truth.len()).ok_or(Undefined::NoKnownLabel)?;
        if logits.iter().any(|logit| !logit.is_finite()) {
            return Err(Undefined::NotFinite);
        }
        let slope = |scale: f64| slope(scale, logits, classes, truth);
        let (mut low, mut high) = (0.0, 1.0);
        if slope(low).0 >= 0.0 {
            return Err(Undefined::Unordered);
        }
        while slope(high).0 <= 0.0 {
            (low, high) = (high, 2.0 * high);
            if high > GREATEST_SCALE {
                return Err(Undefined::Separable);
            }
        }
        let mut scale = (low + high) / 2.0;
        for _ in 0..MOST_STEPS {
            let (first, second) = slope(scale);
            if first < 0.0 {
                low = scale;
            } else {
                high = scale;
            }
            let newton = scale - first / second;
            let next = if newton > low && newton < high { newton } else { (low + high) / 2.0 };
            if (next - scale).abs() <= 1e-15 * scale || first == 0.0 {
                return Ok(Self(1.0 / next));
            }
            scale = next;
        }
        Err(Undefined::NotConverged)
    }

    /// The logit of the corrected probability.
    pub fn apply(self, logit: f64) -> f64 {
        logit / self.0
    }
}

/// The first and second derivative of the negative log-likelihood by the scale: sums over images of
/// E[z] − z of the true class, and of Var[z], both under the softmax of scale × z.
fn slope(scale: f64, logits: &[f64], classes: usize, truth: &[usize]) -> (f64, f64) {
    let (mut first, mut second) = (0.0, 0.0);
    for (row, &truth) in logits.chunks_exact(classes).zip(truth) {
        let greatest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights = row.iter().map(|logit| (scale * (logit - greatest)).exp());
        // Of z less the greatest logit, so that large ones keep their digits.
        let (mut all, mut sum, mut squares) = (0.0, 0.0, 0.0);
        for (weight, logit) in weights.zip(row) {
            let z = logit - greatest;
            all += weight;
            sum += weight * z;
            squares += weight * z * z;
        }
        let mean = sum / all;
        first += mean - (row[truth] - greatest);
        second += squares / all - mean * mean;
    }
    (first, second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_temperature_mends_has_its_reason() {
        let two = |logits: &[f64]| -> Vec<f64> { logits.iter().flat_map(|&z| [0.0, z]).collect() };
        let apart = Temperature::fit(&two(&[-1.0, 2.0, 3.0]), &[0, 1, 1]);
        assert_eq!(apart, Err(Undefined::Separable));
        let wrong = Temperature::fit(&two(&[-1.0, 2.0, 3.0]), &[1, 0, 0]);
        assert_eq!(wrong, Err(Undefined::Unordered));
        let constant = Temperature::fit(&[1.0, 1.0, 1.0], &[2]);
        assert_eq!(constant, Err(Undefined::Unordered));
        assert_eq!(Temperature::fit(&[], &[]), Err(Undefined::NoKnownLabel));
        assert_eq!(Temperature::fit(&[f64::NAN, 1.0], &[0]), Err(Undefined::NotFinite));
    }

    #[test]
    fn logits_made_louder_have_a_temperature_as_much_greater() {
        let logits = [0.3, -1.2, 0.7, 0.1, 2.2, -0.4, 1.5, 0.2, 0.9, -0.3, 0.8, 1.1];
        let truth = [0, 1, 0, 2];
        let Temperature(once) = Temperature::fit(&logits, &truth).expect("defined");
        let louder = logits.map(|logit| 40.0 * logit);
        let Temperature(more) = Temperature::fit(&louder, &truth).expect("defined");
        assert!((more / once - 40.0).abs() < 1e-9, "{once} {more}");
    }
}
