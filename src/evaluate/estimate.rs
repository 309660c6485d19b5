//! A value with its 95% interval, and the interval of a proportion.

use serde::Serialize;

use super::Undefined;

/// The 97.5% quantile of the standard normal distribution.
pub(super) const Z: f64 = 1.959_963_984_540_054;

/// A 95% interval, in the unit of the value it is about.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Range {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// A metric's value and its 95% interval; each may be undefined.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// The value; `None` where it is undefined.
    pub value: Option<f64>,
    /// The lower end of the interval; `None` where there is none.
    pub low: Option<f64>,
    /// The upper end of the interval; `None` where there is none.
    pub high: Option<f64>,
    /// Why there is no value, or no interval of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undefined: Option<Undefined>,
}

impl Estimate {
    /// Puts together a value and the interval found for it.
    pub fn new(value: Result<f64, Undefined>, range: Result<Range, Undefined>) -> Self {
        // A value that is undefined has no interval, whatever was found.
        let range = value.and(range);
        Self {
            value: value.ok(),
            low: range.ok().map(|range| range.low),
            high: range.ok().map(|range| range.high),
            undefined: value.err().or(range.err()),
        }
    }

    /// A value for which no interval is offered.
    pub(super) fn without_range(value: Result<f64, Undefined>) -> Self {
        Self { value: value.ok(), low: None, high: None, undefined: value.err() }
    }
}

/// The score interval of a proportion (Wilson 1927), which stays within 0 and 1 and is right for few
/// images too; `None` of no images. It takes the images to be independent.
///
/// It is `proportion_confint(successes, of, method="wilson")` of statsmodels.
pub fn wilson(successes: usize, of: usize) -> Option<Range> {
    if of == 0 {
        return None;
    }
    Some(wilson_of_share(successes as f64 / of as f64, of as f64, Z))
}

/// The same of a `share` of `n`, which may be no whole number, for the quantile of the normal distribution.
pub(super) fn wilson_of_share(share: f64, n: f64, quantile: f64) -> Range {
    let squared = quantile * quantile;
    let middle = share + squared / (2.0 * n);
    let spread = quantile * (share * (1.0 - share) / n + squared / (4.0 * n * n)).sqrt();
    let end = |sign: f64| (middle + sign * spread) / (1.0 + squared / n);
    // At the ends the sums cancel but for rounding.
    let low = if share == 0.0 { 0.0 } else { end(-1.0) };
    let high = if share == 1.0 { 1.0 } else { end(1.0) };
    Range { low, high }
}
