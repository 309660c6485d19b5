//! What a run tells before it begins.

use super::{describe, machine};
use crate::data::{Dataset, LabelCounts};
use crate::memory::{Action, OffloadConfig, Operation};
use crate::model::HeadConfig;
use crate::model::weights::Initial;
use crate::ops::is_gpu;
use crate::plan::{Plan, Planner};
use crate::report::{
    Event, HeadCounts, HeadLabels, LabelCount, Place, Report, ReportError, SharedBatch,
    SharedModel, Start, StartMemory, Watched,
};
use crate::run::state::Resumable;
use crate::run::{Run, Trainer, not_kept};

/// What is to be said of offloads that do nothing.
fn idle_offload(plan: &Plan, trainer: &Trainer) -> impl Iterator<Item = &'static str> {
    let is_moved = |operation: &Operation| matches!(operation.action, Action::Offload(_));
    let on_cpu = !is_gpu(trainer.first().replica.inference.device());
    let activations = match plan.memory.offload() {
        OffloadConfig::None(_) => None,
        OffloadConfig::Host(_) if on_cpu => Some(
            "`offload = \"host\"` under [memory] frees nothing: the memory of the CPU is the host's. \
             `[memory.offload.disk]` does.",
        ),
        _ if trainer
            .copy()
            .iter()
            .any(|rank| rank.replica.strategy.schedule(1).operations.iter().any(is_moved)) =>
        {
            None
        }
        _ => Some(
            "`offload` under [memory] moves nothing: only the last stage keeps activations, and \
             it needs them at once.",
        ),
    };
    let optimizer = (plan.memory.offload_optimizer && on_cpu).then_some(
        "`offload_optimizer = true` under [memory] frees nothing: the memory of the CPU is the host's.",
    );
    activations.into_iter().chain(optimizer)
}

/// The devices as a person knows them.
fn described(trainer: &Trainer) -> String {
    let ranks = trainer.ranks.iter().map(|rank| describe(rank.replica.inference.device()));
    let mut names: Vec<String> = ranks.collect();
    let count = names.len();
    names.dedup();
    match (count, names.as_slice()) {
        (1, [name]) => name.clone(),
        (_, [name]) => format!("{name}, as {count} devices"),
        _ => format!("{count} devices ({})", names.join("; ")),
    }
}

/// How steps are taken.
fn memory(planner: &Planner) -> StartMemory {
    let (settings, estimate) = (planner.settings(), planner.estimate());
    StartMemory {
        micro_batch: settings.micro_batch,
        checkpointing: settings.checkpointing.name(),
        offload: settings.offload.name(),
        dense_layers: settings.dense_layers.name(),
        offload_optimizer: settings.offload_optimizer,
        budget: planner.budget(),
        predicted_peak: estimate.peak,
        recompute_percent: estimate.recompute_percent,
        told: planner.summary(),
    }
}

/// How the stages of a pipeline are shared out.
fn pipeline(planner: &Planner) -> Option<SharedModel> {
    let part = planner.strategies()[0].part?;
    let model = &planner.plan().model;
    let begin = |stage: usize| model.stage_names()[stage].to_owned();
    let stages = planner.plan().stages_of_devices().into_iter();
    let micro_batches = planner.micro_batches();
    Some(SharedModel {
        schedule: part.place.schedule,
        stages: stages.map(|range| [begin(range.start), model.end_of(range.end - 1)]).collect(),
        micro_batches,
        bubble: part.place.bubble(micro_batches),
    })
}

/// How often each label of the plan's heads is known and positive.
fn label_counts(plan: &Plan, dataset: &Dataset) -> HeadCounts {
    let head = |(place, head): (usize, &HeadConfig)| {
        let LabelCounts { positives, negatives } = dataset.label_counts(place);
        let counts = positives.into_iter().zip(negatives);
        let counts = counts
            .map(|(positives, negatives)| LabelCount { positives, known: positives + negatives });
        (head.name.clone(), head.labels.iter().cloned().zip(counts).collect())
    };
    plan.heads.iter().enumerate().map(head).collect()
}

/// Tells the reports what has been opened, and what a person should know of it.
pub(super) fn announce(
    run: &mut Run,
    resumed: Option<Resumable>,
    train_images: usize,
    config: String,
    initial: Option<Initial>,
) -> Result<(), ReportError> {
    let state = &run.state;
    let place = Place { epoch: state.epoch_shown(), step: state.step };
    let parameters = run.trainer.parameters().into_iter().filter(|p| p.trained);
    let start = Start {
        name: run.plan.run.name.clone(),
        device: described(&run.trainer),
        parallel: (run.plan.copies() > 1).then(|| SharedBatch {
            devices: run.plan.devices.len(),
            copies: run.plan.copies(),
            batch_size: run.plan.train.batch_size,
            device_batch_size: run.plan.device_batch(),
            batch_norm: run.plan.batch_norm,
            optimizer: run.plan.placement,
        }),
        pipeline: pipeline(&run.trainer.planner).map(Box::new),
        parameters: parameters.map(|p| p.shape.iter().product::<usize>()).sum(),
        train_images,
        validation_images: run.validation.len(),
        epochs: run.plan.train.epochs,
        steps_per_epoch: run.train_loader.batches_per_epoch(),
        resumed_from: resumed.is_some().then_some(place),
        memory: Some(memory(&run.trainer.planner)),
        heads: run
            .plan
            .heads
            .iter()
            .map(|head| HeadLabels { name: head.name.clone(), labels: head.labels.clone() })
            .collect(),
        watched: Some(Watched {
            metric: run.plan.monitors.best.metric.clone(),
            value: None,
            best: state.best.best,
            best_epoch: state.best.best_epoch,
        }),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        data: state.data.clone(),
        labels: [("train", run.train_loader.dataset()), ("validation", &*run.validation)]
            .map(|(list, dataset)| (list.to_owned(), label_counts(&run.plan, dataset)))
            .into(),
        may_stop_early: run.plan.train.early_stopping.is_some(),
        config,
    };
    run.reports.event(&Event::Start(start))?;
    if let Some(Resumable { state, damaged }) = resumed {
        for damage in damaged {
            let reason = format!("{} {}", damage.file, damage.fault);
            run.reports.event(&Event::DamagedState { folder: damage.folder, reason })?;
        }
        let Place { epoch, step } = place;
        run.reports.event(&Event::Resumed { folder: state.folder, epoch, step })?;
    }
    let planner = &run.trainer.planner;
    let mut warnings = run.plan.warnings();
    warnings.extend(planner.beyond().into_iter().chain(planner.fewer_normalised()));
    warnings.extend(machine::crowded(&run.plan, planner));
    let outputs: usize = run.plan.heads.iter().map(|head| head.labels.len()).sum();
    warnings.extend(not_kept(run.validation.len() * outputs));
    warnings.extend(idle_offload(&run.plan, &run.trainer).map(str::to_owned));
    if let Some(initial) = initial {
        warnings.extend(initial.warnings());
        run.reports.event(&Event::Initialized(initial))?;
    }
    warnings.into_iter().try_for_each(|message| run.reports.event(&Event::Warning { message }))
}
