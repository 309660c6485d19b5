//! How far numbers are off, and how much of what they vary by is foretold.

use super::bootstrap::{freedom_of_errors, freedom_of_images};
use super::head::Head;
use super::{HeadEvaluation, MetricTable, Undefined};
use crate::metric::Link;
use crate::metric::regression::{mae, rmse};

/// The coefficient of determination, 1 − Σ(y − z)² / Σ(y − ȳ)², of `outputs` z for `targets` y, as
/// scikit-learn's `r2_score`. It is 0 for the mean of the targets and below 0 for worse.
///
/// # Errors
/// No image, numbers that are not finite, or targets that are all the same.
///
/// # Panics
/// If the slices differ in length.
pub fn r2(outputs: &[f64], targets: &[f64]) -> Result<f64, Undefined> {
    assert_eq!(outputs.len(), targets.len(), "one output for each target");
    if targets.is_empty() {
        return Err(Undefined::NoKnownLabel);
    }
    if outputs.iter().chain(targets).any(|number| !number.is_finite()) {
        return Err(Undefined::NotFinite);
    }
    let mean = targets.iter().sum::<f64>() / targets.len() as f64;
    let all: f64 = targets.iter().map(|target| (target - mean).powi(2)).sum();
    if targets.iter().all(|target| *target == targets[0]) {
        return Err(Undefined::ConstantTargets);
    }
    let pairs = outputs.iter().zip(targets);
    let left: f64 = pairs.map(|(output, target)| (target - output).powi(2)).sum();
    Ok(1.0 - left / all)
}

/// The image, output and target of a known number.
type Number = (usize, f64, f64);

impl Head<'_> {
    /// The errors of a `regression` head.
    pub(super) fn regression(&self, found: &mut HeadEvaluation) {
        let known = self.known_numbers();
        let once = vec![1; self.predictions.images()];
        let mean = |metric: fn(&[f64]) -> Option<f64>| {
            move |outputs: &[f64], targets: &[f64]| {
                let errors: Vec<f64> = outputs.iter().zip(targets).map(|(z, y)| z - y).collect();
                let reason =
                    if errors.is_empty() { Undefined::NoKnownLabel } else { Undefined::NotFinite };
                metric(&errors).ok_or(reason)
            }
        };
        let patients = known.iter().map(|label| {
            freedom_of_images(&self.resampler, label.iter().map(|(image, ..)| *image))
        });
        let patients: Vec<Result<f64, Undefined>> = patients.collect();
        let errors = known.iter().map(|label| {
            let errors = label.iter().map(|(image, output, target)| (*image, output - target));
            freedom_of_errors(&self.resampler, errors)
        });
        let errors: Vec<Result<f64, Undefined>> = errors.collect();
        found.mae = Some(self.of_numbers(&known, &once, Link::Log, &patients, mean(mae)));
        found.rmse = Some(self.of_numbers(&known, &once, Link::Log, &errors, mean(rmse)));
        found.r2 = Some(self.of_numbers(&known, &once, Link::LogOfRest, &patients, r2));
    }

    /// A metric of (outputs, targets) for each label, with its degrees of freedom.
    fn of_numbers(
        &self,
        known: &[Vec<Number>],
        once: &[u64],
        link: Link,
        freedom: &[Result<f64, Undefined>],
        metric: impl Fn(&[f64], &[f64]) -> Result<f64, Undefined> + Sync,
    ) -> MetricTable {
        let of = |label: usize, times: &[u64]| {
            let repeated = known[label].iter().flat_map(|&(image, output, target)| {
                (0..times[image]).map(move |_| (output, target))
            });
            let (outputs, targets): (Vec<f64>, Vec<f64>) = repeated.unzip();
            metric(&outputs, &targets)
        };
        let values = (0..known.len()).map(|label| of(label, once)).collect();
        self.bootstrapped(values, link, freedom, |label, times| of(label, times).ok())
    }

    /// The known numbers of each label.
    fn known_numbers(&self) -> Vec<Vec<Number>> {
        let targets = &self.predictions.targets;
        let of_label = |label: usize| {
            (0..self.predictions.images())
                .map(|image| (image, image * targets.width + label))
                .filter(|&(_, place)| targets.mask[place] != 0.0)
                .map(|(image, place)| {
                    (image, self.probabilities[place], f64::from(targets.values[place]))
                })
                .collect()
        };
        (0..self.predictions.labels.len()).map(of_label).collect()
    }
}
