//! How far any metric would move with other patients: the percentile bootstrap over clusters
//! (Efron 1979; Field and Welsh 2007 for clusters).
//!
//! A [`Resampler`] draws as many patients as there are, with replacement, and takes all images of a
//! patient with it. A metric is a function of how often each image occurs in such a resample; one in
//! which it has no value is left out. The draws follow from the seed, whatever the number of threads.

use serde::Serialize;

use super::{Range, Undefined};
use crate::metric::{Interval, Resampler};

/// The 95% interval of a metric over `resamples`.
///
/// # Errors
/// A metric without a value in every resample.
pub fn range(
    resampler: &Resampler,
    resamples: usize,
    metric: impl Fn(&[u64]) -> Option<f64> + Sync,
) -> Result<Range, Undefined> {
    of_values(resampler.each(resamples, metric).into_iter().flatten().collect())
}

/// The same for several metrics over the same resamples: `metrics` gives the values of `count`.
///
/// # Panics
/// If `metrics` does not give `count` values.
pub fn ranges(
    resampler: &Resampler,
    resamples: usize,
    count: usize,
    metrics: impl Fn(&[u64]) -> Vec<Option<f64>> + Sync,
) -> Vec<Result<Range, Undefined>> {
    let found = resampler.each(resamples, metrics);
    let of_metric = |place: usize| found.iter().filter_map(|values| values[place]).collect();
    (0..count).map(|place| of_values(of_metric(place))).collect()
}

/// By how much two models differ on the same images.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Difference {
    /// The 95% interval of the first model's metric less the second's.
    pub range: Range,
    /// Twice the smaller share of resamples in which the difference is at most, or at least, 0, where
    /// the images as they are count as one resample more (Davison and Hinkley 1997).
    pub p_value: f64,
}

/// The paired bootstrap: both metrics are taken over the same resamples, so that what makes a patient
/// easy or hard for both models cancels.
///
/// # Errors
/// Metrics that have no value together in any resample.
pub fn difference(
    resampler: &Resampler,
    resamples: usize,
    first: impl Fn(&[u64]) -> Option<f64> + Sync,
    second: impl Fn(&[u64]) -> Option<f64> + Sync,
) -> Result<Difference, Undefined> {
    let found = resampler.each(resamples, |times| Some(first(times)? - second(times)?));
    let differences: Vec<f64> = found.into_iter().flatten().collect();
    let share = |counts: fn(&f64) -> bool| {
        let counted = differences.iter().filter(|difference| counts(difference)).count();
        (counted + 1) as f64 / (differences.len() + 1) as f64
    };
    let p_value = (2.0 * share(|d| *d <= 0.0).min(share(|d| *d >= 0.0))).min(1.0);
    Ok(Difference { range: of_values(differences)?, p_value })
}

pub(super) fn of_values(values: Vec<f64>) -> Result<Range, Undefined> {
    let found = Interval::of(values).ok_or(Undefined::EveryResample)?;
    Ok(Range { low: found.low, high: found.high })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mean of `values`, each as often as it occurs.
    fn mean(values: &[f64]) -> impl Fn(&[u64]) -> Option<f64> + Sync + '_ {
        |times| {
            let sum: f64 = values.iter().zip(times).map(|(value, &n)| value * n as f64).sum();
            let count: u64 = times.iter().sum();
            (count > 0).then(|| sum / count as f64)
        }
    }

    #[test]
    fn the_interval_of_a_mean_is_that_of_its_standard_error() {
        let values: Vec<f64> = (0..400).map(|place| f64::from(place * 37 % 101)).collect();
        let middle = values.iter().sum::<f64>() / 400.0;
        let spread = values.iter().map(|value| (value - middle).powi(2)).sum::<f64>() / 400.0;
        let error = (spread / 400.0).sqrt();
        let found = range(&Resampler::new(400, None, 2), 4000, mean(&values)).expect("defined");
        assert!((found.low - (middle - 1.96 * error)).abs() < 0.1 * error, "{found:?}");
        assert!((found.high - (middle + 1.96 * error)).abs() < 0.1 * error, "{found:?}");
        // Twenty images of each patient are no more than twenty patients' worth.
        let patients: Vec<usize> = (0..400).map(|image| image / 20).collect();
        let alike: Vec<f64> = patients.iter().map(|&patient| patient as f64).collect();
        let of = |patients| {
            let resampler = Resampler::new(400, patients, 2);
            let found = range(&resampler, 2000, mean(&alike)).expect("defined");
            found.high - found.low
        };
        let ratio = of(Some(&patients[..])) / of(None);
        assert!((ratio - 20_f64.sqrt()).abs() < 0.4, "{ratio}");
    }

    #[test]
    fn a_difference_is_paired() {
        let first: Vec<f64> = (0..60).map(|place| f64::from(place * 37 % 101)).collect();
        let second: Vec<f64> = first.iter().map(|value| value - 1.0).collect();
        let resampler = Resampler::new(60, None, 4);
        let found = difference(&resampler, 300, mean(&first), mean(&second)).expect("defined");
        // However the patients are drawn, one model is better by 1.
        assert!((found.range.low - 1.0).abs() < 1e-12 && (found.range.high - 1.0).abs() < 1e-12);
        assert!((found.p_value - 2.0 / 301.0).abs() < 1e-12);
        let same = difference(&resampler, 300, mean(&first), mean(&first)).expect("defined");
        assert_eq!((same.range.low, same.range.high, same.p_value), (0.0, 0.0, 1.0));
    }

    #[test]
    fn a_metric_without_a_value_anywhere_has_no_interval() {
        let resampler = Resampler::new(5, None, 1);
        assert_eq!(range(&resampler, 10, |_| None), Err(Undefined::EveryResample));
        let both = ranges(&resampler, 10, 2, |_| vec![Some(1.0), None]);
        assert_eq!(both, [Ok(Range { low: 1.0, high: 1.0 }), Err(Undefined::EveryResample)]);
        let none = difference(&resampler, 10, |_| None, |_| Some(1.0));
        assert_eq!(none, Err(Undefined::EveryResample));
    }
}
