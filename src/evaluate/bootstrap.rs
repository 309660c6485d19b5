//! How far any metric would move with other patients: the bootstrap over clusters (Efron 1979; Field and Welsh 2007 for
//! clusters), with Student's interval from its standard errors ([`Interval`]).
//!
//! A [`Resampler`] draws as many patients as there are, with replacement, and takes all images of a
//! patient with it. A metric is a function of how often each image occurs in such a resample; one in
//! which it has no value is left out. The draws follow from the seed, whatever the number of threads.

use serde::Serialize;

use super::estimate::wilson_of_share;
use super::hybrid::hybrid;
use super::{Range, Undefined, jackknife};
use crate::metric::interval::{standard_error, student_beyond, student_quantile};
use crate::metric::{Interval, Link, Resampler, mean, satterthwaite, welch};

/// What a metric's interval is formed with beside its resamples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Basis {
    /// The scale on which it is symmetric.
    pub link: Link,
    /// The degrees of freedom of Student's quantile, or why there are none.
    pub freedom: Result<f64, Undefined>,
}

/// The degrees of freedom of a metric of two classes, such as AUROC: (image, whether it is positive).
///
/// # Errors
/// Fewer than two patients of a class.
pub fn freedom_of_classes(
    resampler: &Resampler,
    images: impl Iterator<Item = (usize, bool)> + Clone,
) -> Result<f64, Undefined> {
    let [positives, negatives] = [true, false].map(|class| {
        let of_class = images.clone().filter(|(_, positive)| *positive == class);
        resampler.groups_of(of_class.map(|(image, _)| image))
    });
    let class = if positives < 2 { "positive" } else { "negative" };
    welch(positives, negatives).ok_or(Undefined::OneCluster { class })
}

/// The degrees of freedom of a metric of images of one kind, such as an error: their patients less one.
///
/// # Errors
/// Fewer than two patients.
pub fn freedom_of_images(
    resampler: &Resampler,
    images: impl Iterator<Item = usize>,
) -> Result<f64, Undefined> {
    let patients = resampler.groups_of(images);
    if patients < 2 {
        return Err(Undefined::OneCluster { class: "known" });
    }
    Ok((patients - 1) as f64)
}

/// The degrees of freedom of the root of the mean square of what is told of each image, its error: those of
/// [`satterthwaite`], of each patient's influence on the mean square.
///
/// # Errors
/// Fewer than two patients.
pub fn freedom_of_errors(
    resampler: &Resampler,
    images: impl Iterator<Item = (usize, f64)> + Clone,
) -> Result<f64, Undefined> {
    let square = mean(images.clone().map(|(_, error)| error * error)).unwrap_or(0.0);
    let influences = images.map(|(image, error)| (image, error * error - square));
    let alone = Undefined::OneCluster { class: "known" };
    satterthwaite(&resampler.sums(influences)).ok_or(alone)
}

/// The degrees of freedom of a mean over labels: the mean of those that have some.
///
/// # Errors
/// The first label's, where none has any.
pub fn freedom_of_mean(labels: &[Result<f64, Undefined>]) -> Result<f64, Undefined> {
    let first = labels.first().and_then(|first| first.err());
    mean(labels.iter().filter_map(|one| one.ok())).ok_or(first.unwrap_or(Undefined::EveryLabel))
}

/// The 95% interval of a metric over `resamples`.
///
/// # Errors
/// A metric without a value, or without one in every resample; without degrees of freedom; or with the same value in all
/// resamples, which says that the images are too few, and not that it is certain.
pub fn range(
    resampler: &Resampler,
    resamples: usize,
    basis: Basis,
    metric: impl Fn(&[u64]) -> Option<f64> + Sync,
) -> Result<Range, Undefined> {
    let found = ranges(resampler, resamples, &[basis], |times| vec![metric(times)]);
    found.into_iter().next().unwrap_or(Err(Undefined::EveryResample))
}

