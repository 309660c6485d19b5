//! Which of several ways to take a step is preferred.
//!
//! One rule for all that compares them: what `micro_batch = "auto"` chooses, the order of the table of
//! `trainer plan` and of what is advised, and how a run goes on where memory has run out.

use std::cmp::Ordering;

use super::{Estimator, Machine, MemorySettings, Plan};

/// How a way to take a step stands beside others: first what fits, of that first what gives the same
/// numbers as a whole batch at once, and of that the fastest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Preference {
    /// Whether a step fits.
    pub fits: bool,
    /// Whether it gives the same numbers, up to rounding.
    pub same_numbers: bool,
    /// How long it takes, in whatever unit the others are in.
    pub time: f64,
}

impl Preference {
    /// The order in which several are told: the preferred first.
    pub fn order(&self, other: &Self) -> Ordering {
        self.kind(other).then(self.time.total_cmp(&other.time))
    }

    /// Whether this is preferred. Of two that are equally fast neither is: sums in another order differ
    /// in the last bits.
    pub fn is_better_than(&self, other: &Self) -> bool {
        match self.kind(other) {
            Ordering::Equal => self.time < other.time * (1.0 - 1e-9),
            kind => kind.is_lt(),
        }
    }

    fn kind(&self, other: &Self) -> Ordering {
        let kind = |one: &Self| (!one.fits, !one.same_numbers);
        kind(self).cmp(&kind(other))
    }
}

impl Plan {
    /// Whether steps with these settings have the numbers of whole batches at once in the precision of
    /// the configuration, up to rounding. Fewer images at once have them but under BatchNorm, which
    /// normalises over these images; policies, `dense_layers` and places where tensors wait always do.
    pub fn keeps_numbers(&self, settings: &MemorySettings) -> bool {
        let whole = settings.micro_batch >= self.device_batch() || !self.parts_matter();
        whole && settings.precision == self.memory.precision
    }
}

/// The fewest images that BatchNorm should normalise over where a choice is free: below 16, the error of
/// ResNet-50 on ImageNet rises (Wu and He 2018, "Group normalization", figure 1: 23.7% with 16 images, 24.8% with
/// 8, 27.3% with 4).
const ENOUGH_TO_NORMALISE: usize = 16;

impl Plan {
    /// Whether a choice that is free prefers steps with these settings for their numbers: those of whole
    /// batches. In a pipeline a whole batch at once lets one device work at a time; there it is enough that
    /// BatchNorm has as many images as it needs.
    fn prefers_numbers(&self, settings: &MemorySettings) -> bool {
        if self.depth() == 1 {
            return self.keeps_numbers(settings);
        }
        let normalised = self.normalised_together(settings.micro_batch);
        !self.parts_matter() || normalised >= ENOUGH_TO_NORMALISE.min(self.train.batch_size)
    }
}

/// The preferred of `candidates`, and the plan with its split decided for it, where a pipeline leaves that open:
/// another one for each size of micro-batch.
pub(super) fn preferred_with_pipeline(
    plan: &Plan,
    machine: Machine,
    budget: u64,
    candidates: &[MemorySettings],
) -> Option<(Plan, MemorySettings)> {
    let mut best: Option<(Preference, Plan, MemorySettings)> = None;
    let is_free = plan.with_pipeline(machine) != *plan;
    let alike = |a: &MemorySettings, b: &MemorySettings| !is_free || a.micro_batch == b.micro_batch;
    for candidates in candidates.chunk_by(alike) {
        let plan = plan.with_pipeline_for(machine, candidates.first()?);
        let estimator = Estimator::within(&plan, machine, budget);
        let Some((found, settings)) = preferred(&estimator, candidates) else { continue };
        if best.as_ref().is_none_or(|(best, ..)| found.is_better_than(best)) {
            best = Some((found, plan, settings));
        }
    }
    best.map(|(_, plan, settings)| (plan, settings))
}

/// The preferred of `candidates`, with its place among ways to take a step; of equally good ones, the
/// first. `None` where none fits.
pub(super) fn preferred(
    estimator: &Estimator,
    candidates: &[MemorySettings],
) -> Option<(Preference, MemorySettings)> {
    let mut best: Option<(Preference, &MemorySettings)> = None;
    for settings in candidates {
        let same_numbers = estimator.plan.prefers_numbers(settings);
        let least = estimator.least_seconds(settings);
        let bound = Preference { fits: true, same_numbers, time: least };
        let is_better =
            |found: &Preference| best.as_ref().is_none_or(|(best, _)| found.is_better_than(best));
        if !is_better(&bound) {
            continue;
        }
        let Ok(found) = estimator.estimate(settings) else { continue };
        let found = Preference { fits: found.fits, same_numbers, time: found.seconds };
        if found.fits && is_better(&found) {
            best = Some((found, settings));
        }
    }
    best.map(|(found, settings)| (found, settings.clone()))
}
