//! What would fit where a step does not: settings, images, depth.

use super::changes::{self, Change};
use super::{Estimator, Machine, MemorySettings, Plan};
use crate::choice::{Choice, NoSettings};
use crate::memory::{CheckpointingConfig, DenseLayers, OffloadConfig, Precision};
use crate::model::ModelConfig;

/// Image sides that are tried are multiples of it.
const SIDE: usize = 32;

/// What would fit `budget` bytes where a step with `settings` does not.
pub(super) fn what_would_fit(
    plan: &Plan,
    machine: Machine,
    budget: u64,
    settings: &MemorySettings,
) -> String {
    let changes = changes::try_each(plan, &machine, budget, settings);
    let images = fewer_images(plan, machine, budget, settings).map(Change::MicroBatch);
    let others = changes.into_iter().filter(|tried| tried.fits).map(|tried| tried.change);
    let others = others.filter(|change| !matches!(change, Change::MicroBatch(_)));
    let mark = |changes: bool| if changes { " (other numbers)" } else { "" };
    let mut would: Vec<String> = images
        .into_iter()
        .chain(others)
        .map(|change| {
            let changes = matches!(change, Change::MicroBatch(_)) && plan.parts_matter();
            format!("`{}`{}", change.written(), mark(changes))
        })
        .collect();
    let leanest = leanest(plan, machine, settings);
    let together = |plan: &Plan, precision: Precision| {
        let settings = MemorySettings { precision, ..leanest.clone() };
        Estimator::within(plan, machine, budget).estimate(&settings).is_ok_and(|found| found.fits)
    };
    if would.is_empty() {
        let small = plan.precisions(machine.cuda).into_iter().filter(|p| p.bytes() == 2);
        let precisions = std::iter::once(settings.precision).chain(small);
        if let Some(precision) = precisions.into_iter().find(|p| together(plan, *p)) {
            let precision = match precision == settings.precision {
                true => String::new(),
                false => format!("precision = \"{}\", ", precision.name()),
            };
            let changes = plan.parts_matter() && leanest.micro_batch < settings.micro_batch;
            would.push(format!("`{precision}{}`{}", written(&leanest), mark(changes)));
        }
    }
    let would_fit = |model: &ModelConfig, size: [usize; 2]| {
        plan.resized(model, size).is_some_and(|plan| {
            let mut estimator = Estimator::within(&plan, machine, budget);
            estimator.estimate(settings).is_ok_and(|found| found.fits)
        })
    };
    let largest = plan.data.image.size[0].max(plan.data.image.size[1]);
    let (mut low, mut high) = (0, largest.div_ceil(SIDE));
    while high - low > 1 {
        let middle = (low + high) / 2;
        match would_fit(plan.model.config(), [middle * SIDE; 2]) {
            true => low = middle,
            false => high = middle,
        }
    }
    if low > 0 {
        would.push(format!("images of {0}×{0} (`data.image.size = [{0}, {0}]`)", low * SIDE));
    }
    let depth = plan
        .model
        .config()
        .shallower()
        .into_iter()
        .find(|(_, model)| would_fit(model, plan.data.image.size));
    would.extend(depth.map(|(depth, _)| format!("a depth of {depth}")));
    match would.is_empty() {
        true => "Nothing that this program can change would fit: a smaller model, or a larger \
                 device."
            .to_owned(),
        false => format!("What would fit: {}.", would.join("; or ")),
    }
}

/// The most images at once that fit.
fn fewer_images(
    plan: &Plan,
    machine: Machine,
    budget: u64,
    settings: &MemorySettings,
) -> Option<usize> {
    let mut estimator = Estimator::within(plan, machine, budget);
    let (mut fit, mut too_many) = (0, settings.micro_batch);
    while too_many - fit > 1 {
        let micro_batch = (fit + too_many) / 2;
        let found = estimator.estimate(&MemorySettings { micro_batch, ..settings.clone() });
        match found.is_ok_and(|found| found.fits) {
            true => fit = micro_batch,
            false => too_many = micro_batch,
        }
    }
    (1..=fit).rev().find(|images| plan.normalises(*images))
}

/// Everything that lowers the peak and changes no number.
fn leanest(plan: &Plan, machine: Machine, settings: &MemorySettings) -> MemorySettings {
    let offload = match machine.cuda {
        true => OffloadConfig::Host(NoSettings {}),
        false => settings.offload.0.clone(),
    };
    MemorySettings {
        precision: settings.precision,
        micro_batch: plan.fewest_at_once(),
        checkpointing: Choice(CheckpointingConfig::Budget(NoSettings {})),
        offload: Choice(offload),
        dense_layers: plan
            .dense_layers(machine.cuda, settings.precision)
            .pop()
            .unwrap_or(settings.dense_layers),
        offload_optimizer: machine.cuda,
    }
}

fn written(settings: &MemorySettings) -> String {
    let mut parts = vec![
        format!("micro_batch = {}", settings.micro_batch),
        format!("checkpointing = \"{}\"", settings.checkpointing.name()),
    ];
    if settings.dense_layers == DenseLayers::Share {
        parts.push("dense_layers = \"share\"".to_owned());
    }
    if settings.offloads() {
        parts.push("offload = \"host\"".to_owned());
    }
    if settings.offload_optimizer {
        parts.push("offload_optimizer = true".to_owned());
    }
    parts.join(", ")
}
