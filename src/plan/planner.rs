//! Chooses how the steps of a run are taken, and how they go on where memory does not suffice.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::limits::what_would_fit;
use super::{Combination, Machine, Plan, Prediction, Predictor};
use crate::fault::{Fault, fault};
use crate::memory::{CheckpointingConfig, DenseLayers, OffloadConfig, Strategy};
use crate::ops::gpu::Kernel;
use crate::screen::{Bytes, counted};

/// How the steps of a run are taken: what a saved state remembers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chosen {
    /// The way.
    pub way: Combination,
    /// Bytes that the policy `budget` keeps within.
    pub budget: u64,
}

/// No way to take a step keeps within the budget.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{}\n{advice}", self.told())]
pub struct NothingFits {
    /// Whether nothing was left to be chosen.
    pub fixed: bool,
    /// Whether the budget is one that the user wrote.
    pub written: bool,
    /// Bytes that a step may use.
    pub budget: u64,
    /// The least peak of the ways allowed.
    pub least: u64,
    /// The images at once of that.
    pub micro_batch: usize,
    /// What would fit.
    pub advice: String,
}

impl NothingFits {
    fn told(&self) -> String {
        let (budget, least) = (Bytes(self.budget), Bytes(self.least));
        let images = images(self.micro_batch);
        match self.fixed {
            true => format!(
                "a step does not fit in {budget}: its predicted peak is {least}, with {images} at \
                 once"
            ),
            false => format!(
                "no way to take a step fits in {budget}: the least possible peak is {least}, with \
                 {images} at once"
            ),
        }
    }

    /// The same as a fault of the budget, where the user wrote one.
    pub fn fault(&self) -> Option<Fault> {
        self.written.then(|| fault("memory.budget", self.told(), &self.advice))
    }
}

fn images(count: usize) -> String {
    counted(count, "image", "images")
}

/// Knows how the steps of a run are taken.
#[derive(Debug, Clone)]
pub struct Planner {
    plan: Plan,
    machine: Machine,
    /// Bytes that a step may use; less than at first where memory has not sufficed.
    budget: u64,
    way: Combination,
    strategy: Strategy,
    prediction: Prediction,
}

impl Planner {
    /// As the configuration has it, the fastest that is predicted to fit where it leaves something
    /// open.
    ///
    /// # Errors
    ///
    /// When nothing keeps within the budget that is to be kept within.
    pub fn choose(plan: &Plan, machine: Machine) -> Result<Self, NothingFits> {
        let budget = Predictor::new(plan, machine).budget();
        let configured = Combination::configured(&plan.memory, plan.train.batch_size);
        let of = |way| Self::new(plan.clone(), machine, budget, way);
        let automatic = plan.memory.is_auto();
        if !automatic && !keeps_within(&configured) {
            let planner = of(configured);
            // Where no budget is written, what is predicted to be too much may still be tried.
            let fits = plan.memory.budget.is_none() || planner.prediction.peak <= budget;
            return match fits {
                true => Ok(planner),
                false => Err(NothingFits {
                    fixed: true,
                    written: true,
                    budget,
                    least: planner.prediction.peak,
                    micro_batch: planner.way.micro_batch,
                    advice: planner.what_would_fit(),
                }),
            };
        }
        let eligible = match automatic {
            true => plan.eligible(&machine),
            false => vec![configured.clone()],
        };
        match fastest(plan, machine, &eligible) {
            Some(way) => Ok(of(way)),
            None => Err(nothing_fits(plan, machine, budget, &eligible)),
        }
    }

    /// As a saved state remembers it.
    pub fn resumed(plan: &Plan, machine: Machine, chosen: Chosen) -> Self {
        Self::new(plan.clone(), machine, chosen.budget, chosen.way)
    }

    fn new(plan: Plan, machine: Machine, budget: u64, way: Combination) -> Self {
        const CHECKED: &str = "the policy has been checked against the chain";
        let mut predictor = Predictor::within(&plan, machine, budget);
        let strategy = predictor.strategy(&way).expect(CHECKED);
        let prediction = predictor.predict(&way).expect(CHECKED);
        Self { plan, machine, budget, way, strategy, prediction }
    }

    /// What a saved state is to remember; nothing where the configuration says it all.
    pub fn chosen(&self) -> Option<Chosen> {
        let configured = Combination::configured(&self.plan.memory, self.plan.train.batch_size);
        let says_all =
            !self.plan.memory.is_auto() && !keeps_within(&configured) && self.way == configured;
        (!says_all).then(|| Chosen { way: self.way.clone(), budget: self.budget })
    }

    /// How steps are taken.
    pub fn way(&self) -> &Combination {
        &self.way
    }

    /// How steps are taken, as the executor needs it.
    pub fn strategy(&self) -> &Strategy {
        &self.strategy
    }

    /// What a step comes to.
    pub fn prediction(&self) -> &Prediction {
        &self.prediction
    }

