//! The interval of a metric from leaving each patient out in turn ([`Jackknife`]).

use super::bootstrap::Basis;
use super::{Range, Undefined};
use crate::metric::{Interval, Jackknife, Resampler};

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
