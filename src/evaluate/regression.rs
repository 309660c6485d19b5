//! How far numbers are off, and how much of what they vary by is foretold.

use super::bootstrap::freedom_of_errors;
use super::head::{Head, mean as mean_of_labels};
use super::jackknife::range_on;
use super::{Estimate, HeadEvaluation, MetricTable, Range, Undefined};
use crate::metric::regression::{mae, rmse};
use crate::metric::{Link, Resampler};

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

/// A metric of (outputs, targets) over numbers of which each counts as often as its image is told to.
fn of_times(
    numbers: &[Number],
    times: &[u64],
    metric: impl Fn(&[f64], &[f64]) -> Result<f64, Undefined>,
) -> Result<f64, Undefined> {
    let repeated = numbers
        .iter()
        .flat_map(|&(image, output, target)| (0..times[image]).map(move |_| (output, target)));
    let (outputs, targets): (Vec<f64>, Vec<f64>) = repeated.unzip();
    metric(&outputs, &targets)
}

impl Head<'_> {
    /// The errors of a `regression` head.
    pub(super) fn regression(&self, found: &mut HeadEvaluation) {
        let known = self.known_numbers();
        let mean = |metric: fn(&[f64]) -> Option<f64>| {
            move |outputs: &[f64], targets: &[f64]| {
                let errors: Vec<f64> = outputs.iter().zip(targets).map(|(z, y)| z - y).collect();
                let reason =
                    if errors.is_empty() { Undefined::NoKnownLabel } else { Undefined::NotFinite };
                metric(&errors).ok_or(reason)
            }
        };
        found.mae = Some(self.jackknifed(&known, Link::Log, mean(mae)));
        found.r2 = Some(self.jackknifed(&known, Link::LogOfRest, r2));
        let freedom = known.iter().map(|label| {
            let errors = label.iter().map(|(image, output, target)| (*image, output - target));
            freedom_of_errors(&self.resampler, errors)
        });
        let freedom: Vec<Result<f64, Undefined>> = freedom.collect();
        let once = vec![1; self.predictions.images()];
        let rmse = mean(rmse);
        let values = known.iter().map(|label| of_times(label, &once, rmse)).collect();
        let rmse = |label: usize, times: &[u64]| of_times(&known[label], times, rmse).ok();
        found.rmse = Some(self.bootstrapped(values, Link::Log, &freedom, rmse));
    }

    /// A metric of (outputs, targets) for each label, with its interval from leaving out the patients of whom the number is
    /// known.
    fn jackknifed(
        &self,
        known: &[Vec<Number>],
        link: Link,
        metric: impl Fn(&[f64], &[f64]) -> Result<f64, Undefined> + Sync,
    ) -> MetricTable {
        let of = |label: &[Number], times: &[u64]| of_times(label, times, &metric);
        let range = |label: &Vec<Number>| -> Result<Range, Undefined> {
            let patients: Vec<usize> =
                label.iter().map(|(image, ..)| self.patients[*image]).collect();
            // Nothing is drawn, so the seed is any.
            let resampler = Resampler::new(patients.len(), Some(&patients), 0);
            let numbers = label.iter().enumerate();
            let label: Vec<Number> = numbers.map(|(place, &(_, z, y))| (place, z, y)).collect();
            range_on(&resampler, link, |times| of(&label, times).ok())
        };
        let once = vec![1; self.predictions.images()];
        let values: Vec<Result<f64, Undefined>> =
            known.iter().map(|label| of(label, &once)).collect();
        let ranges: Vec<Result<Range, Undefined>> = known.iter().map(range).collect();
        let of_mean = match ranges[..] {
            [only] => only,
            _ => range_on(&self.resampler, link, |times| {
                crate::metric::mean(known.iter().filter_map(|label| of(label, times).ok()))
            }),
        };
        let mean = Estimate::new(mean_of_labels(&values), of_mean);
        let estimates = values.into_iter().zip(ranges);
        let estimates = estimates.map(|(value, range)| Estimate::new(value, range));
        MetricTable::new(mean, self.predictions.labels.iter().cloned().zip(estimates).collect())
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
