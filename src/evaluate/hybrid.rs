//! The interval of a difference from the intervals of the two: MOVER, the method of variance estimates recovery.
//!
//! ```text
//! from  d − √((a − lₐ)² + (u_b − b)²)   to  d + √((uₐ − a)² + (b − l_b)²),   of d = a − b
//! ```
//!
//! Newcombe (1998), "Interval estimation for the difference between independent proportions", has it as method 10; Zou and
//! Yue (2013), "Using confidence intervals to compare several correlated areas under the receiver operating
//! characteristic curves", take it for AUROCs. Theirs has a term more, of the correlation of the two. Here it is for data
//! that tell of no correlation; without that term the interval is as wide as for models on different patients, and for
//! models on the same ones no narrower than it should be.

use super::Range;
use super::bootstrap::Difference;
use crate::metric::interval::{student_beyond, student_quantile};

/// No quantile is looked for beyond this.
const FARTHEST: f64 = 50.0;

/// The difference of `first` and `second`, whose intervals `ranges` gives for a Student's quantile with these degrees of
/// `freedom`. The p-value is the one for which the interval ends at 0. `None` of less than one degree of freedom.
pub(super) fn hybrid(
    [first, second]: [f64; 2],
    freedom: f64,
    ranges: impl Fn(f64) -> [Range; 2],
) -> Option<Difference> {
    let difference = first - second;
    let reach = |quantile: f64| {
        let [a, b] = ranges(quantile);
        let below = (first - a.low).hypot(b.high - second);
        (below, (a.high - first).hypot(second - b.low))
    };
    let (below, above) = reach(student_quantile(freedom)?);
    let range = Range { low: difference - below, high: difference + above };
    let holds_0 = |quantile: f64| {
        let (below, above) = reach(quantile);
        difference - below <= 0.0 && 0.0 <= difference + above
    };
    let (mut without, mut with) = (0.0, FARTHEST);
    if difference == 0.0 {
        with = 0.0;
    }
    for _ in 0..100 {
        let middle = f64::midpoint(without, with);
        *(if holds_0(middle) { &mut with } else { &mut without }) = middle;
    }
    Some(Difference { range, p_value: student_beyond(with, freedom)? })
}