    /// The hand-written kernels that steps and evaluations launch on a GPU, each once.
    pub fn kernels(&self) -> Vec<Kernel> {
        let Combination { precision, dense_layers, .. } = self.way;
        let on = self.machine.target(precision, dense_layers);
        let specs = self.plan.stages_with(precision, dense_layers);
        let mut shape = self.plan.input(self.strategy.micro_batch.min(self.plan.train.batch_size));
        let mut kernels = BTreeMap::new();
        for spec in &specs {
            let launched = spec.kernels(&shape, &on).into_iter();
            kernels.extend(launched.map(|kernel| (kernel.variant(), kernel)));
            shape = spec.output(&shape);
        }
        kernels.into_values().collect()
    }

    /// Bytes that a step may use.
    pub fn budget(&self) -> u64 {
        self.budget
    }

    /// One line on how steps are taken.
    pub fn told(&self) -> String {
        let Combination { micro_batch, checkpointing, offload, dense_layers, .. } = &self.way;
        let mut parts = vec![format!("micro-batch {micro_batch}")];
        parts.push(format!("checkpointing {}", checkpointing.name()));
        if self.plan.dense_layers(self.machine.cuda, self.way.precision).len() > 1 {
            parts.push(match dense_layers {
                DenseLayers::Keep => "dense layers kept".to_owned(),
                DenseLayers::Share => "dense layers shared".to_owned(),
            });
        }
        match &offload.0 {
            OffloadConfig::None(_) => {}
            OffloadConfig::Host(_) => parts.push("offloaded to the host".to_owned()),
            OffloadConfig::Disk(_) => parts.push("offloaded to disk".to_owned()),
        }
        if self.way.offload_optimizer {
            parts.push("optimizer's state in host memory".to_owned());
        }
        let Prediction { peak, recompute_percent, .. } = self.prediction;
        let recomputed = match recompute_percent {
            0.0 => "nothing recomputed".to_owned(),
            percent if percent < 0.5 => "less than 1% recomputed".to_owned(),
            percent => format!("{percent:.0}% recomputed"),
        };
        format!(
            "memory: {}; predicted peak {} of {}, {recomputed}",
            parts.join(", "),
            Bytes(peak),
            Bytes(self.budget)
        )
    }

    /// What is to be said of fewer images at once than the configuration has, where BatchNorm
    /// normalises over them.
    pub fn fewer_normalised(&self) -> Option<String> {
        let configured = Combination::configured(&self.plan.memory, self.plan.train.batch_size);
        let (now, then) = (self.way.micro_batch, configured.micro_batch);
        (now < then && self.plan.parts_matter()).then(|| {
            format!(
                "BatchNorm normalises over {} at once, not over {then}, so that the model trains \
                 with other numbers than with {then}",
                images(now)
            )
        })
    }

    /// What is to be said of a budget above the device's memory.
    pub fn beyond(&self) -> Option<String> {
        self.machine.beyond(self.plan.memory.budget().ok().flatten())
    }

    /// The next way to try where memory has not sufficed for `images` images at once: half as many,
    /// and for one image what needs less than before. `None` where nothing is left.
    pub fn back_off(&mut self, images: usize) -> Option<&Strategy> {
        let failed = self.prediction.peak;
        // There is less than was thought. Fewer images must not keep so much that it fails too.
        let budget = self.budget.min(failed - failed / 8);
        let fewest = self.plan.fewest_at_once();
        let micro_batch = images.div_ceil(2).max(fewest);
        let way = Combination { micro_batch, ..self.way.clone() };
        let next = Self::new(self.plan.clone(), self.machine, budget, way);
        if images <= fewest && !(keeps_within(&self.way) && next.prediction.peak < failed) {
            return None;
        }
        *self = next;
        Some(&self.strategy)
    }

    /// What would fit where a step does not.
    pub fn what_would_fit(&self) -> String {
        what_would_fit(&self.plan, self.machine, self.budget, &self.way)
    }
}

/// Whether the policy is to keep within the budget.
fn keeps_within(way: &Combination) -> bool {
    matches!(way.checkpointing.0, CheckpointingConfig::Budget(_))
}

/// The fastest of `ways` that fits; of equally fast ones, the first.
fn fastest(plan: &Plan, machine: Machine, ways: &[Combination]) -> Option<Combination> {
    let mut predictor = Predictor::new(plan, machine);
    let mut best: Option<(f64, &Combination)> = None;
    for way in ways {
        if best.is_some_and(|(seconds, _)| predictor.least_seconds(way) >= seconds) {
            continue;
        }
        let Ok(found) = predictor.predict(way) else { continue };
        // Sums in another order differ in the last bits.
        let better = |(seconds, _): &(f64, _)| found.seconds < seconds * (1.0 - 1e-9);
        if found.fits && best.as_ref().is_none_or(better) {
            best = Some((found.seconds, way));
        }
    }
    best.map(|(_, way)| way.clone())
}

fn nothing_fits(plan: &Plan, machine: Machine, budget: u64, ways: &[Combination]) -> NothingFits {
    let mut predictor = Predictor::new(plan, machine);
    let peaks = ways.iter().filter_map(|way| Some((predictor.predict(way).ok()?.peak, way)));
    let (least, way) = peaks.min_by_key(|(peak, _)| *peak).expect("there are ways");
    let advice = what_would_fit(plan, machine, budget, way);
    let written = plan.memory.budget.is_some();
    NothingFits { fixed: false, written, budget, least, micro_batch: way.micro_batch, advice }
}