/// The same for several metrics over the same resamples: `metrics` gives the values of as many as there are `bases`.
///
/// # Panics
/// If `metrics` gives fewer.
pub fn ranges(
    resampler: &Resampler,
    resamples: usize,
    bases: &[Basis],
    metrics: impl Fn(&[u64]) -> Vec<Option<f64>> + Sync,
) -> Vec<Result<Range, Undefined>> {
    let values = metrics(&vec![1; resampler.images()]);
    let found = resampler.each(resamples, metrics);
    let of_metric = |(place, basis): (usize, &Basis)| {
        let resampled: Vec<f64> = found.iter().filter_map(|values| values[place]).collect();
        let value = values[place].filter(|_| !resampled.is_empty());
        let (value, freedom) = (value.ok_or(Undefined::EveryResample)?, basis.freedom?);
        let found = Interval::of(value, &resampled, resampler.groups(), basis.link, freedom);
        let Interval { low, high } = found.ok_or(Undefined::NoVariance)?;
        Ok(Range { low, high })
    };
    bases.iter().enumerate().map(of_metric).collect()
}

/// How the interval of a difference is formed from its resamples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Form {
    /// Student's, with these degrees of freedom.
    Student(f64),
    /// Student's, with those of the [jackknife](crate::metric::Jackknife): of errors, a few great ones may make up most.
    StudentOfJackknife,
    /// The quantiles of the resamples (the percentile bootstrap), of metrics that rank images. Where positives are few, these
    /// differ in steps, and their standard error is too great.
    Quantiles,
    /// That of two intervals (`hybrid.rs`), of areas under precision over recall where resamples tell nothing: as of shares of
    /// so many positives.
    Areas(f64),
}

/// The form of a difference of means over labels: that of those that have one, with the mean of their degrees of freedom.
///
/// # Errors
/// The first label's, where none has one.
pub fn form_of_mean(labels: &[Result<Form, Undefined>]) -> Result<Form, Undefined> {
    let first = labels.first().and_then(|first| first.err());
    let one = labels.iter().filter_map(|form| form.ok());
    // Where there are more, resamples tell of these.
    let one = one.clone().find(|form| !matches!(form, Form::Areas(_))).or(one.clone().next());
    let given = labels.iter().filter_map(|form| match form {
        Ok(Form::Student(freedom)) => Some(*freedom),
        _ => None,
    });
    let form = mean(given).map(Form::Student).or(one);
    form.ok_or(first.unwrap_or(Undefined::EveryLabel))
}

/// By how much two models differ on the same images.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Difference {
    /// The 95% interval of the first model's metric less the second's.
    pub range: Range,
    /// How likely a difference as great as this is, either way, between models that are equally good, in the form of the
    /// interval, which therefore holds 0 just where this is at least 0.05.
    pub p_value: f64,
}

/// The paired bootstrap: both metrics are taken over the same resamples, so that what makes a patient
/// easy or hard for both models cancels.
///
/// # Errors
/// Metrics that have no value together, or in no resample; no form; or a difference, other than 0, that is the same in all
/// resamples.
pub fn difference(
    resampler: &Resampler,
    resamples: usize,
    form: Result<Form, Undefined>,
    first: impl Fn(&[u64]) -> Option<f64> + Sync,
    second: impl Fn(&[u64]) -> Option<f64> + Sync,
) -> Result<Difference, Undefined> {
    let less = |times: &[u64]| Some(first(times)? - second(times)?);
    let once = vec![1; resampler.images()];
    if let (Ok(Form::Areas(positives)), Some(a), Some(b)) = (form, first(&once), second(&once)) {
        let ranges = |quantile| [a, b].map(|area| wilson_of_share(area, positives, quantile));
        return hybrid([a, b], f64::INFINITY, ranges).ok_or(Undefined::NoVariance);
    }
    let value = less(&once).ok_or(Undefined::EveryResample)?;
    let resampled: Vec<f64> = resampler.each(resamples, less).into_iter().flatten().collect();
    let error = standard_error(value, &resampled, resampler.groups());
    let error = error.ok_or(Undefined::EveryResample)?;
    if error == 0.0 && value == 0.0 {
        return Ok(Difference { range: Range { low: 0.0, high: 0.0 }, p_value: 1.0 });
    }
    let form = form?;
    if error == 0.0 {
        return Err(Undefined::NoVariance);
    }
    let freedom = match form {
        Form::Student(freedom) => freedom,
        Form::StudentOfJackknife => jackknife::of(resampler, value, less)?.freedom,
        Form::Quantiles | Form::Areas(_) => return Ok(by_quantiles(resampled)),
    };
    let half = student_quantile(freedom).ok_or(Undefined::NoVariance)? * error;
    let p_value = student_beyond(value / error, freedom).ok_or(Undefined::NoVariance)?;
    Ok(Difference { range: Range { low: value - half, high: value + half }, p_value })
}

