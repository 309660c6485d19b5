//! The learning rate over a whole training; one file a schedule.

mod warmup;
mod linear;
mod cosine;
mod step;
mod one_cycle;
mod plateau;

pub use plateau::PlateauState;

use serde::{Deserialize, Serialize};

use super::{OptimError, ScheduleConfig};
use cosine::Cosine;
use linear::Linear;
use one_cycle::OneCycle;
use plateau::Plateau;
use step::Steps;

/// The learning rate at each optimizer step.
#[derive(Debug, Clone)]
pub struct Schedule(Curve);

#[derive(Debug, Clone)]
enum Curve {
    Constant(f64),
    Linear(Linear),
    Cosine(Cosine),
    Step(Steps),
    OneCycle(OneCycle),
    Plateau(Plateau),
}

/// What a [`Schedule`] remembers beyond the number of steps.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScheduleState {
    /// The plateau schedule's; `null` for every other.
    pub plateau: Option<PlateauState>,
}

impl ScheduleConfig {
    /// The schedule of a training of `epochs` epochs of `steps_per_epoch` optimizer steps, from the
    /// optimizer's learning rate `lr`. `higher_is_better` is the direction of
    /// [`ScheduleConfig::metric`]; the schedules that watch none ignore it.
    pub fn init(
        &self,
        lr: f64,
        steps_per_epoch: usize,
        epochs: usize,
        higher_is_better: bool,
    ) -> Schedule {
        let steps_per_epoch = steps_per_epoch.max(1);
        let total = (steps_per_epoch * epochs).max(1);
        Schedule(match self {
            Self::Constant(_) => Curve::Constant(lr),
            Self::Linear(config) => Curve::Linear(Linear::new(config, lr, steps_per_epoch, total)),
            Self::Cosine(config) => Curve::Cosine(Cosine::new(config, lr, steps_per_epoch, total)),
            Self::Step(config) => Curve::Step(Steps::new(config, lr, steps_per_epoch)),
            Self::OneCycle(config) => Curve::OneCycle(OneCycle::new(config, lr, total)),
            Self::Plateau(config) => Curve::Plateau(Plateau::new(config, lr, higher_is_better)),
        })
    }

    /// The schedule's name and the epochs that its rate rises for, where it rises first. A warm-up
    /// longer than the training ends with it.
    pub fn warmup_epochs(&self) -> Option<(&'static str, f64)> {
        match self {
            Self::Linear(config) => Some(("linear", config.warmup_epochs)),
            Self::Cosine(config) => Some(("cosine", config.warmup_epochs)),
            Self::Constant(_) | Self::Step(_) | Self::OneCycle(_) | Self::Plateau(_) => None,
        }
    }

    /// The metric that the schedule watches, if it watches one.
    pub fn metric(&self) -> Option<&str> {
        match self {
            Self::Plateau(config) => Some(&config.metric),
            _ => None,
        }
    }
}

impl Schedule {
    /// The learning rate of optimizer step `step`, counted from 0 over the whole training. Steps
    /// beyond the last have the last one's rate, but under `constant`, `step` and `plateau`, which
    /// have no end.
    pub fn lr(&self, step: usize) -> f64 {
        match &self.0 {
            Curve::Constant(lr) => *lr,
            Curve::Linear(curve) => curve.lr(step),
            Curve::Cosine(curve) => curve.lr(step),
            Curve::Step(curve) => curve.lr(step),
            Curve::OneCycle(curve) => curve.lr(step),
            Curve::Plateau(curve) => curve.lr(),
        }
    }

    /// Takes note of the watched metric at the end of an epoch. An epoch in which it is undefined
    /// (`None`) is passed over.
    pub fn observe(&mut self, metric: Option<f64>) {
        if let Curve::Plateau(curve) = &mut self.0 {
            curve.observe(metric);
        }
    }

    /// What must be saved to go on.
    pub fn state(&self) -> ScheduleState {
        ScheduleState {
            plateau: match &self.0 {
                Curve::Plateau(curve) => Some(curve.state()),
                _ => None,
            },
        }
    }

