//! What `trainer plan` tells: bytes, stages, and every strategy with what it comes to.

use serde::Serialize;

use super::{Combination, Machine, Plan, Planner, Prediction, Predictor, advice};
use crate::fault::Fault;
use crate::memory::{CheckpointingConfig, DenseLayers, Footprint, Precision};

/// A plan as it is predicted; the names of the fields are those that others' scripts read.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outlook {
    /// `cuda` or `cpu`: what it is predicted for.
    pub device: &'static str,
    /// Bytes of the device's memory.
    pub memory: u64,
    /// Bytes that a step may use.
    pub budget: u64,
    /// What is wrong with the budget that is configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// Bytes that do not depend on the images.
    pub bytes: Standing,
    /// The precision of `bytes` and `stages`.
    pub precision: Precision,
    /// The images at once of `stages`.
    pub micro_batch: usize,
    /// What each stage of the chain costs.
    pub stages: Vec<StageOutlook>,
    /// Every strategy.
    pub strategies: Vec<StrategyOutlook>,
    /// The place of the strategy that a run would take; `None` where it would not start.
    pub chosen: Option<usize>,
    /// The place of the fastest that fits, in the precision of the configuration.
    pub fastest: Option<usize>,
    /// Bytes of the largest tensor.
    pub largest_tensor: u64,
    /// A few sentences on which lever matters.
    pub advice: String,
}

/// Bytes that do not depend on the images.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Standing {
    /// Of the weights.
    pub weights: u64,
    /// Of their gradients.
    pub gradients: u64,
    /// Of the optimizer's state.
    pub optimizer: u64,
}

/// What a stage costs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StageOutlook {
    /// Its name.
    pub name: String,
    /// Bytes that it keeps for the backward pass, its output among them.
    pub kept: u64,
    /// The most bytes in use besides while it runs, forward or back.
    pub workspace: u64,
    /// Floating-point operations forward and back.
    pub flops: f64,
}

/// A strategy, and what it comes to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StrategyOutlook {
    /// The policy's name.
    pub checkpointing: &'static str,
    /// Of `sequential`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segments: Option<usize>,
    /// The numbers that activations are held in.
    pub precision: Precision,
    /// Images at once.
    pub micro_batch: usize,
    /// Where what is kept waits.
    pub offload: &'static str,
    /// What dense layers keep.
    pub dense_layers: DenseLayers,
    /// Whether the optimizer's state waits in host memory.
    pub offload_optimizer: bool,
    /// The predicted peak, bytes.
    pub peak: u64,
    /// Operations done again, in percent of those of a step that keeps everything.
    pub recompute_percent: f64,
    /// Seconds of a step, in parts of those of whole batches with everything kept.
    pub relative_time: f64,
    /// Bytes off the device.
    pub away: u64,
    /// Whether it fits.
    pub fits: bool,
}

impl StageOutlook {
    fn new(name: &str, cost: &Footprint) -> Self {
        let output = if cost.output_in_input { 0 } else { cost.output };
        let workspace =
            cost.forward_workspace.max(cost.saving_workspace).max(cost.backward_workspace);
        let (kept, flops) = (cost.saved + output, cost.forward_flops + cost.backward_flops);
        Self { name: name.to_owned(), kept, workspace, flops }
    }
}

impl StrategyOutlook {
    fn new(way: &Combination, found: &Prediction, whole: f64) -> Self {
        let segments = match &way.checkpointing.0 {
            CheckpointingConfig::Sequential(config) => Some(config.segments),
            _ => None,
        };
        Self {
            checkpointing: way.checkpointing.name(),
            segments,
            precision: way.precision,
            micro_batch: way.micro_batch,
            offload: way.offload.name(),
            dense_layers: way.dense_layers,
            offload_optimizer: way.offload_optimizer,
            peak: found.peak,
            recompute_percent: found.recompute_percent,
            relative_time: found.seconds / whole,
            away: found.away,
            fits: found.fits,
        }
    }
}

impl Outlook {
    /// Of `plan` on `machine`.
    ///
    /// # Errors
    ///
    /// A policy that does not fit the chain.
    pub fn new(plan: &Plan, machine: &Machine) -> Result<Self, Fault> {
        let mut predictor = Predictor::new(plan, *machine);
        let budget = predictor.budget();
        let configured = Combination::configured(&plan.memory, plan.train.batch_size);
        let chosen = Planner::choose(plan, *machine).ok().map(|planner| planner.way().clone());
        let way = chosen.clone().unwrap_or(configured.clone());
        let whole = Combination {
            micro_batch: plan.train.batch_size,
            checkpointing: Default::default(),
            offload: Default::default(),
            ..configured.clone()
        };
        let whole = predictor.predict(&whole)?.seconds;
        let costs = predictor.costs(&way);
        let ways = plan.combinations(machine);
        let found = predict_all(plan, machine, &ways)?;
        let fits =
            |place: &usize| found[*place].fits && ways[*place].precision == plan.memory.precision;
        let fastest = (0..ways.len())
            .filter(fits)
            .min_by(|a, b| found[*a].seconds.total_cmp(&found[*b].seconds));
        let stages = costs.names.iter().zip(&costs.stages);
        Ok(Self {
            device: if machine.cuda { "cuda" } else { "cpu" },
            memory: machine.memory,
            budget,
            warning: machine.beyond(plan.memory.budget().ok().flatten()),
            bytes: Standing {
                weights: costs.weights,
                gradients: costs.stages.iter().map(|stage| stage.parameter_gradients).sum(),
                optimizer: costs.optimizer,
            },
            precision: way.precision,
            micro_batch: way.micro_batch,
            stages: stages.map(|(name, cost)| StageOutlook::new(name, cost)).collect(),
            strategies: ways
                .iter()
                .zip(&found)
                .map(|(way, found)| StrategyOutlook::new(way, found, whole))
                .collect(),
            chosen: chosen.and_then(|chosen| ways.iter().position(|way| *way == chosen)),
            fastest,
            largest_tensor: costs.largest_tensor,
            advice: advice::advice(plan, machine, budget, &way),
        })
    }
}

/// What each way comes to, those of each precision on a thread of their own.
fn predict_all(
    plan: &Plan,
    machine: &Machine,
    ways: &[Combination],
) -> Result<Vec<Prediction>, Fault> {
    let alike = |a: &Combination, b: &Combination| {
        a.precision == b.precision && a.dense_layers == b.dense_layers
    };
    let predict = |ways: &[Combination]| {
        let mut predictor = Predictor::new(plan, *machine);
        ways.iter().map(|way| predictor.predict(way)).collect::<Result<Vec<_>, _>>()
    };
    std::thread::scope(|scope| {
        let predict = &predict;
        let threads: Vec<_> =
            ways.chunk_by(alike).map(|ways| scope.spawn(move || predict(ways))).collect();
        let mut all = Vec::with_capacity(ways.len());
        for thread in threads {
            all.extend(thread.join().expect("predicting does not panic")?);
        }
        Ok(all)
    })
}
