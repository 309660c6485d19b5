//! What `trainer plan` tells: bytes, stages, and an estimate for every strategy.

use std::cmp::Ordering;

use rayon::prelude::*;
use serde::Serialize;

use super::preference::Preference;
use super::{
    Arrangement, Costs, DeviceEstimate, Estimator, Machine, MemorySettings, Plan, Planner,
    StepEstimate, advice, arrangement,
};
use crate::fault::Fault;
use crate::memory::{CheckpointingConfig, DenseLayers, Footprint, Precision};
use crate::parallel::{BatchNormOver, OptimizerPlacement, PipelinePlace, PipelineSchedule};

/// The estimates for a plan; the names of the fields are those that others' scripts read.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlanSummary {
    /// `cuda` or `cpu`: the device that it is estimated for.
    pub device: &'static str,
    /// Bytes of the device's memory.
    pub memory: u64,
    /// Bytes of it that are free, where the device is here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free: Option<u64>,
    /// Bytes that the process may hold of a card, as `nvidia-smi` has it; on the CPU, that a step may use.
    pub budget: u64,
    /// What is wrong with the budget that is configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// Bytes that do not depend on the images.
    pub bytes: FixedBytes,
    /// The precision of `bytes` and `stages`.
    pub precision: Precision,
    /// The micro-batch of `stages`.
    pub micro_batch: usize,
    /// What each stage of the chain costs.
    pub stages: Vec<StageSummary>,
    /// How the batch is shared, where there are several devices; the rest is of each of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel: Option<ParallelSummary>,
    /// How the stages are shared out, in a pipeline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<PipelineSummary>,
    /// What the first epochs take, where stages are frozen then; the rest is of the epochs after them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_first: Option<AtFirstSummary>,
    /// Every strategy.
    pub strategies: Vec<StrategySummary>,
    /// The place of the strategy that a run would take; `None` where it would not start.
    pub chosen: Option<usize>,
    /// The place of the fastest that fits, in the precision of the configuration.
    pub fastest: Option<usize>,
    /// The place of the preferred of those that fit, in this precision: the fastest that gives the numbers
    /// of whole batches at once, or where none does, the fastest.
    pub preferred: Option<usize>,
    /// Bytes of the largest tensor.
    pub largest_tensor: u64,
    /// A few sentences on which change matters.
    pub advice: String,
}

/// How several devices share a batch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ParallelSummary {
    /// How many devices there are.
    pub devices: usize,
    /// How many copies of the model there are: fewer where several devices have one between them.
    pub copies: usize,
    /// Images of a batch, on all of them.
    pub batch_size: usize,
    /// Images of a batch that a copy has, at most.
    pub device_batch_size: usize,
    /// What BatchNorm normalises over.
    pub batch_norm: BatchNormOver,
    /// Whether the network has a BatchNorm.
    pub has_batch_norm: bool,
    /// Bytes of gradients that each device adds to those of the others in a step.
    pub gradient_bytes: u64,
    /// Where the optimizer's state lies.
    pub optimizer: OptimizerPlacement,
    /// Bytes of new weights that each device gets from the others in a step.
    pub weight_bytes: u64,
    /// What 1, 2, 4 and so on up to all devices come to; none on the CPU.
    pub arrangements: Vec<Arrangement>,
    /// Which of them is to be preferred, and which would do nothing.
    pub advice: String,
}

impl ParallelSummary {
    fn new(plan: &Plan, machine: Machine, costs: &Costs) -> Result<Option<Self>, Fault> {
        if plan.copies() < 2 {
            return Ok(None);
        }
        let arrangements = Arrangement::all(plan, machine)?;
        Ok(Some(Self {
            devices: plan.devices.len(),
            copies: plan.copies(),
            batch_size: plan.train.batch_size,
            device_batch_size: plan.device_batch(),
            batch_norm: plan.batch_norm,
            has_batch_norm: plan.parts_matter(),
            gradient_bytes: costs.gradients(),
            optimizer: plan.placement,
            weight_bytes: costs.weights_received,
            advice: arrangement::advice(plan, machine, &arrangements),
            arrangements,
        }))
    }
}