    /// Goes on from `state`; on an error nothing changes.
    pub fn load(&mut self, state: ScheduleState) -> Result<(), OptimError> {
        let what = "schedule";
        let names = vec!["plateau".to_owned()];
        match (&mut self.0, state.plateau) {
            (Curve::Plateau(curve), Some(state)) => curve.load(state),
            (Curve::Plateau(_), None) => return Err(OptimError::Missing { what, names }),
            (_, Some(_)) => return Err(OptimError::Foreign { what, names }),
            (_, None) => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choice::{NoSettings, name_of, names_of};
    use crate::optim::oracle;
    use crate::optim::{CosineConfig, LinearConfig, OneCycleConfig, PlateauConfig};

    #[derive(Deserialize)]
    struct Fixture {
        lr: f64,
        steps_per_epoch: usize,
        epochs: usize,
        cases: Vec<Case>,
    }

    #[derive(Deserialize)]
    struct Case {
        config: ScheduleConfig,
        rates: Vec<f64>,
    }

    #[test]
    fn rates_are_those_of_pytorchs_schedulers_at_every_step() {
        let fixture: Fixture = oracle::section("schedules");
        for Case { config, rates } in &fixture.cases {
            let schedule = config.init(fixture.lr, fixture.steps_per_epoch, fixture.epochs, false);
            assert_eq!(rates.len(), fixture.steps_per_epoch * fixture.epochs);
            for (step, expected) in rates.iter().enumerate() {
                let error = (schedule.lr(step) - expected).abs();
                assert!(
                    error < 1e-12,
                    "{config:?}, step {step}: {}, PyTorch has {expected}",
                    schedule.lr(step)
                );
            }
        }
    }

    #[test]
    fn every_schedule_that_moves_has_cases_from_its_oracle() {
        let fixture: Fixture = oracle::section("schedules");
        let cases: Vec<&str> = fixture.cases.iter().map(|case| name_of(&case.config)).collect();
        for name in names_of::<ScheduleConfig>() {
            // Those of `plateau`, which also need a metric, are in a section of their own.
            let elsewhere = ["constant", "plateau"].contains(&&*name);
            assert!(
                elsewhere || cases.contains(&&*name),
                "tests/fixtures/optimizers.py has no `{name}`"
            );
        }
    }

    #[test]
    fn warm_up_starts_above_0_and_reaches_the_full_rate() {
        let config = CosineConfig { warmup_epochs: 2.0, end_factor: 0.0 };
        let schedule = ScheduleConfig::Cosine(config).init(0.8, 4, 10, false);
        assert_eq!(schedule.lr(0), 0.1);
        assert_eq!(schedule.lr(7), 0.8);
    }

    #[test]
    fn a_warm_up_longer_than_the_training_rises_to_the_full_rate_at_its_end() {
        for (warmup_epochs, epochs) in [(1.0, 1), (2.0, 1), (7.5, 3)] {
            for config in [
                ScheduleConfig::Linear(LinearConfig { warmup_epochs, end_factor: 0.0 }),
                ScheduleConfig::Cosine(CosineConfig { warmup_epochs, end_factor: 0.0 }),
            ] {
                for steps_per_epoch in [1, 4] {
                    let schedule = config.init(0.8, steps_per_epoch, epochs, false);
                    let last = steps_per_epoch * epochs - 1;
                    assert_eq!(schedule.lr(last), 0.8, "{config:?}");
                    assert!((0..last).all(|step| schedule.lr(step) < schedule.lr(step + 1)));
                }
            }
        }
    }

    #[test]
    fn curves_with_an_end_stay_at_their_last_rate() {
        for config in [
            ScheduleConfig::Linear(LinearConfig { warmup_epochs: 1.0, end_factor: 0.1 }),
            ScheduleConfig::Cosine(CosineConfig { warmup_epochs: 0.5, end_factor: 0.01 }),
            ScheduleConfig::OneCycle(OneCycleConfig::default()),
        ] {
            let schedule = config.init(0.3, 7, 3, false);
            let last = schedule.lr(20);
            assert!(last < schedule.lr(19), "{config:?} falls to its end");
            assert!((21..100).all(|step| schedule.lr(step) == last), "{config:?} stays there");
        }
    }

    #[test]
    fn trainings_of_a_few_steps_have_a_finite_rate() {
        for config in [
            ScheduleConfig::Linear(LinearConfig { warmup_epochs: 0.9, end_factor: 0.0 }),
            ScheduleConfig::Cosine(CosineConfig { warmup_epochs: 0.4, end_factor: 0.5 }),
            ScheduleConfig::OneCycle(OneCycleConfig { pct_start: 0.5, ..Default::default() }),
            ScheduleConfig::Constant(NoSettings {}),
        ] {
            for total in 1..5 {
                let schedule = config.init(0.3, total, 1, false);
                for step in 0..total {
                    let lr = schedule.lr(step);
                    assert!((0.0..=0.3).contains(&lr), "{config:?}, step {step}/{total}: {lr}");
                }
            }
        }
    }

    #[test]
    fn a_state_of_another_schedule_is_refused() {
        let mut constant = ScheduleConfig::default().init(0.1, 1, 1, false);
        let mut plateau = ScheduleConfig::Plateau(PlateauConfig::default()).init(0.1, 1, 1, false);
        assert!(matches!(plateau.load(constant.state()), Err(OptimError::Missing { .. })));
        assert!(matches!(constant.load(plateau.state()), Err(OptimError::Foreign { .. })));
    }
}
