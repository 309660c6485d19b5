//! Settings that change how much memory a step takes, each tried on its own.

use super::{Combination, Machine, Plan, Prediction, Predictor};
use crate::choice::{Choice, NoSettings};
use crate::memory::{CheckpointingConfig, DenseLayers, OffloadConfig, Precision};
use crate::optim::{OptimizerConfig, SgdConfig};

/// A setting that was tried, and what came of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Pulled {
    pub lever: Lever,
    /// The peak of a step then.
    pub peak: u64,
    /// Seconds of a step then, in parts of those before.
    pub slowdown: f64,
    /// The most bytes off the device then.
    pub away: u64,
    /// Whether a step then fits.
    pub fits: bool,
}

/// A setting that changes how much memory a step takes.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Lever {
    /// The policy that takes least.
    Checkpointing(CheckpointingConfig),
    /// So many images at once.
    MicroBatch(usize),
    /// The 1×1 convolutions of dense layers run again.
    ShareDenseLayers,
    /// Other numbers.
    Precision(Precision),
    /// All numbers in fp16, and an optimizer whose `eps` is none of those that are 0 there.
    HalfWithEps,
    /// What is kept waits in host memory.
    Offload,
    /// The optimizer's state waits in host memory.
    OffloadOptimizer,
    /// An optimizer that keeps nothing.
    Sgd,
}

impl Lever {
    /// As it is written in a configuration.
    pub fn written(&self) -> String {
        match self {
            Self::Checkpointing(policy) => format!("checkpointing = \"{}\"", policy.name()),
            Self::MicroBatch(images) => format!("micro_batch = {images}"),
            Self::ShareDenseLayers => "dense_layers = \"share\"".to_owned(),
            Self::Precision(precision) => format!("precision = \"{}\"", precision.name()),
            Self::HalfWithEps => "precision = \"half\" with eps = 1e-4".to_owned(),
            Self::Offload => "offload = \"host\"".to_owned(),
            Self::OffloadOptimizer => "offload_optimizer = true".to_owned(),
            Self::Sgd => "optimizer = { sgd = { momentum = 0.0 } }".to_owned(),
        }
    }

    /// What it changes of what is computed, where it does not only change how.
    pub fn changes(&self, plan: &Plan) -> Option<&'static str> {
        match self {
            Self::Precision(_) | Self::HalfWithEps => Some("other numbers"),
            Self::MicroBatch(_) if plan.parts_matter() => Some("other numbers"),
            Self::Sgd => Some("another optimizer"),
            _ => None,
        }
    }
}

/// Every lever that `way` has not pulled yet, each pulled on its own.
pub(super) fn pull(plan: &Plan, machine: &Machine, budget: u64, way: &Combination) -> Vec<Pulled> {
    let mut predictor = Predictor::within(plan, *machine, budget);
    let Ok(now) = predictor.predict(way) else { return Vec::new() };
    let mut pulled = Vec::new();
    let mut add = |lever: Lever, predictor: &mut Predictor<'_>, changed: &Combination| {
        if let Ok(then) = predictor.predict(changed) {
            let slowdown = then.seconds / now.seconds;
            let Prediction { peak, away, fits, .. } = then;
            pulled.push(Pulled { lever, peak, slowdown, away, fits });
        }
    };
    let policy =
        |policy: CheckpointingConfig| Combination { checkpointing: Choice(policy), ..way.clone() };
    let none = NoSettings {};
    let policies = [CheckpointingConfig::Sqrt(none), CheckpointingConfig::Every(none)];
    let peak = |predictor: &mut Predictor<'_>, policy: &Combination| {
        predictor.predict(policy).map_or(u64::MAX, |prediction| prediction.peak)
    };
    let leanest = policies.into_iter().map(policy).min_by_key(|way| peak(&mut predictor, way));
    if let Some(leanest) = leanest
        && leanest.checkpointing != way.checkpointing
    {
        add(Lever::Checkpointing(leanest.checkpointing.0.clone()), &mut predictor, &leanest);
    }
    if way.micro_batch > 1 {
        let mut fewer = vec![way.micro_batch.div_ceil(2), plan.fewest_at_once()];
        fewer.dedup();
        fewer.retain(|images| *images < way.micro_batch && plan.normalises(*images));
        for images in fewer {
            let changed = Combination { micro_batch: images, ..way.clone() };
            add(Lever::MicroBatch(images), &mut predictor, &changed);
        }
    }
    if plan.dense_layers(machine.cuda, way.precision).len() > 1
        && way.dense_layers == DenseLayers::Keep
    {
        let changed = Combination { dense_layers: DenseLayers::Share, ..way.clone() };
        add(Lever::ShareDenseLayers, &mut predictor, &changed);
    }
    let precisions = plan.precisions(machine.cuda);
    for precision in precisions.iter().copied().filter(|p| smaller(*p, way.precision)) {
        let changed = Combination { precision, ..way.clone() };
        add(Lever::Precision(precision), &mut predictor, &changed);
    }
    if !precisions.contains(&Precision::Half) && half_with_eps(&plan.train.optimizer) {
        let changed = Combination { precision: Precision::Half, ..way.clone() };
        add(Lever::HalfWithEps, &mut predictor, &changed);
    }
    if machine.cuda && !way.offloads() {
        let offload = Choice(OffloadConfig::Host(none));
        let changed = Combination { offload, ..way.clone() };
        add(Lever::Offload, &mut predictor, &changed);
    }
    let kept = plan.train.optimizer.kept();
    if machine.cuda && !way.offload_optimizer && kept > 0 {
        let changed = Combination { offload_optimizer: true, ..way.clone() };
        add(Lever::OffloadOptimizer, &mut predictor, &changed);
    }
    if kept > 0 {
        let mut smaller = plan.clone();
        let sgd = SgdConfig { momentum: 0.0, ..SgdConfig::default() };
        smaller.train.optimizer = OptimizerConfig::Sgd(sgd);
        if smaller.train.optimizer.kept() < kept {
            let mut predictor = Predictor::within(&smaller, *machine, budget);
            add(Lever::Sgd, &mut predictor, way);
        }
    }
    pulled
}

/// Whether fp16 holds the optimizer's settings with an `eps` that is not 0 there.
fn half_with_eps(optimizer: &OptimizerConfig) -> bool {
    let mut optimizer = optimizer.clone();
    match &mut optimizer {
        OptimizerConfig::Adam(adam) => adam.eps = 1e-4,
        OptimizerConfig::AdamW(adam) => adam.eps = 1e-4,
        OptimizerConfig::Rmsprop(rmsprop) => rmsprop.eps = 1e-4,
        _ => return false,
    }
    optimizer.check_half().is_ok()
}

/// Whether numbers, or weights, take less memory in the first than in the second.
fn smaller(first: Precision, second: Precision) -> bool {
    let half = |precision| precision == Precision::Half;
    match (first, second) {
        (Precision::Bf16, _) => second.bytes() > 2,
        (Precision::Half, _) => !half(second),
        // As many bytes as bf16, and a loss scale.
        _ => false,
    }
}
