//! Chooses how the steps of a run are taken, and how they go on where memory does not suffice.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::limits::what_would_fit;
use super::preference::{Preference, preferred_with_pipeline};
use super::price;
use super::settings::BUDGET;
use super::{Estimator, HeldMemory, Machine, MemorySettings, Plan, StepEstimate};
use crate::choice::Choice;
use crate::fault::{Fault, fault};
use crate::memory::{DenseLayers, OffloadConfig, Strategy};
use crate::ops::gpu::Kernel;
use crate::screen::{Bytes, counted};

/// How the steps of a run are taken: what a saved state remembers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chosen {
    /// What decides about bytes and seconds.
    #[serde(rename = "way")]
    pub settings: MemorySettings,
    /// Bytes that the process keeps within.
    pub budget: u64,
}

/// No settings keep a step within the budget.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{}\n{advice}", self.message())]
pub struct NothingFits {
    /// Whether nothing was left to be chosen.
    pub fixed: bool,
    /// Whether the budget is one that the user wrote.
    pub written: bool,
    /// Bytes that may be held.
    pub budget: u64,
    /// Bytes that are free on the device, where the budget follows from them.
    pub free: Option<u64>,
    /// Whether the device is a card.
    pub cuda: bool,
    /// The least that is held with all settings that are allowed; on the CPU, the least peak.
    pub least: u64,
    /// The micro-batch of that.
    pub micro_batch: usize,
    /// What would fit.
    pub advice: String,
}

impl NothingFits {
    fn message(&self) -> String {
        let least = Bytes(self.least);
        let budget = match self.free {
            Some(free) => format!("{} (of {} that are free)", Bytes(self.budget), Bytes(free)),
            None => Bytes(self.budget).to_string(),
        };
        let images = counted(self.micro_batch, "image", "images");
        let (what, takes) = match (self.fixed, self.cuda) {
            (true, true) => ("a step does not fit", "it holds an estimated"),
            (true, false) => ("a step does not fit", "its estimated peak is"),
            (false, true) => ("no way to take a step fits", "the least that is held is"),
            (false, false) => ("no way to take a step fits", "the least possible peak is"),
        };
        format!("{what} in {budget}: {takes} {least}, with {images} at once")
    }

    /// The same as a fault of the budget, where the user wrote one.
    pub fn fault(&self) -> Option<Fault> {
        self.written.then(|| fault("memory.budget", self.message(), &self.advice))
    }
}

/// How steps go on where memory has not sufficed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackOff {
    /// With as many images at once, of which more is computed again: the same results.
    Again,
    /// With fewer images at once.
    Fewer,
}

/// Knows how the steps of a run are taken.
#[derive(Debug, Clone)]
pub struct Planner {
    plan: Plan,
    machine: Machine,
    /// Bytes that the process may hold; fewer than at first where memory has not sufficed.
    budget: u64,
    settings: MemorySettings,
    /// One for each device that has some of one copy of the model.
    strategies: Vec<Strategy>,
    estimate: StepEstimate,
    /// The same for the first epochs, where stages are frozen in them that are trained later.
    at_first: Option<(Vec<Strategy>, StepEstimate)>,
    /// Whether one of these epochs is under way.
    is_first: bool,
}

impl Planner {
    /// As the configuration has it; where it leaves something open, what is preferred of all that is
    /// estimated to fit: the numbers of whole batches first, then speed.
    ///
    /// # Errors
    ///
    /// When nothing keeps within the budget that is to be kept within.
    pub fn choose(plan: &Plan, machine: Machine) -> Result<Self, NothingFits> {
        Self::choose_beside(plan, machine, 0)
    }

