//! The metric that is monitored: which epoch is best, and when training no longer gets better.

use serde::{Deserialize, Serialize};

use crate::plan::Monitor;

/// Follows one metric over the epochs.
///
/// An epoch in which the metric is undefined is passed over: it counts neither as an improvement nor
/// as an epoch without one. A value that is not finite is no improvement. The first finite value
/// always is one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MonitorState {
    /// The best value so far.
    pub best: Option<f64>,
    /// Its epoch, counted from 1.
    pub best_epoch: Option<usize>,
    /// Epochs since then in which the metric was defined.
    pub without_improvement: usize,
}

impl MonitorState {
    /// Takes note of an epoch's value; says whether it is the best so far by more than `min_delta`.
    pub fn observe(
        &mut self,
        epoch: usize,
        value: Option<f64>,
        monitor: &Monitor,
        min_delta: f64,
    ) -> bool {
        let Some(value) = value else { return false };
        let better = |best| monitor.improves(value, best, min_delta);
        let improved = value.is_finite() && self.best.is_none_or(better);
        if improved {
            *self = Self { best: Some(value), best_epoch: Some(epoch), without_improvement: 0 };
        } else {
            self.without_improvement += 1;
        }
        improved
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Mode;

    fn observed(values: &[Option<f64>], mode: Mode, min_delta: f64) -> (MonitorState, Vec<bool>) {
        let mut state = MonitorState::default();
        let monitor = Monitor { metric: "val/findings/auroc".into(), mode };
        let improved = values.iter().enumerate();
        let improved = improved
            .map(|(index, value)| state.observe(index + 1, *value, &monitor, min_delta))
            .collect();
        (state, improved)
    }

    #[test]
    fn only_a_change_beyond_min_delta_in_the_right_direction_is_better() {
        let rising = [Some(0.5), Some(0.505), Some(0.52), Some(0.4)];
        let (state, improved) = observed(&rising, Mode::Max, 0.01);
        assert_eq!(improved, [true, false, true, false]);
        assert_eq!(
            state,
            MonitorState { best: Some(0.52), best_epoch: Some(3), without_improvement: 1 }
        );
        let (_, improved) = observed(&rising, Mode::Min, 0.01);
        assert_eq!(improved, [true, false, false, true]);
    }

    #[test]
    fn an_epoch_in_which_the_metric_is_undefined_counts_for_nothing() {
        let (state, improved) = observed(&[None, None, None], Mode::Max, 0.0);
        assert_eq!((state, improved), (MonitorState::default(), vec![false; 3]));
        let (state, improved) = observed(&[None, Some(0.1), None, Some(0.1), None], Mode::Max, 0.0);
        assert_eq!(improved, [false, true, false, false, false]);
        assert_eq!(
            state,
            MonitorState { best: Some(0.1), best_epoch: Some(2), without_improvement: 1 }
        );
    }

    #[test]
    fn a_value_that_is_not_finite_is_an_epoch_without_improvement() {
        for broken in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            for mode in [Mode::Min, Mode::Max] {
                let (state, improved) =
                    observed(&[Some(broken), Some(0.1), Some(broken)], mode, 0.0);
                assert_eq!(improved, [false, true, false], "{broken}");
                assert_eq!((state.best, state.without_improvement), (Some(0.1), 1), "{broken}");
            }
        }
    }
}