/// How the devices of a pipeline share the stages.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PipelineSummary {
    /// In which order micro-batches go through.
    pub schedule: PipelineSchedule,
    /// Micro-batches of a batch.
    pub micro_batches: usize,
    /// The share of the time in which a device waits at least, where all take equally long.
    pub bubble: f64,
    /// The share of the time that the devices are estimated to wait, on average.
    pub idle: f64,
    /// How many copies of the pipeline share each batch.
    pub copies: usize,
    /// Seconds of a step, without what copies exchange.
    pub seconds: f64,
    /// What each device has and takes.
    pub devices: Vec<PipelineDevice>,
}

/// A device of a pipeline.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PipelineDevice {
    /// As `device.use` names it; where there are several copies of the pipeline, that of each of them.
    pub name: String,
    /// Its first and its last stage.
    pub stages: [String; 2],
    /// Micro-batches that it keeps something of at once, at most.
    pub alive: usize,
    /// The estimated peak, bytes.
    pub peak: u64,
    /// Seconds of its own work in a step, as a multiple of those of a step of whole batches with
    /// everything kept.
    pub relative_time: f64,
    /// Seconds of its own work in a step.
    pub seconds: f64,
    /// Bytes that it sends to the device behind for a micro-batch, and gets back as a gradient; 0 of the
    /// last.
    pub sends: u64,
    /// Bytes that it sends in a step, to the device behind and to the one before.
    pub sends_in_step: u64,
}

/// Bytes that do not depend on the images.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct FixedBytes {
    /// Bytes of the weights.
    pub weights: u64,
    /// Bytes of their gradients.
    pub gradients: u64,
    /// Bytes of the optimizer's state that a device has.
    pub optimizer: u64,
}

/// What a stage costs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StageSummary {
    /// Its name.
    pub name: String,
    /// Whether it is frozen: it keeps nothing and is not taken back.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub frozen: bool,
    /// Bytes that it keeps for the backward pass, its output among them.
    pub kept: u64,
    /// The most bytes in use besides while it runs, forward or back.
    pub workspace: u64,
    /// Floating-point operations forward and back.
    pub flops: f64,
}

/// The steps of the first epochs, in which stages are frozen that are trained later.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AtFirstSummary {
    /// How many epochs those are.
    pub epochs: usize,
    /// The stages that are frozen.
    pub frozen: Vec<String>,
    /// The estimated peak, bytes.
    pub peak: u64,
    /// The peak with the same settings once all stages are trained.
    pub peak_later: u64,
    /// Seconds of a step, as a multiple of those once all stages are trained.
    pub relative_time: f64,
}

/// A strategy and its estimate.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StrategySummary {
    /// The policy's name.
    pub checkpointing: &'static str,
    /// The segments of `sequential`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segments: Option<usize>,
    /// The numbers that activations are held in.
    pub precision: Precision,
    /// The micro-batch.
    pub micro_batch: usize,
    /// Where what is kept waits.
    pub offload: &'static str,
    /// What dense layers keep.
    pub dense_layers: DenseLayers,
    /// Whether the optimizer's state waits in host memory.
    pub offload_optimizer: bool,
    /// The estimated peak, bytes.
    pub peak: u64,
    /// Bytes that the process holds of a card at most, as `nvidia-smi` has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<u64>,
    /// Operations done again, in percent of those of a step that keeps everything.
    pub recompute_percent: f64,
    /// Seconds of a step, as a multiple of those of whole batches with everything kept.
    pub relative_time: f64,
    /// Bytes off the device.
    pub away: u64,
    /// Whether it fits.
    pub fits: bool,
    /// Whether its numbers are those of whole batches at once in the precision of the configuration, up to
    /// rounding.
    pub same_numbers: bool,
}

