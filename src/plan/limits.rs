//! What would fit where a step does not: settings, images, depth.

use super::levers::{self, Lever};
use super::{Combination, Machine, Plan, Predictor};
use crate::choice::{Choice, NoSettings};
use crate::memory::{CheckpointingConfig, DenseLayers, OffloadConfig, Precision};
use crate::model::ModelConfig;

/// Image sides that are tried are multiples of it.
const SIDE: usize = 32;

/// What would fit `budget` bytes where a step taken as `way` does not.
pub(super) fn what_would_fit(
    plan: &Plan,
    machine: Machine,
    budget: u64,
    way: &Combination,
) -> String {
    let levers = levers::pull(plan, &machine, budget, way);
    let images = fewer_images(plan, machine, budget, way).map(Lever::MicroBatch);
    let others = levers.into_iter().filter(|pulled| pulled.fits).map(|pulled| pulled.lever);
    let others = others.filter(|lever| !matches!(lever, Lever::MicroBatch(_)));
    let mark = |changes: bool| if changes { " (other numbers)" } else { "" };
    let mut would: Vec<String> = images
        .into_iter()
        .chain(others)
        .map(|lever| {
            let changes = matches!(lever, Lever::MicroBatch(_)) && plan.parts_matter();
            format!("`{}`{}", lever.written(), mark(changes))
        })
        .collect();
    let leanest = leanest(plan, machine, way);
    let together = |plan: &Plan, precision: Precision| {
        let way = Combination { precision, ..leanest.clone() };
        Predictor::within(plan, machine, budget).predict(&way).is_ok_and(|found| found.fits)
    };
    if would.is_empty() {
        let small = plan.precisions(machine.cuda).into_iter().filter(|p| p.bytes() == 2);
        let precisions = std::iter::once(way.precision).chain(small);
        if let Some(precision) = precisions.into_iter().find(|p| together(plan, *p)) {
            let precision = match precision == way.precision {
                true => String::new(),
                false => format!("precision = \"{}\", ", precision.name()),
            };
            let changes = plan.parts_matter() && leanest.micro_batch < way.micro_batch;
            would.push(format!("`{precision}{}`{}", written(&leanest), mark(changes)));
        }
    }
    let would_fit = |model: &ModelConfig, size: [usize; 2]| {
        plan.resized(model, size).is_some_and(|plan| {
            let mut predictor = Predictor::within(&plan, machine, budget);
            predictor.predict(way).is_ok_and(|found| found.fits)
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
fn fewer_images(plan: &Plan, machine: Machine, budget: u64, way: &Combination) -> Option<usize> {
    let mut predictor = Predictor::within(plan, machine, budget);
    let (mut fit, mut too_many) = (0, way.micro_batch);
    while too_many - fit > 1 {
        let micro_batch = (fit + too_many) / 2;
        let found = predictor.predict(&Combination { micro_batch, ..way.clone() });
        match found.is_ok_and(|found| found.fits) {
            true => fit = micro_batch,
            false => too_many = micro_batch,
        }
    }
    (1..=fit).rev().find(|images| plan.normalises(*images))
}

/// Everything that lowers the peak and changes no number.
fn leanest(plan: &Plan, machine: Machine, way: &Combination) -> Combination {
    let offload = match machine.cuda {
        true => OffloadConfig::Host(NoSettings {}),
        false => way.offload.0.clone(),
    };
    Combination {
        precision: way.precision,
        micro_batch: plan.fewest_at_once(),
        checkpointing: Choice(CheckpointingConfig::Budget(NoSettings {})),
        offload: Choice(offload),
        dense_layers: plan
            .dense_layers(machine.cuda, way.precision)
            .pop()
            .unwrap_or(way.dense_layers),
        offload_optimizer: machine.cuda,
    }
}

fn written(way: &Combination) -> String {
    let mut parts = vec![
        format!("micro_batch = {}", way.micro_batch),
        format!("checkpointing = \"{}\"", way.checkpointing.name()),
    ];
    if way.dense_layers == DenseLayers::Share {
        parts.push("dense_layers = \"share\"".to_owned());
    }
    if way.offloads() {
        parts.push("offload = \"host\"".to_owned());
    }
    if way.offload_optimizer {
        parts.push("offload_optimizer = true".to_owned());
    }
    parts.join(", ")
}