/// The k-th lowest and the k-th highest of R resamples, k being the greatest number below 0.025 (R + 1), and twice the share
/// of those beyond 0, as if the difference found were one of them (Davison and Hinkley 1997, equations 5.6 and 4.11).
fn by_quantiles(mut resampled: Vec<f64>) -> Difference {
    resampled.sort_unstable_by(f64::total_cmp);
    let all = (resampled.len() + 1) as f64;
    let k = ((0.025 * all).ceil() as usize).saturating_sub(1).max(1);
    let range = Range { low: resampled[k - 1], high: resampled[resampled.len() - k] };
    let below = resampled.iter().filter(|one| **one <= 0.0).count();
    let above = resampled.iter().filter(|one| **one >= 0.0).count();
    let p_value = (2.0 * (below.min(above) + 1) as f64 / all).min(1.0);
    Difference { range, p_value }
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
        let basis = Basis { link: Link::Identity, freedom: Ok(399.0) };
        let found = range(&Resampler::new(400, None, 2), 4000, basis, mean(&values));
        let found = found.expect("defined");
        assert!((found.low - (middle - 1.96 * error)).abs() < 0.1 * error, "{found:?}");
        assert!((found.high - (middle + 1.96 * error)).abs() < 0.1 * error, "{found:?}");
        // Twenty images of each patient are no more than twenty patients' worth.
        let patients: Vec<usize> = (0..400).map(|image| image / 20).collect();
        let alike: Vec<f64> = patients.iter().map(|&patient| patient as f64).collect();
        let of = |patients| {
            let resampler = Resampler::new(400, patients, 2);
            let found = range(&resampler, 2000, basis, mean(&alike)).expect("defined");
            found.high - found.low
        };
        let ratio = of(Some(&patients[..])) / of(None);
        assert!((ratio - 20_f64.sqrt()).abs() < 0.4, "{ratio}");
    }

    #[test]
    fn a_difference_is_paired() {
        let first: Vec<f64> = (0..60).map(|place| f64::from(place * 37 % 101)).collect();
        let second: Vec<f64> =
            first.iter().enumerate().map(|(place, value)| value - (place % 3) as f64).collect();
        let resampler = Resampler::new(60, None, 4);
        let of = |second: &[f64]| {
            difference(&resampler, 4000, Ok(Form::Student(59.0)), mean(&first), mean(second))
        };
        let found = of(&second).expect("defined");
        // The differences are 0, 1 and 2, whatever the patients' own numbers: a paired t-test of these.
        let half = student_quantile(59.0).expect("defined") * (2.0_f64 / 3.0 / 59.0).sqrt();
        assert!((found.range.low - (1.0 - half)).abs() < 0.1 * half, "{found:?}");
        assert!((found.range.high - (1.0 + half)).abs() < 0.1 * half, "{found:?}");
        assert!(found.p_value < 1e-9, "{found:?}");
        let same = of(&first).expect("defined");
        assert_eq!((same.range.low, same.range.high, same.p_value), (0.0, 0.0, 1.0));
        // However the patients are drawn, one model is better by 1.
        let always: Vec<f64> = first.iter().map(|value| value - 1.0).collect();
        assert_eq!(of(&always), Err(Undefined::NoVariance));
    }

    #[test]
    fn an_interval_of_a_difference_holds_0_just_where_its_p_value_is_above_5_percent() {
        let resampler = Resampler::new(12, None, 9);
        let first: Vec<f64> = (0..12).map(|place| f64::from(place * 5 % 12)).collect();
        for form in [Form::Student(11.0), Form::StudentOfJackknife, Form::Quantiles] {
            let mut below = 0;
            for (shift, resamples) in (0..60).flat_map(|shift| [(shift, 300), (shift, 199)]) {
                let second: Vec<f64> =
                    (0..12).map(|place| f64::from(place * 7 % 12 - shift)).collect();
                let found =
                    difference(&resampler, resamples, Ok(form), mean(&first), mean(&second));
                let found = found.expect("defined");
                let holds = found.range.low <= 0.0 && 0.0 <= found.range.high;
                assert_eq!(holds, found.p_value >= 0.05, "{form:?} {found:?}");
                below += usize::from(found.p_value < 0.05);
            }
            assert!((1..120).contains(&below), "{form:?} {below}");
        }
    }

    #[test]
    fn quantiles_are_those_that_leave_one_in_forty_out_at_either_end() {
        // 199 resamples are 200 parts: the fifth is the 2.5% quantile, which belongs to the interval no more.
        let found = by_quantiles((-50..149).rev().map(f64::from).collect());
        assert_eq!((found.range.low, found.range.high), (-47.0, 145.0));
        assert!((found.p_value - 2.0 * 52.0 / 200.0).abs() < 1e-12, "{found:?}");
        let alone = by_quantiles(vec![0.5]);
        assert_eq!((alone.range.low, alone.range.high, alone.p_value), (0.5, 0.5, 1.0));
    }

    #[test]
    fn a_mean_has_the_form_of_its_labels() {
        let alone = Err(Undefined::OneCluster { class: "positive" });
        let students = [Ok(Form::Student(3.0)), alone, Ok(Form::Student(5.0))];
        assert_eq!(form_of_mean(&students), Ok(Form::Student(4.0)));
        assert_eq!(form_of_mean(&[alone, Ok(Form::Quantiles)]), Ok(Form::Quantiles));
        assert_eq!(form_of_mean(&[alone, alone]), alone);
        assert_eq!(form_of_mean(&[]), Err(Undefined::EveryLabel));
    }

    #[test]
    fn a_metric_without_a_value_anywhere_has_no_interval() {
        let resampler = Resampler::new(5, None, 1);
        let basis = |freedom| Basis { link: Link::Identity, freedom };
        let given = basis(Ok(4.0));
        assert_eq!(range(&resampler, 10, given, |_| None), Err(Undefined::EveryResample));
        let count = |times: &[u64]| Some(times[0] as f64);
        let alone = Undefined::OneCluster { class: "positive" };
        assert_eq!(range(&resampler, 10, basis(Err(alone)), count), Err(alone));
        let both = ranges(&resampler, 10, &[given; 2], |times| vec![count(times), Some(1.0)]);
        assert!(both[0].is_ok());
        assert_eq!(both[1], Err(Undefined::NoVariance));
        let none = difference(&resampler, 10, Ok(Form::Student(4.0)), |_| None, |_| Some(1.0));
        assert_eq!(none, Err(Undefined::EveryResample));
    }

    #[test]
    fn degrees_of_freedom_count_patients() {
        let resampler = Resampler::new(6, Some(&[0, 0, 1, 1, 2, 3]), 1);
        let truth = [true, false, true, false, false, false];
        let images = truth.iter().copied().enumerate();
        assert_eq!(freedom_of_classes(&resampler, images), Ok(welch(2, 4).expect("defined")));
        let one = [true, true, false, false, false, false].into_iter().enumerate();
        let alone = Err(Undefined::OneCluster { class: "positive" });
        assert_eq!(freedom_of_classes(&resampler, one), alone);
        assert_eq!(freedom_of_images(&resampler, 0..6), Ok(3.0));
        assert!(freedom_of_images(&resampler, 0..2).is_err());
        let errors = [1.0, -2.0, 0.5, 3.0, 0.25, 1.5].into_iter().enumerate();
        let found = freedom_of_errors(&resampler, errors.clone()).expect("defined");
        assert!(1.0 < found && found < 3.0, "{found}");
        // A patient's images twice are the same patient.
        let twice = Resampler::new(12, Some(&[0, 0, 1, 1, 2, 3, 3, 2, 1, 1, 0, 0]), 1);
        let mirrored = errors.clone().map(|(image, error)| (11 - image, error));
        let again = freedom_of_errors(&twice, errors.clone().chain(mirrored)).expect("defined");
        assert!((again - found).abs() < 1e-12, "{again} {found}");
        assert!(freedom_of_errors(&resampler, errors.take(2)).is_err());
        assert_eq!(freedom_of_mean(&[Ok(3.0), alone, Ok(5.0)]), Ok(4.0));
        assert_eq!(freedom_of_mean(&[alone]), alone);
    }
}