impl StageSummary {
    fn new(name: &str, cost: &Footprint, frozen: bool) -> Self {
        let workspace =
            cost.forward_workspace.max(cost.saving_workspace).max(cost.backward_workspace());
        let kept = if frozen { 0 } else { cost.kept() };
        Self { name: name.to_owned(), frozen, kept, workspace, flops: cost.flops() }
    }
}

impl StrategySummary {
    fn new(
        Estimator { plan, machine, .. }: &Estimator,
        settings: &MemorySettings,
        found: &StepEstimate,
        whole: f64,
    ) -> Self {
        let segments = match &settings.checkpointing.0 {
            CheckpointingConfig::Sequential(config) => Some(config.segments),
            _ => None,
        };
        Self {
            checkpointing: settings.checkpointing.name(),
            segments,
            precision: settings.precision,
            micro_batch: settings.micro_batch,
            offload: settings.offload.name(),
            dense_layers: settings.dense_layers,
            offload_optimizer: settings.offload_optimizer,
            peak: found.peak,
            held: machine.cuda.then_some(found.held),
            recompute_percent: found.recompute_percent,
            relative_time: found.seconds / whole,
            away: found.away,
            fits: found.fits,
            same_numbers: plan.keeps_numbers(settings),
        }
    }

    /// The order in which strategies are preferred.
    pub fn order(&self, other: &Self) -> Ordering {
        let preference = |row: &Self| {
            let &Self { fits, same_numbers, relative_time, .. } = row;
            Preference { fits, same_numbers, time: relative_time }
        };
        preference(self).order(&preference(other)).then(self.peak.cmp(&other.peak))
    }
}

impl AtFirstSummary {
    /// The estimates for the first epochs with `settings`, where stages are frozen in them.
    fn new(estimator: &Estimator, settings: &MemorySettings) -> Result<Option<Self>, Fault> {
        let Estimator { plan, machine, .. } = estimator;
        let Some(first) = plan.at_first() else { return Ok(None) };
        let later = estimator.estimate(settings)?;
        let found = Estimator::new(&first, *machine).estimate(settings)?;
        let names = estimator.costs(settings).names;
        Ok(Some(Self {
            epochs: plan.frozen_epochs(),
            frozen: names[..plan.freeze_stages].to_vec(),
            peak: found.peak,
            peak_later: later.peak,
            relative_time: found.seconds / later.seconds,
        }))
    }
}

impl PipelineSummary {
    /// That of steps with `settings`; `whole` are the seconds of a step of whole batches.
    fn new(
        estimator: &Estimator,
        settings: &MemorySettings,
        whole: f64,
    ) -> Result<Option<Self>, Fault> {
        let (plan, strategies) = (&estimator.plan, estimator.strategies(settings)?);
        let Some(part) = strategies[0].part else { return Ok(None) };
        let found = estimator.estimate(settings)?;
        let micro_batches = plan.device_batch().div_ceil(settings.micro_batch);
        let sends = estimator.bytes_between(settings);
        let sent = |rank: usize| sends.get(rank).copied().unwrap_or(0);
        // Nothing goes back to stages that are all frozen.
        let returned = |rank: usize| match rank.checked_sub(1) {
            Some(before) if strategies[rank].part.is_some_and(|part| part.returns) => sends[before],
            _ => 0,
        };
        let of = |(rank, device): (usize, &DeviceEstimate)| PipelineDevice {
            name: plan.device_names(rank),
            stages: [
                plan.model.stage_names()[device.stages.start].to_owned(),
                plan.model.end_of(device.stages.end - 1),
            ],
            alive: PipelinePlace { rank, ..part.place }.alive(micro_batches),
            peak: device.peak,
            relative_time: device.seconds / whole,
            seconds: device.seconds,
            sends: sent(rank),
            sends_in_step: micro_batches as u64 * (sent(rank) + returned(rank)),
        };
        let work: f64 = found.devices.iter().map(|device| device.seconds).sum();
        Ok(Some(Self {
            schedule: part.place.schedule,
            micro_batches,
            bubble: part.place.bubble(micro_batches),
            idle: 1.0 - work / (found.devices.len() as f64 * found.seconds),
            copies: plan.copies(),
            seconds: found.seconds,
            devices: found.devices.iter().enumerate().map(of).collect(),
        }))
    }
}