    /// The same where the process holds so many bytes besides what steps take.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn choose_beside(plan: &Plan, machine: Machine, others: u64) -> Result<Self, NothingFits> {
        let (undecided, plan) = (plan, &plan.with_pipeline(machine));
        let estimator = Estimator::new(plan, machine);
        let budget = estimator.budget.saturating_sub(others);
        let configured = MemorySettings::configured(&plan.memory, plan.device_batch());
        let automatic = plan.memory.is_auto();
        if !automatic && !configured.keeps_within() {
            let planner = Self::new(plan.clone(), machine, budget, configured);
            // Where no budget is written, what is estimated to be too much may still be tried; but not on
            // the CPU, where the system ends the process and no step is taken again with fewer images.
            let most = match (plan.memory.budget.is_some(), machine.cuda) {
                (true, _) => budget,
                (false, true) => u64::MAX,
                (false, false) => machine.memory,
            };
            return match planner.estimate.held <= most {
                true => Ok(planner),
                false => Err(planner.does_not_fit(true, most)),
            };
        }
        let eligible = match automatic {
            true => plan.eligible(&machine),
            false => vec![configured.clone()],
        };
        match preferred_with_pipeline(undecided, machine, budget, &eligible) {
            Some((plan, settings)) => Ok(Self::new(plan, machine, budget, settings)),
            None => Err(nothing_fits(&estimator, budget, &eligible)),
        }
    }

    /// Plans as a saved state remembers it.
    pub fn resumed(plan: &Plan, machine: Machine, chosen: Chosen) -> Self {
        let plan = plan.with_pipeline_for(machine, &chosen.settings);
        Self::new(plan, machine, chosen.budget, chosen.settings)
    }

    fn new(plan: Plan, machine: Machine, budget: u64, settings: MemorySettings) -> Self {
        const CHECKED: &str = "the policy has been checked against the chain";
        let found = |plan: &Plan| {
            let estimator = Estimator::within(plan, machine, budget);
            let strategies = estimator.strategies(&settings).expect(CHECKED);
            (strategies, estimator.estimate(&settings).expect(CHECKED))
        };
        let (strategies, estimate) = found(&plan);
        let at_first = plan.at_first().as_ref().map(found);
        Self { plan, machine, budget, settings, strategies, estimate, at_first, is_first: false }
    }

    /// Steps are from now on those of `epoch`, counted from 1: in the first ones stages may be frozen
    /// that are trained later.
    pub fn begin_epoch(&mut self, epoch: usize) {
        self.is_first = epoch <= self.plan.frozen_epochs();
    }

    /// What holds for the epoch under way.
    fn now(&self) -> (&[Strategy], &StepEstimate) {
        match self.at_first.as_ref().filter(|_| self.is_first) {
            Some((strategies, estimate)) => (strategies, estimate),
            None => (&self.strategies, &self.estimate),
        }
    }

    fn estimator(&self) -> Estimator {
        Estimator::within(&self.plan, self.machine, self.budget)
    }

    /// The memory of a GPU that steps are to be taken in: see [`Estimator::held`].
    pub fn held(&self) -> Option<HeldMemory> {
        self.estimator().held(&self.settings)
    }

    /// Bytes of the room for gradients that other cards give each of the cards while it computes.
    pub fn gradient_room(&self) -> u64 {
        let known = self.estimator().known(&self.settings);
        known.iter().map(|known| known.costs.gradient_room).max().unwrap_or(0)
    }

    /// What is planned, with everything decided.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The choice that a saved state remembers; `None` where the configuration already says it.
    pub fn chosen(&self) -> Option<Chosen> {
        let configured = MemorySettings::configured(&self.plan.memory, self.plan.device_batch());
        let says_all = !self.plan.memory.is_auto()
            && !configured.keeps_within()
            && self.settings == configured;
        (!says_all).then(|| Chosen { settings: self.settings.clone(), budget: self.budget })
    }

    /// How steps are taken.
    pub fn settings(&self) -> &MemorySettings {
        &self.settings
    }

    /// How steps are taken, as the executors need it: one strategy for each device that has some of one copy
    /// of the model.
    pub fn strategies(&self) -> &[Strategy] {
        self.now().0
    }

    /// What a step takes.
    pub fn estimate(&self) -> &StepEstimate {
        self.now().1
    }

    /// The hand-written kernels that steps and evaluations launch on a GPU, each once.
    pub fn kernels(&self) -> Vec<Kernel> {
        let MemorySettings { precision, dense_layers, .. } = self.settings;
        let on = self.machine.target(precision, dense_layers);
        let specs = self.plan.stages_with(precision, dense_layers);
        let mut shape = self.plan.input(self.settings.micro_batch.min(self.plan.device_batch()));
        let mut kernels = BTreeMap::new();
        for spec in &specs {
            let launched = spec.kernels(&shape, &on).into_iter();
            kernels.extend(launched.map(|kernel| (kernel.variant(), kernel)));
            shape = spec.output(&shape);
        }
        kernels.into_values().collect()
    }

    /// Bytes that the process may hold.
    pub fn budget(&self) -> u64 {
        self.budget
    }

    /// One line on how steps are taken.
    pub fn summary(&self) -> String {
        let MemorySettings { micro_batch, checkpointing, offload, dense_layers, .. } =
            &self.settings;
        let checkpointing = format!("checkpointing {}", checkpointing.name());
        let mut parts = vec![format!("micro-batch {micro_batch}"), checkpointing];
        if self.plan.dense_layers(self.machine.cuda, self.settings.precision).len() > 1 {
            parts.push(match dense_layers {
                DenseLayers::Keep => "1×1 outputs kept".to_owned(),
                DenseLayers::Share => "1×1 outputs not kept".to_owned(),
            });
        }
        match &offload.0 {
            OffloadConfig::None(_) => {}
            OffloadConfig::Host(_) => parts.push("offloaded to the host".to_owned()),
            OffloadConfig::Disk(_) => parts.push("offloaded to disk".to_owned()),
        }
        if self.settings.offload_optimizer {
            parts.push("optimizer's state in host memory".to_owned());
        }
        let StepEstimate { peak, held, recompute_percent, .. } = self.estimate;
        let held = match self.machine.cuda {
            true => format!(" and at most {} held", Bytes(held)),
            false => String::new(),
        };
        let recomputed = match recompute_percent {
            0.0 => "nothing recomputed".to_owned(),
            percent if percent < 0.5 => "less than 1% recomputed".to_owned(),
            percent => format!("{percent:.0}% recomputed"),
        };
        let at_first = self.at_first.as_ref().map(|(_, first)| {
            let epochs = counted(self.plan.frozen_epochs(), "epoch", "epochs");
            format!(" ({} for {epochs}, with stages frozen)", Bytes(first.peak))
        });
        let price = price::of_numbers(&self.estimator(), &self.settings);
        format!(
            "memory: {}; estimated peak {}{}{held} of {}, {recomputed}{}",
            parts.join(", "),
            Bytes(peak),
            at_first.unwrap_or_default(),
            Bytes(self.budget),
            price.map(|price| format!("; {price}")).unwrap_or_default(),
        )
    }

    /// The images of a full batch that all devices compute at once.
    pub fn images_together(&self) -> usize {
        let Plan { train, .. } = &self.plan;
        self.settings.micro_batch.saturating_mul(self.plan.copies()).min(train.batch_size)
    }

    /// The micro-batches of a full batch.
    pub fn micro_batches(&self) -> usize {
        self.plan.device_batch().div_ceil(self.settings.micro_batch).max(1)
    }

    /// The same with so many images on all devices at once, or as few more as there can be.
    pub fn with_images_together(self, images: usize) -> Self {
        let micro_batch = images.div_ceil(self.plan.copies());
        let settings = MemorySettings { micro_batch, ..self.settings };
        Self::new(self.plan, self.machine, self.budget, settings)
    }

    /// The warning about a smaller micro-batch than the configuration has, where BatchNorm normalises
    /// over it.
    pub fn fewer_normalised(&self) -> Option<String> {
        let configured = MemorySettings::configured(&self.plan.memory, self.plan.device_batch());
        let (now, then) = (self.settings.micro_batch, configured.micro_batch);
        (now < then && self.plan.parts_matter()).then(|| {
            let [now, then] = [now, then].map(|images| self.plan.normalised_together(images));
            let price = price::of_the_whole(&self.estimator(), &self.settings);
            format!(
                "BatchNorm normalises over {} at once, not over {then}, so that the model trains \
                 with other results than with {then}{}",
                counted(now, "image", "images"),
                price.map(|price| format!("; {price}")).unwrap_or_default(),
            )
        })
    }

    /// The warning about a step that is estimated to take more than is free on the device.
    pub fn crowded(&self) -> Option<String> {
        let (available, most) = (self.machine.available()?, self.most());
        (most > available).then(|| {
            let what = match self.machine.cuda {
                true => "a step is estimated to hold at most",
                false => "the estimated peak of a step is",
            };
            format!(
                "{what} {}, and {} of the device's {} are free now",
                Bytes(most),
                Bytes(available),
                Bytes(self.machine.memory)
            )
        })
    }

    /// What any step holds at most; on the CPU, the highest peak.
    fn most(&self) -> u64 {
        let first = self.at_first.as_ref().map_or(0, |(_, first)| first.held);
        self.estimate.held.max(first)
    }

    /// Whether the host has room for `bytes` while steps are taken: a CPU where they are free beside a step or nobody
    /// knows, and always where steps take the memory of a GPU.
    pub fn has_room_beside_steps(&self, bytes: u64) -> bool {
        let free = self.machine.free.filter(|_| !self.machine.cuda);
        free.is_none_or(|free| self.most().saturating_add(bytes) <= free)
    }

    /// The warning about a budget above the device's memory.
    pub fn beyond(&self) -> Option<String> {
        self.machine.beyond(self.plan.memory.budget().ok().flatten())
    }

    /// The next settings to try where memory has not sufficed for `images` images at once: the same images
    /// with more computed again, or half as many, whichever is preferred of what needs less than before.
    /// `None` where nothing is left.
    pub fn back_off(&mut self, images: usize) -> Option<BackOff> {
        let failed = self.estimate().peak;
        // There is less than was thought. What comes next must not keep so much that it fails too.
        let budget = self.budget.min(self.machine.held_at_most(failed - failed / 8));
        let of = |settings| {
            let is_first = self.is_first;
            Self { is_first, ..Self::new(self.plan.clone(), self.machine, budget, settings) }
        };
        let again = of(MemorySettings { checkpointing: Choice(BUDGET), ..self.settings.clone() });
        let again = (again.estimate().peak < failed).then_some(again);
        let fewest = self.plan.fewest_at_once();
        let micro_batch = images.div_ceil(2).max(fewest);
        let fewer =
            (images > fewest).then(|| of(MemorySettings { micro_batch, ..self.settings.clone() }));
        // The same results as now: those of whole batches may be given up already.
        let preference = |next: &Self| Preference {
            fits: next.estimate().peak < failed,
            same_numbers: next.settings.micro_batch == self.settings.micro_batch
                || !self.plan.parts_matter(),
            time: next.estimate().seconds,
        };
        let next = match (again, fewer) {
            (Some(again), Some(fewer)) => {
                let fewer_first = preference(&fewer).is_better_than(&preference(&again));
                if fewer_first { fewer } else { again }
            }
            (again, fewer) => again.or(fewer)?,
        };
        let back_off = match next.settings.micro_batch == self.settings.micro_batch {
            true => BackOff::Again,
            false => BackOff::Fewer,
        };
        *self = next;
        Some(back_off)
    }

    /// What is said where a step is not to be taken so, as it does not fit in `budget` bytes; whether nothing was left to
    /// be chosen is `fixed`.
    pub fn does_not_fit(&self, fixed: bool, budget: u64) -> NothingFits {
        let written = self.plan.memory.budget.is_some();
        NothingFits {
            fixed,
            written,
            budget,
            free: self.machine.available().filter(|_| !fixed && !written),
            cuda: self.machine.cuda,
            least: self.estimate.held,
            micro_batch: self.settings.micro_batch,
            advice: self.what_would_fit(),
        }
    }

    /// What would fit where a step does not.
    pub fn what_would_fit(&self) -> String {
        what_would_fit(&self.estimator(), &self.settings)
    }
}

/// Of `candidates`, of which none fits in `budget` bytes, the one that holds least tells what would.
fn nothing_fits(estimator: &Estimator, budget: u64, candidates: &[MemorySettings]) -> NothingFits {
    let held = candidates
        .iter()
        .filter_map(|settings| Some((estimator.estimate(settings).ok()?.held, settings)));
    let (least, settings) = held.min_by_key(|(held, _)| *held).expect("there are candidates");
    let plan = estimator.plan.clone();
    let planner = Planner::new(plan, estimator.machine, budget, settings.clone());
    NothingFits { least, ..planner.does_not_fit(false, budget) }
}
