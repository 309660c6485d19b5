//! Settings that change how much memory a step takes, each tried on its own.

use super::preference::Preference;
use super::settings::HOST;
use super::{Estimator, MemorySettings, Plan, StepEstimate};
use crate::choice::{Choice, NoSettings};
use crate::memory::{CheckpointingConfig, DenseLayers, Precision};
use crate::optim::{OptimizerConfig, SgdConfig};
use crate::parallel::OptimizerPlacement;

/// A change that was tried, and its estimate.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tried {
    pub change: Change,
    /// A step with it.
    pub then: StepEstimate,
    /// Its seconds, as a multiple of those of a step without.
    pub slowdown: f64,
}

impl Tried {
    /// `change`, with which a step takes `then` in place of `now`.
    pub fn new(change: Change, then: StepEstimate, now: &StepEstimate) -> Self {
        let slowdown = then.seconds / now.seconds;
        Self { change, then, slowdown }
    }

    /// How it stands beside other changes.
    pub fn preference(&self, plan: &Plan) -> Preference {
        let same_numbers = self.change.changes(plan).is_none();
        Preference { fits: self.then.fits, same_numbers, time: self.slowdown }
    }

    /// What it costs besides: time, and other results.
    pub fn price(&self, plan: &Plan) -> Option<String> {
        price(self.slowdown, self.change.changes(plan))
    }
}

/// What a change costs that takes `slowdown` times as long and changes results as `changes` says.
pub(super) fn price(slowdown: f64, changes: Option<&str>) -> Option<String> {
    let time = match slowdown {
        1.05.. | ..0.95 => Some(format!("{slowdown:.1} × the time")),
        _ => None,
    };
    let price: Vec<String> = time.into_iter().chain(changes.map(str::to_owned)).collect();
    (!price.is_empty()).then(|| price.join(", "))
}

/// A setting that changes how much memory a step takes.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Change {
    /// The policy that takes least.
    Checkpointing(CheckpointingConfig),
    /// The micro-batch.
    MicroBatch(usize),
    /// The 1×1 convolutions of dense layers run again.
    ShareDenseLayers,
    /// The precision.
    Precision(Precision),
    /// All numbers in fp16, and an optimizer whose `eps` is none of those that are 0 there.
    HalfWithEps,
    /// What is kept waits in host memory.
    Offload,
    /// The optimizer's state waits in host memory.
    OffloadOptimizer,
    /// Devices with the same weights share out the optimizer's state.
    ShardOptimizer,
    /// An optimizer that keeps nothing.
    Sgd,
}

impl Change {
    /// The text to write in a configuration.
    pub fn written(&self) -> String {
        match self {
            Self::Checkpointing(policy) => format!("checkpointing = \"{}\"", policy.name()),
            Self::MicroBatch(images) => format!("micro_batch = {images}"),
            Self::ShareDenseLayers => "dense_layers = \"share\"".to_owned(),
            Self::Precision(precision) => format!("precision = \"{}\"", precision.name()),
            Self::HalfWithEps => "precision = \"half\" with eps = 1e-4".to_owned(),
            Self::Offload => "offload = \"host\"".to_owned(),
            Self::OffloadOptimizer => "offload_optimizer = true".to_owned(),
            Self::ShardOptimizer => "parallel.data.optimizer = \"sharded\"".to_owned(),
            Self::Sgd => "optimizer = { sgd = { momentum = 0.0 } }".to_owned(),
        }
    }

    /// How it changes the results, where it changes more than the way to compute them.
    pub fn changes(&self, plan: &Plan) -> Option<&'static str> {
        match self {
            Self::Precision(_) | Self::HalfWithEps => Some("other results"),
            Self::MicroBatch(_) if plan.parts_matter() => Some("other results"),
            Self::Sgd => Some("another optimizer"),
            _ => None,
        }
    }
}

/// Every change that `settings` do not have yet, each tried on its own.
pub(super) fn try_each(estimator: &Estimator, settings: &MemorySettings) -> Vec<Tried> {
    let &Estimator { ref plan, machine, budget, .. } = estimator;
    let Ok(now) = estimator.estimate(settings) else { return Vec::new() };
    let with = |change: &dyn Fn(&mut MemorySettings)| {
        let mut changed = settings.clone();
        change(&mut changed);
        changed
    };
    let mut all = Vec::new();
    let policies =
        [CheckpointingConfig::Sqrt(NoSettings {}), CheckpointingConfig::Every(NoSettings {})];
    let policies = policies.map(|policy| with(&|to| to.checkpointing = Choice(policy.clone())));
    let peak = |policy: &MemorySettings| estimator.estimate(policy).map_or(u64::MAX, |e| e.peak);
    let leanest = policies.into_iter().min_by_key(peak).expect("there are two");
    if leanest.checkpointing != settings.checkpointing {
        all.push((Change::Checkpointing(leanest.checkpointing.0.clone()), leanest));
    }
    if settings.micro_batch > 1 {
        let mut fewer = vec![settings.micro_batch.div_ceil(2), plan.fewest_at_once()];
        fewer.dedup();
        fewer.retain(|images| *images < settings.micro_batch && plan.normalises(*images));
        let change = |images| (Change::MicroBatch(images), with(&|to| to.micro_batch = images));
        all.extend(fewer.into_iter().map(change));
    }
    if plan.dense_layers(machine.cuda, settings.precision).len() > 1
        && settings.dense_layers == DenseLayers::Keep
    {
        all.push((Change::ShareDenseLayers, with(&|to| to.dense_layers = DenseLayers::Share)));
    }
    let precisions = plan.precisions(machine.cuda);
    for precision in precisions.iter().copied().filter(|p| smaller(*p, settings.precision)) {
        all.push((Change::Precision(precision), with(&|to| to.precision = precision)));
    }
    if !precisions.contains(&Precision::Half) && half_with_eps(&plan.train.optimizer) {
        all.push((Change::HalfWithEps, with(&|to| to.precision = Precision::Half)));
    }
    if machine.cuda && !settings.offloads() {
        all.push((Change::Offload, with(&|to| to.offload = Choice(HOST))));
    }
    let kept = plan.train.optimizer.kept();
    if machine.cuda && !settings.offload_optimizer && kept > 0 {
        all.push((Change::OffloadOptimizer, with(&|to| to.offload_optimizer = true)));
    }
    let tried = |change, then: StepEstimate| Tried::new(change, then, &now);
    let estimates = all
        .into_iter()
        .filter_map(|(change, settings)| Some(tried(change, estimator.estimate(&settings).ok()?)));
    let mut all: Vec<Tried> = estimates.collect();
    let mut of_other = |change: Change, other: &Plan| {
        let then = Estimator::within(other, machine, budget).estimate(settings).ok();
        all.extend(then.map(|then| tried(change, then)));
    };
    let sharded = Plan { placement: OptimizerPlacement::Sharded, ..plan.clone() };
    if sharded.optimizer_shards() > plan.optimizer_shards() && kept > 0 {
        of_other(Change::ShardOptimizer, &sharded);
    }
    let mut other = plan.clone();
    let sgd = SgdConfig { momentum: 0.0, ..SgdConfig::default() };
    other.train.optimizer = Choice(OptimizerConfig::Sgd(sgd));
    if other.train.optimizer.kept() < kept {
        of_other(Change::Sgd, &other);
    }
    all
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
    match first {
        Precision::Bf16 => second.bytes() > 2,
        Precision::Half => second != Precision::Half,
        // As many bytes as bf16, and a loss scale.
        _ => false,
    }
}