impl PlanSummary {
    /// The estimates for `plan` on `machine`.
    ///
    /// # Errors
    ///
    /// A policy that does not fit the chain.
    pub fn new(plan: &Plan, machine: &Machine) -> Result<Self, Fault> {
        let planner = Planner::choose(plan, *machine).ok();
        let estimator = Estimator::new(planner.as_ref().map_or(plan, Planner::plan), *machine);
        let Estimator { plan, budget, .. } = &estimator;
        let configured = MemorySettings::configured(&plan.memory, plan.device_batch());
        let chosen = planner.map(|planner| planner.settings().clone());
        let settings = chosen.clone().unwrap_or(configured.clone());
        let whole = MemorySettings {
            micro_batch: plan.device_batch(),
            checkpointing: Default::default(),
            offload: Default::default(),
            ..configured.clone()
        };
        let whole = estimator.estimate(&whole)?.seconds;
        let costs = estimator.costs(&settings);
        let candidates = plan.candidates(machine);
        let found = estimate_all(plan, machine, &candidates)?;
        let strategies: Vec<StrategySummary> = candidates
            .iter()
            .zip(&found)
            .map(|(settings, found)| StrategySummary::new(&estimator, settings, found, whole))
            .collect();
        let fits = |place: &usize| {
            let row = &strategies[*place];
            row.fits && row.precision == plan.memory.precision
        };
        let fitting = || (0..strategies.len()).filter(fits);
        let time = |place: &usize| strategies[*place].relative_time;
        let fastest = fitting().min_by(|a, b| time(a).total_cmp(&time(b)));
        let preferred = fitting().min_by(|a, b| strategies[*a].order(&strategies[*b]));
        let stages = costs.names.iter().zip(&costs.stages).enumerate();
        Ok(Self {
            device: if machine.cuda { "cuda" } else { "cpu" },
            memory: machine.memory,
            free: machine.free,
            budget: *budget,
            warning: machine.beyond(plan.memory.budget().ok().flatten()),
            bytes: FixedBytes {
                weights: costs.weights,
                gradients: costs.gradients(),
                optimizer: costs.optimizer,
            },
            precision: settings.precision,
            micro_batch: settings.micro_batch,
            stages: stages
                .map(|(place, (name, cost))| StageSummary::new(name, cost, place < costs.frozen))
                .collect(),
            pipeline: PipelineSummary::new(&estimator, &settings, whole)?,
            parallel: ParallelSummary::new(plan, *machine, &costs)?,
            at_first: AtFirstSummary::new(&estimator, &settings)?,
            strategies,
            chosen: chosen
                .and_then(|chosen| candidates.iter().position(|settings| *settings == chosen)),
            fastest,
            preferred,
            largest_tensor: costs.largest_tensor,
            advice: advice::advice(&estimator, &settings),
        })
    }
}

/// An estimate for each of the candidates; those of one precision share a thread.
fn estimate_all(
    plan: &Plan,
    machine: &Machine,
    candidates: &[MemorySettings],
) -> Result<Vec<StepEstimate>, Fault> {
    let alike = |a: &MemorySettings, b: &MemorySettings| {
        a.precision == b.precision && a.dense_layers == b.dense_layers
    };
    let estimates = candidates.par_chunk_by(alike).map(|candidates| {
        let estimator = Estimator::new(plan, *machine);
        candidates.iter().map(|settings| estimator.estimate(settings)).collect::<Vec<_>>()
    });
    estimates.collect::<Vec<_>>().into_iter().flatten().collect()
}
