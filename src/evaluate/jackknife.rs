//! The interval of a metric from leaving each patient out in turn ([`Jackknife`]).

use super::bootstrap::Basis;
use super::{Range, Undefined};
use crate::metric::{Interval, Jackknife, Link, Resampler};

/// The 95% interval of a metric, which is told how often each image occurs.
///
/// # Errors
/// A metric without a value; fewer than two patients; no degrees of freedom; or the same value whoever is left out.
pub(super) fn range(
    resampler: &Resampler,
    basis: Basis,
    metric: impl Fn(&[u64]) -> Option<f64> + Sync,
) -> Result<Range, Undefined> {
    let value = metric(&vec![1; resampler.images()]).ok_or(Undefined::EveryLabel)?;
    let (found, freedom) = (of(resampler, value, metric)?, basis.freedom?);
    let found = Interval::student(value, found.bias, found.error, basis.link, freedom);
    let Interval { low, high } = found.ok_or(Undefined::NoVariance)?;
    Ok(Range { low, high })
}

/// The 95% interval of a metric from leaving patients out on a scale on which it has no ends: bias, standard error and degrees
/// of freedom are those of the metric there.
///
/// A standard error in the metric's own unit, such as a bootstrap's, is made one of the scale by the slope at the value,
/// and that is too small where the value is; on a scale on which a metric spreads alike whatever it is, Student's interval is right for few
/// too (Miller 1968, "Jackknifing variances", on the logarithm; Cressie 1981, "Transformations and the jackknife"). Over
/// few patients, resamples of R² have some in which nearly all targets are alike, which make its spread too great.
///
/// # Errors
/// A metric without a value; fewer than two patients; or the same value whoever is left out.
pub(super) fn range_on(
    resampler: &Resampler,
    link: Link,
    metric: impl Fn(&[u64]) -> Option<f64> + Sync,
) -> Result<Range, Undefined> {
    let value = metric(&vec![1; resampler.images()]).ok_or(Undefined::EveryLabel)?;
    let there = link.there(value);
    let found = of(resampler, there, |times| metric(times).map(|one| link.there(one)))?;
    let Jackknife { bias, error, freedom } = found;
    let found = Interval::student(there, bias, error, Link::Identity, freedom);
    let Interval { low, high } = found.ok_or(Undefined::NoVariance)?;
    Ok(Range { low: link.back(low), high: link.back(high) })
}

/// What leaving patients out tells of a metric that has this `value`.
///
/// # Errors
/// Fewer than two patients.
pub(super) fn of(
    resampler: &Resampler,
    value: f64,
    metric: impl Fn(&[u64]) -> Option<f64> + Sync,
) -> Result<Jackknife, Undefined> {
    let left_out: Vec<f64> = resampler.left_out(metric).into_iter().flatten().collect();
    Jackknife::of(value, &left_out).ok_or(Undefined::OneCluster { class: "known" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate::r2;
    use crate::metric::regression::mae;

    #[derive(serde::Deserialize)]
    struct Fixture {
        jackknifed: Vec<Case>,
    }

    /// Intervals from astropy's jackknife on the logarithm, with SciPy's quantiles and kurtosis.
    #[derive(serde::Deserialize)]
    struct Case {
        targets: Vec<f64>,
        outputs: Vec<f64>,
        mae: [f64; 2],
        r2: [f64; 2],
    }

    #[test]
    fn intervals_of_errors_are_those_of_astropys_jackknife_on_the_scale() {
        let text = include_str!("../../tests/fixtures/metrics.json");
        let cases = serde_json::from_str::<Fixture>(text).expect("the fixture reads").jackknifed;
        assert_eq!(cases.len(), 2);
        for Case { targets, outputs, mae: of_mae, r2: of_r2 } in cases {
            let resampler = Resampler::new(targets.len(), None, 0);
            let there = |times: &[u64]| -> (Vec<f64>, Vec<f64>) {
                let images = (0..times.len()).filter(|&image| times[image] > 0);
                images.map(|image| (outputs[image], targets[image])).unzip()
            };
            let error = |times: &[u64]| {
                let (outputs, targets) = there(times);
                mae(&outputs.iter().zip(&targets).map(|(z, y)| z - y).collect::<Vec<f64>>())
            };
            let explained = |times: &[u64]| {
                let (outputs, targets) = there(times);
                r2(&outputs, &targets).ok()
            };
            let found = range_on(&resampler, Link::Log, error).expect("defined");
            let of = range_on(&resampler, Link::LogOfRest, explained).expect("defined");
            for (ours, theirs) in [
                (found.low, of_mae[0]),
                (found.high, of_mae[1]),
                (of.low, of_r2[0]),
                (of.high, of_r2[1]),
            ] {
                assert!((ours - theirs).abs() < 1e-9, "{ours} for {theirs}");
            }
        }
    }

    #[test]
    fn what_does_not_vary_and_one_patient_have_no_interval() {
        let once =
            |times: &[u64]| Some(times.iter().map(|_| 0.5).sum::<f64>() / times.len() as f64);
        let of = |patients: &[usize]| {
            range_on(&Resampler::new(patients.len(), Some(patients), 0), Link::Log, once)
        };
        assert_eq!(of(&[0, 1, 2]), Err(Undefined::NoVariance));
        assert_eq!(of(&[7, 7, 7]), Err(Undefined::OneCluster { class: "known" }));
    }
}
