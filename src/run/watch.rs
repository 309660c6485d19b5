//! The metric watched: which epoch is best, and when training no longer gets better.

use serde::{Deserialize, Serialize};

use crate::plan::Monitor;

/// Follows one metric over the epochs.
///
/// An undefined value is no improvement. The first defined value always is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Watch {
    /// The best value so far.
    pub best: Option<f64>,
    /// Its epoch, counted from 1.
    pub best_epoch: Option<usize>,
    /// Epochs since then.
    pub without_improvement: usize,
}

impl Watch {
    /// Takes note of an epoch's value; says whether it is the best so far by more than `min_delta`.
    pub fn observe(
        &mut self,
        epoch: usize,
        value: Option<f64>,
        monitor: &Monitor,
        min_delta: f64,
    ) -> bool {
        let improved = value.is_some_and(|value| {
            self.best.is_none_or(|best| monitor.improves(value, best, min_delta))
        });
        if improved {
            *self = Self { best: value, best_epoch: Some(epoch), without_improvement: 0 };
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

    fn watched(values: &[Option<f64>], mode: Mode, min_delta: f64) -> (Watch, Vec<bool>) {
        let mut watch = Watch::default();
        let monitor = Monitor { metric: "val/findings/auroc".into(), mode };
        let improved = values.iter().enumerate();
        let improved = improved
            .map(|(index, value)| watch.observe(index + 1, *value, &monitor, min_delta))
            .collect();
        (watch, improved)
    }

    #[test]
    fn only_a_change_beyond_min_delta_in_the_right_direction_is_better() {
        let rising = [Some(0.5), Some(0.505), Some(0.52), Some(0.4)];
        let (watch, improved) = watched(&rising, Mode::Max, 0.01);
        assert_eq!(improved, [true, false, true, false]);
        assert_eq!(watch, Watch { best: Some(0.52), best_epoch: Some(3), without_improvement: 1 });
        let (_, improved) = watched(&rising, Mode::Min, 0.01);
        assert_eq!(improved, [true, false, false, true]);
    }

    #[test]
    fn an_undefined_value_is_no_improvement() {
        let (watch, improved) = watched(&[None, Some(0.1), None, None], Mode::Max, 0.0);
        assert_eq!(improved, [false, true, false, false]);
        assert_eq!(watch.without_improvement, 2);
    }
}
