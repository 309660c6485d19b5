//! The interval of the difference of two models' AUROCs, with the variance that each difference would have.
//!
//! Where positives are few, two models may by luck disagree on fewer pairs of a positive and a negative than they would on
//! others. Then both the difference and its variance are too small, and Student's interval ends before the difference that
//! is true. A score interval asks of each difference δ whether the one found, d, is likely with the variance that δ
//! would have:
//!
//! ```text
//! all δ with |d − δ| ≤ h · √(max(1, v(δ) / v(δ₀))),    v(δ) = 2 q + δ − δ²
//! ```
//!
//! - h is half of Student's interval, and δ₀ the value from 0 to d that is nearest to δ. So between 0 and d the variance is
//!   the one found, and the interval holds 0 just where the p-value says so.
//! - v is the variance of the difference of two paired shares by Tango (1998), "Equivalence test and confidence interval
//!   for the difference in proportions for the paired-sample design": a pair goes to the first model alone with probability
//!   q + δ and to the second alone with q. q is the likeliest for δ where the models disagree on a share g of pairs,
//!   the larger root of 2 q² + ((2 − d) δ − g) q − (g − d) / 2 · δ (1 − δ) = 0. How many pairs there are does not matter.

use super::Range;
use super::score_interval::last;

/// On how many pairs of a positive and a negative two models disagree.
#[derive(Debug, Clone, Copy)]
pub(super) struct Discordance {
    /// The first AUROC less the second.
    pub difference: f64,
    /// The share of pairs that one model alone ranks rightly; a tie counts half. At least as great as the difference.
    pub share: f64,
}

impl Discordance {
    /// The interval, where half of Student's is `half`.
    pub fn range(&self, half: f64) -> Range {
        let end =
            |of: f64| last(self.difference, of, |difference| self.is_likely(difference, half));
        Range { low: end(-1.0), high: end(1.0) }
    }

    fn is_likely(&self, difference: f64, half: f64) -> bool {
        let found = self.difference;
        let nearest = difference.clamp(found.min(0.0), found.max(0.0));
        let grown = (self.variance(difference) / self.variance(nearest)).max(1.0);
        (found - difference).abs() <= half * grown.sqrt()
    }

    /// v(δ).
    fn variance(&self, difference: f64) -> f64 {
        let Self { difference: found, share } = *self;
        let (linear, rest) = ((2.0 - found) * difference - share, difference * (1.0 - difference));
        let root = (linear * linear + 4.0 * (share - found) * rest).max(0.0).sqrt();
        (root - linear) / 2.0 + rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The quantile of the normal distribution.
    const Z: f64 = 1.959_963_984_540_054;

    /// All differences that are likely by Tango's test, of `gained`, `lost` and all pairs.
    fn tango([gained, lost, all]: [f64; 3]) -> Range {
        let difference = (gained - lost) / all;
        let found = Discordance { difference, share: (gained + lost) / all };
        let is_likely =
            |other: f64| (difference - other).powi(2) <= Z * Z * found.variance(other) / all;
        Range { low: last(difference, -1.0, is_likely), high: last(difference, 1.0, is_likely) }
    }

    /// The R package contingencytables 3.0.0, `Tango_asymptotic_score_CI_paired_2x2`, as its tests (test-ch8.R) have them;
    /// the first is of `cavo_2012`.
    #[test]
    fn intervals_of_paired_shares_are_those_that_a_package_of_r_gives() {
        for (pairs, low, high) in [
            ([6.0, 16.0, 161.0], -0.1240, -0.0054),
            ([3.0, 0.0, 3.0], -0.1230, 1.0),
            ([0.0, 3.0, 3.0], -1.0, 0.1230),
        ] {
            let range = tango(pairs);
            assert!((range.low - low).abs() < 5e-5, "{pairs:?}: {range:?}");
            assert!((range.high - high).abs() < 5e-5, "{pairs:?}: {range:?}");
        }
    }

    /// Of all shares with a difference, those of the greatest likelihood.
    #[test]
    fn the_variance_is_that_of_the_likeliest_shares() {
        for (gained, lost) in [(0.1, 0.05), (0.02, 0.3), (0.4, 0.4), (0.05, 0.0)] {
            let found = Discordance { difference: gained - lost, share: gained + lost };
            for difference in [-0.7, -0.2, -0.01, 0.0, 0.03, 0.4, 0.9] {
                let ln = |share: f64, of: f64| if share > 0.0 { share * of.ln() } else { 0.0 };
                let likelihood = |q: f64| {
                    let p = q + difference;
                    ln(gained, p) + ln(lost, q) + ln(1.0 - gained - lost, 1.0 - p - q)
                };
                let (from, to) = (f64::max(0.0, -difference), (1.0 - difference) / 2.0);
                let steps = 200_000;
                let q =
                    (1..steps).map(|step| from + (to - from) * f64::from(step) / f64::from(steps));
                let best =
                    q.max_by(|a, b| likelihood(*a).total_cmp(&likelihood(*b))).expect("some");
                let expected = 2.0 * best + difference - difference * difference;
                let ours = found.variance(difference);
                assert!(
                    (ours - expected).abs() < 1e-5,
                    "{found:?} {difference}: {ours}, {expected}"
                );
            }
            let own = gained + lost - (gained - lost).powi(2);
            assert!((found.variance(gained - lost) - own).abs() < 1e-12);
        }
    }

    /// So that its ends are found by halves.
    #[test]
    fn what_is_likely_is_one_interval_that_holds_0_where_that_of_student_does() {
        for share in [1e-4, 0.01, 0.1, 0.5, 1.0] {
            for part in [-1.0, -0.9, -0.3, 0.0, 0.5, 0.99] {
                for half in [1e-5, 0.003, 0.03, 0.2, 0.7] {
                    let difference = part * share;
                    let found = Discordance { difference, share };
                    let range = found.range(half);
                    for step in -999..1000 {
                        let other = f64::from(step) / 1000.0;
                        let within = range.low <= other && other <= range.high;
                        assert_eq!(
                            within,
                            found.is_likely(other, half),
                            "{found:?} {half} {other}"
                        );
                    }
                    assert!(range.low <= (difference - half).max(-1.0) + 1e-12, "{found:?} {half}");
                    assert!(range.high >= (difference + half).min(1.0) - 1e-12, "{found:?} {half}");
                    let holds_0 = range.low <= 0.0 && 0.0 <= range.high;
                    assert_eq!(holds_0, difference.abs() <= half, "{found:?} {half}");
                }
            }
        }
    }
}
