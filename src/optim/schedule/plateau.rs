//! Drops when a metric has stopped improving.

use serde::{Deserialize, Serialize};

use crate::optim::PlateauConfig;

/// PyTorch's `ReduceLROnPlateau` ignores drops smaller than this.
const SMALLEST_DROP: f64 = 1e-8;

/// PyTorch's `ReduceLROnPlateau` with `threshold_mode="abs"` and no cooldown. A metric that is not
/// finite counts as no improvement, as PyTorch counts NaN. An epoch in which it is undefined is passed
/// over, as if `step` had not been called.
#[derive(Debug, Clone)]
pub(super) struct Plateau {
    config: PlateauConfig,
    higher_is_better: bool,
    state: PlateauState,
}

/// What the plateau schedule remembers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlateauState {
    /// The learning rate now.
    pub lr: f64,
    /// The best metric so far.
    pub best: Option<f64>,
    /// Epochs since then, or since the last drop.
    pub bad_epochs: usize,
}

impl Plateau {
    pub(super) fn new(config: &PlateauConfig, lr: f64, higher_is_better: bool) -> Self {
        let state = PlateauState { lr, best: None, bad_epochs: 0 };
        Self { config: config.clone(), higher_is_better, state }
    }

    pub(super) fn lr(&self) -> f64 {
        self.state.lr
    }

    pub(super) fn observe(&mut self, metric: Option<f64>) {
        let Some(metric) = metric else { return };
        if self.improves(metric) {
            self.state.best = Some(metric);
            self.state.bad_epochs = 0;
        } else {
            self.state.bad_epochs += 1;
        }
        if self.state.bad_epochs > self.config.patience {
            self.state.bad_epochs = 0;
            let lower = (self.state.lr * self.config.factor).max(self.config.min_lr);
            if self.state.lr - lower > SMALLEST_DROP {
                self.state.lr = lower;
            }
        }
    }

    fn improves(&self, metric: f64) -> bool {
        let Some(best) = self.state.best else { return metric.is_finite() };
        metric.is_finite()
            && if self.higher_is_better {
                metric > best + self.config.min_delta
            } else {
                metric < best - self.config.min_delta
            }
    }

    pub(super) fn state(&self) -> PlateauState {
        self.state.clone()
    }

    pub(super) fn load(&mut self, state: PlateauState) {
        self.state = state;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::optim::{ScheduleConfig, ScheduleState, oracle};

    #[derive(Deserialize)]
    struct Case {
        config: ScheduleConfig,
        higher_is_better: bool,
        lr: f64,
        /// NaN is `null`.
        metrics: Vec<Option<f64>>,
        /// After each metric.
        rates: Vec<f64>,
    }

    impl Case {
        fn metrics(&self) -> Vec<f64> {
            self.metrics.iter().map(|metric| metric.unwrap_or(f64::NAN)).collect()
        }
    }

    #[test]
    fn rates_drop_where_pytorchs_do() {
        for case in oracle::section::<Vec<Case>>("plateaus") {
            let mut schedule = case.config.init(case.lr, 3, 100, case.higher_is_better);
            assert_eq!(schedule.lr(0), case.lr);
            for (epoch, (metric, expected)) in case.metrics().iter().zip(&case.rates).enumerate() {
                schedule.observe(Some(*metric));
                assert_eq!(schedule.lr(epoch * 3), *expected, "{:?}, epoch {epoch}", case.config);
            }
        }
    }

    #[test]
    fn a_schedule_loaded_from_json_goes_on_as_the_whole_one() {
        for case in oracle::section::<Vec<Case>>("plateaus") {
            let metrics = case.metrics();
            for cut in 0..metrics.len() {
                let mut first = case.config.init(case.lr, 3, 100, case.higher_is_better);
                metrics[..cut].iter().for_each(|metric| first.observe(Some(*metric)));
                let saved = serde_json::to_string(&first.state()).expect("writes");
                let mut second = case.config.init(case.lr, 3, 100, case.higher_is_better);
                second.load(serde_json::from_str(&saved).expect("reads")).expect("loads");
                for (metric, expected) in metrics[cut..].iter().zip(&case.rates[cut..]) {
                    second.observe(Some(*metric));
                    assert_eq!(second.lr(0), *expected);
                }
            }
        }
    }

    #[test]
    fn epochs_in_which_the_metric_is_undefined_change_no_rate() {
        for case in oracle::section::<Vec<Case>>("plateaus") {
            let mut schedule = case.config.init(case.lr, 3, 100, case.higher_is_better);
            for (metric, expected) in case.metrics().iter().zip(&case.rates) {
                (0..9).for_each(|_| schedule.observe(None));
                schedule.observe(Some(*metric));
                assert_eq!(schedule.lr(0), *expected, "{:?}", case.config);
            }
        }
    }

    #[test]
    fn infinite_metrics_never_become_the_best() {
        let config = ScheduleConfig::Plateau(PlateauConfig::default());
        let mut schedule = config.init(0.1, 1, 1, false);
        schedule.observe(Some(f64::NEG_INFINITY));
        assert_eq!(schedule.state().plateau.expect("watches").best, None);
    }

    proptest! {
        #[test]
        fn a_state_keeps_every_bit_through_json(lr in any::<f64>(), best in any::<f64>()) {
            prop_assume!(lr.is_finite() && best.is_finite());
            let plateau = Some(PlateauState { lr, best: Some(best), bad_epochs: 3 });
            let state = ScheduleState { plateau };
            let text = serde_json::to_string(&state).expect("writes");
            prop_assert_eq!(serde_json::from_str::<ScheduleState>(&text).expect("reads"), state);
        }
    }
}
