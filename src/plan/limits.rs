//! What would fit where a step does not: settings, images, depth.

use super::levers::{self, Lever};
use super::{Combination, Machine, Plan, Predictor};
use crate::choice::{Choice, NoSettings};
use crate::config::Config;
use crate::memory::{CheckpointingConfig, DenseLayers, OffloadConfig, Precision};
use crate::model::{DensenetConfig, ModelConfig, Network, ResnetBlock, ResnetConfig, ResnetForm};

/// Image sides that are tried are multiples of it.
const SIDE: usize = 32;

/// Depths that each model is known with, deepest first.
const DENSENETS: [usize; 4] = [201, 169, 161, 121];
const RESNETS: [usize; 5] = [152, 101, 50, 34, 18];

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
    let smaller = |change: &dyn Fn(&mut Config)| {
        let mut config = plan.to_config();
        change(&mut config);
        let plan = super::plan(config).ok()?;
        let mut predictor = Predictor::within(&plan, machine, budget);
        predictor.predict(way).ok().filter(|found| found.fits)
    };
    let largest = plan.data.image.size[0].max(plan.data.image.size[1]);
    let (mut low, mut high) = (0, largest.div_ceil(SIDE));
    while high - low > 1 {
        let middle = (low + high) / 2;
        let size = [middle * SIDE; 2];
        match smaller(&|config| config.data.image.size = size) {
            Some(_) => low = middle,
            None => high = middle,
        }
    }
    if low > 0 {
        would.push(format!("images of {0}×{0} (`data.image.size = [{0}, {0}]`)", low * SIDE));
    }
    let depth = shallower(&plan.model)
        .into_iter()
        .find(|(_, model)| smaller(&|config| config.model.network.0 = model.clone()).is_some());
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

/// The same network with fewer layers, deepest first, and how many it then has.
fn shallower(network: &Network) -> Vec<(usize, ModelConfig)> {
    let layers = |blocks: &Option<Vec<usize>>| blocks.iter().flatten().sum::<usize>();
    match network.to_config() {
        ModelConfig::Densenet(now) => {
            let depth = 2 * layers(&now.blocks) + 5;
            let known = DENSENETS.into_iter().filter(|known| *known < depth);
            let config = |depth| {
                let DensenetConfig { dropout, norm, .. } = now;
                DensenetConfig { depth: Some(depth), dropout, norm, ..DensenetConfig::default() }
            };
            known.map(|depth| (depth, ModelConfig::Densenet(config(depth)))).collect()
        }
        ModelConfig::Resnet(now) => {
            let each = if now.block == Some(ResnetBlock::Basic) { 2 } else { 3 };
            let depths: Vec<usize> = match now.form {
                ResnetForm::Imagenet => RESNETS.to_vec(),
                ResnetForm::Cifar => {
                    let most = now.blocks.iter().flatten().max().copied().unwrap_or(1);
                    (1..8).rev().map(|eighths| 3 * each * (most * eighths / 8) + 2).collect()
                }
            };
            let depth = each * layers(&now.blocks) + 2;
            let shallower = depths.into_iter().filter(|other| *other < depth && *other > 2);
            let config = |depth| {
                let block = now.block.filter(|_| now.form == ResnetForm::Cifar);
                let depth = Some(depth);
                ResnetConfig { depth, block, blocks: None, stem: None, ..now.clone() }
            };
            shallower.map(|depth| (depth, ModelConfig::Resnet(config(depth)))).collect()
        }
        ModelConfig::Sequential(_) => Vec::new(),
    }
}
