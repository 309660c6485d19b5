//! From a plan to a run: the only place that opens devices and files.

mod announce;
mod bench;
mod cpu;
mod device;
mod differences;
mod drawing;
mod error;
mod evaluate;
mod export;
mod folds;
mod here;
mod host_memory;
mod initial;
mod machine;
mod open_data;
mod predict;
mod process_cards;
mod processes;
mod resume;
mod samples;
mod saved;
mod trace;
mod trained;
mod warm;

use std::ops::Range;
use std::slice::from_ref;
use std::time::Instant;

pub use bench::{Bench, Taken};
pub use cpu::{cpu, join_threads, meter, share_cores};
pub use device::{
    Card, CardDetails, DeviceError, Found, NoCuda, describe, find_devices, resolve_device,
};
pub(crate) use differences::differences;
pub use drawing::while_drawing;
pub use error::BuildError;
pub use evaluate::{EvaluationList, List, open_list, open_own};
pub use export::{Export, ExportError};
pub use folds::{FoldFolders, fold_plans};
pub use here::check_here;
pub use machine::{host_memory, in_the_way, machine_here};
pub use open_data::{data_warnings, open_data};
pub use predict::{
    Heatmap, Heatmaps, LabelCoverage, PredictError, PredictOptions, PredictedBatch, Predictions,
    Predictor,
};
pub use processes::Among;
pub use resume::{ChangedData, ChangedKeys};
pub use samples::draw_samples;
pub use trace::{Traced, Tracer, trace_run};
pub use trained::{Trained, TrainedFolder, open_trained, open_weights};

use burn::tensor::Device;

use crate::choice::NoSettings;
use crate::data::LabelCounts;
use crate::memory::measure::Meter;
use crate::memory::offload::{OffloadError, Store};
use crate::memory::{Chain, OffloadConfig, Pages};
use crate::model::weights::Initial;
use crate::ops::gpu::Exchanges;
#[cfg(feature = "cuda")]
use crate::ops::gpu::{Gpu, MOST_CARDS};
use crate::ops::is_gpu;
use crate::optim::{LossScale, Schedule};
use crate::parallel::processes::{Cards, Processes};
use crate::parallel::{self, Shard};
use crate::plan::{DevicePlan, Mode, Plan, Planner};
use crate::report::{Event, Report, Reports, ResumePoint};
use crate::run::state::{Resumable, StateStore};
use crate::run::{
    FolderMode, Keeper, Rank, Run, RunFolder, RunPlace, SignalGuard, Stop, TrainState, Trainer,
    Writer, best_findings, best_gone, restore, weights,
};
use crate::train::{Inference, Replica, Updater};
use announce::announce;
use initial::start_from;
use open_data::OpenData;
use saved::Saved;

/// What the command line asks for besides the plan.
#[derive(Debug, Clone)]
pub struct Options {
    /// Whether the run is new, goes on, or replaces another.
    pub mode: FolderMode,
}

/// Opens everything that `plan` names and puts a run together, at its beginning or, when it is
/// resumed, where the newest intact state stands.
///
/// Everything that can be wrong is looked at before the run folder is made, or what is in it removed.
///
/// # Errors
/// When something cannot be opened, or does not fit together; the run folder is then as before, and
/// where there was none, there is none.
pub fn build(plan: Plan, options: &Options) -> Result<Run, BuildError> {
    build_of(plan, options, None)
}

/// The same for one of several processes that train the plan's model together. The first alone opens the run
/// folder.
///
/// # Errors
/// Those of [`build`], of any of the processes.
pub fn build_of(
    plan: Plan,
    options: &Options,
    among: Option<Among<'_>>,
) -> Result<Run, BuildError> {
    let stop = Stop::install().map_err(BuildError::Signals)?;
    let watch = SignalGuard::over(&stop, "no run was made or changed");
    let place = match among.is_none_or(|among| among.processes.is_first()) {
        true => {
            folds::check_above(&plan)?;
            Some(RunPlace::find(&plan.folder(), options.mode)?)
        }
        false => None,
    };
    let ready = Ready::new(plan, place.as_ref(), options.mode, among)?;
    drop(watch);
    if let Some(signal) = stop.requested() {
        return Err(BuildError::Stopped(signal));
    }
    // From here on the folder changes.
    let folder = place.map(RunPlace::open).transpose()?;
    if let (Some(folder), FolderMode::Overwrite) = (&folder, options.mode) {
        folder.clear()?;
    }
    ready.begin(folder, options.mode, stop)
}

/// Everything that a run needs but its folder.
struct Ready {
    plan: Plan,
    /// As it is saved.
    config: String,
    data: OpenData,
    saved: Option<Saved>,
    trainer: Trainer,
    schedule: Schedule,
    meter: Meter,
    /// What was taken from the weights to start from.
    initial: Option<Initial>,
}

impl Ready {
    /// Opens everything; no run is made or removed. Without a `place` another process has it.
    fn new(
        mut plan: Plan,
        place: Option<&RunPlace>,
        mode: FolderMode,
        among: Option<Among<'_>>,
    ) -> Result<Self, BuildError> {
        let processes = among.map(|among| among.processes);
        let devices = match among {
            None => devices(&plan)?,
            Some(among) => {
                processes::check_alike(among.processes, &plan)?;
                among.open(&plan)?
            }
        };
        let cards = match among {
            None => None,
            Some(Among { processes, device }) => {
                process_cards::cards(processes, &devices[0], device)?
            }
        };
        place.map_or(Ok(()), |place| place.check_room(plan.state_bytes()))?;
        let folder = place.and_then(RunPlace::folder);
        let mut saved = match (mode, folder) {
            (FolderMode::Resume, Some(folder)) => Some(Saved::open(&mut plan, folder)?),
            _ => None,
        };
        if let Some(processes) = processes {
            saved = processes::saved_of_first(processes, saved, &mut plan)?;
        }
        let config = plan.to_toml()?;
        let mut data = match processes {
            None => OpenData::open(&plan)?,
            Some(processes) => processes::data(processes, || OpenData::open(&plan))?,
        };
        let resumed = saved.as_ref().and_then(|saved| saved.train_state.as_ref());
        if let (Some(resumed), Some(folder)) = (resumed, folder) {
            resume::check_data(folder, resumed.data.as_ref(), &data)?;
        }
        data.check_files(plan.data.on_bad_image)?;
        let planned = among.as_ref().map_or(&plan.devices[..], |among| from_ref(&among.device));
        let mut machine = machine::machine(planned, &devices[0]);
        if let Some(processes) = processes {
            let sharing = cards.as_ref().map_or(1, Cards::most_on_one) as u64;
            machine = processes::smallest_machine(processes, machine, sharing)?;
        }
        let planner = resume::planner(&plan.limited_to(data.most_images()), machine, resumed)
            .map_err(|error| machine::with_holders(error, &plan))?;
        let meter = meter(&devices[0]);
        let counts = |head| data.train.label_counts(head);
        let starts = resumed.is_none();
        let first = processes.map_or(0, Processes::rank);
        let (mut trainer, initial) = trainer(planner, devices, first, counts, starts)?;
        trainer.processes = processes.cloned();
        if let (Some(cards), Some(processes)) = (&cards, processes) {
            let device = trainer.first().replica.inference.device();
            trainer.exchanges = process_cards::exchanges(
                processes,
                device,
                cards,
                trainer.planner.gradient_room(),
            )?;
            data.warnings.extend(cards.shared());
        }
        data.warnings.extend(processes.and_then(Processes::warning));
        data.warnings.extend(trainer.warning());
        data.warnings.extend(trainer.fit_standardizers(&data.train));
        let schedule = schedule(&plan, data.train_loader.batches_per_epoch());
        Ok(Self { plan, config, data, saved, trainer, schedule, meter, initial })
    }

    /// The run in its folder, at its beginning or where it was saved.
    fn begin(
        self,
        folder: Option<RunFolder>,
        mode: FolderMode,
        stop: Stop,
    ) -> Result<Run, BuildError> {
        let Self { plan, config, mut data, saved, mut trainer, mut schedule, meter, initial } =
            self;
        let (store, resumed) = match saved {
            Some(Saved { store, newest, .. }) => (store, newest),
            None => (None, None),
        };
        let keeper = match folder {
            None => None,
            Some(folder) => {
                let opened = || StateStore::open(folder.lock(), plan.run.save.keep);
                let store = store.map_or_else(opened, Ok)?;
                let beside = Writer::bytes_beside(plan.state_bytes());
                let writer = Writer::over(store, trainer.planner.has_room_beside_steps(beside));
                Some(Keeper { writer, folder })
            }
        };
        let mut train_state = TrainState::start(schedule.state());
        if let Some(Resumable { state, .. }) = &resumed {
            train_state = restore(state, &mut trainer, &mut schedule)
                .map_err(|source| BuildError::Restore { folder: state.folder.clone(), source })?;
            resume::reopen(&mut train_state, &plan);
            if train_state.data.is_none() {
                data.warnings.insert(0, resume::unknown_data(&state.folder));
            }
        }
        data.warnings.extend(resume::other_parts(&plan, &trainer.planner, &train_state));
        train_state.remember(&trainer.planner, &plan.memory);
        train_state.data = Some(data.fingerprint);
        if let Some(processes) = &trainer.processes {
            let own = weights(&trainer.first().replica.inference.chain);
            let own = own.map_err(|error| BuildError::Begin(error.to_string()))?;
            processes.agree("weights to start from", &own)?;
        }
        if let Some(Keeper { folder, .. }) = &keeper {
            folder.write_config(&config)?;
            folder.write_split(&data.list.to_csv(), &data.list.label_bytes())?;
        }
        // A run killed before its first save has told something already: it is told again.
        let from = ResumePoint {
            metrics_bytes: train_state.metrics_bytes,
            first_step: train_state.step + usize::from(resumed.is_some()),
        };
        let goes_on = mode == FolderMode::Resume;
        let reports = match &keeper {
            None => Reports::default(),
            Some(Keeper { folder, .. }) => {
                Reports::open(folder.path(), goes_on.then_some(from), best_findings)?
            }
        };
        let mut run = Run {
            folder: plan.folder(),
            plan,
            keeper,
            trainer,
            schedule,
            validation: data.validation,
            train_loader: data.train_loader,
            coming: None,
            validation_loader: data.validation_loader,
            reports,
            stop,
            state: train_state,
            saved_at: Instant::now(),
            meter,
            unmeasured: true,
            measures: false,
            told_undefined: data.undefined,
        };
        let mut warnings = data.warnings;
        if goes_on && resumed.is_none() {
            warnings.insert(0, resume::unsaved(&run.folder));
        }
        warnings.extend(resume::nothing_left(&run.state, &run.plan));
        if run.state.ended.is_none() {
            warnings.extend(best_gone(&run.state, &run.folder));
        }
        announce(&mut run, resumed, data.train.len(), config, initial)?;
        for message in warnings {
            run.reports.event(&Event::Warning { message })?;
        }
        Ok(run)
    }
}

/// The plan's devices, which must have kernels for the plan's precision.
fn devices(plan: &Plan) -> Result<Vec<Device>, BuildError> {
    plan.devices.iter().map(|device| open_device(plan, *device)).collect()
}

/// The first of them.
fn device(plan: &Plan) -> Result<Device, BuildError> {
    open_device(plan, plan.device())
}

fn open_device(plan: &Plan, device: DevicePlan) -> Result<Device, BuildError> {
    let device = resolve_device(&device.to_string())?;
    plan.memory.precision.check_device(|| !is_gpu(&device))?;
    Ok(device)
}

/// The learning rate over time, for epochs of so many steps.
fn schedule(plan: &Plan, steps_per_epoch: usize) -> Schedule {
    let (train, plateau) = (&plan.train, plan.monitors.plateau.as_ref());
    let higher = plateau.is_some_and(|monitor| monitor.mode == Mode::Max);
    train.schedule.init(train.optimizer.lr(), steps_per_epoch, train.epochs, higher)
}

/// Those stages of the plan's model that a device has, to run as `planner` has it.
fn chain(plan: &Plan, planner: &Planner, device: &Device, stages: &Range<usize>) -> Chain {
    let settings = planner.settings();
    let specs = plan.stages_with(settings.precision, settings.dense_layers);
    Chain::init(&specs[stages.clone()], device, plan.run.seed)
}

/// The model that `planner` has planned, on some of its devices, of which the first has copy number `first`, and what was
/// taken of the weights that it `starts` from, where it does not go on from a saved state.
fn trainer(
    planner: Planner,
    devices: Vec<Device>,
    first: usize,
    counts: impl Fn(usize) -> LabelCounts,
    starts: bool,
) -> Result<(Trainer, Option<Initial>), BuildError> {
    let plan = &planner.plan().clone();
    let parts = planner.plan().stages_of_devices();
    let depth = parts.len();
    let exchanges = exchanges(&devices, depth, &planner)?;
    let messages = messages(&devices, depth)?;
    let cards = devices.len() > 1 && is_gpu(&devices[0]);
    let threads = cards.then(|| parallel::threads(devices.len())).transpose();
    let threads = threads.map_err(|error| BuildError::Cards(error.to_string()))?;
    let (mut ranks, mut initial) = (Vec::with_capacity(devices.len()), None);
    // Before anything lies on the device. Several take their steps on threads of their own, each of which
    // has pages of its own.
    let (mut passes, mut outgrows_pages) = (None, false);
    if let [device] = &devices[..] {
        match planner.held() {
            Some(held) => {
                hold(device, held.pages);
                passes = Some(held.passes);
            }
            None => outgrows_pages = is_gpu(device),
        }
    }
    for (number, copy) in devices.chunks(depth).enumerate() {
        let shard = match plan.optimizer_shards() {
            1 => Shard::WHOLE,
            shards => Shard::new(first + number, shards),
        };
        let mut chains: Vec<Chain> = Vec::with_capacity(depth);
        for (device, stages) in copy.iter().zip(&parts) {
            warm::compile_kernels(plan, &planner, device);
            chains.push(chain(plan, &planner, device, stages));
        }
        if starts {
            let parts = chains.iter_mut().zip(copy);
            initial = start_from(plan, &mut parts.collect::<Vec<_>>())?;
        }
        for (place, (chain, device)) in chains.into_iter().zip(copy).enumerate() {
            let stages = (place, parts[place].start);
            ranks.push(rank(plan, &planner, stages, shard, chain, device.clone(), &counts)?);
        }
    }
    let (batch_norm, processes) = (plan.batch_norm, None);
    let (upcoming, backoffs, usage, courses) = (None, Vec::new(), Vec::new(), None);
    let mut trainer = Trainer {
        ranks,
        depth,
        threads,
        exchanges,
        messages,
        processes,
        batch_norm,
        planner,
        outgrows_pages,
        upcoming,
        backoffs,
        usage,
        courses,
    };
    trainer.place_passes(passes);
    Ok((trainer, initial))
}

/// Takes the pages of `device` that all lies in but what passes take. Where they cannot be had, the allocator takes those that
/// it needs, as it does without.
#[cfg(feature = "cuda")]
fn hold(device: &Device, pages: Pages) {
    if let Some(gpu) = Gpu::of(device) {
        let _ = gpu.hold(pages);
    }
}

/// The CPU's allocator has none.
#[cfg(not(feature = "cuda"))]
fn hold(_: &Device, _: Pages) {}

/// What cards exchange sums by, where several have the same part of the model: the first of `depth`, and so
/// on.
#[cfg(feature = "cuda")]
fn exchanges(
    devices: &[Device],
    depth: usize,
    planner: &Planner,
) -> Result<Vec<Exchanges>, BuildError> {
    let cards: Vec<Gpu> = devices.iter().filter_map(Gpu::of).collect();
    if cards.len() <= depth {
        return Ok(Vec::new());
    }
    let room = planner.gradient_room();
    let row = |stage: usize| {
        let cards: Vec<Gpu> = cards.iter().skip(stage).step_by(depth).cloned().collect();
        Exchanges::open(&cards, room).map_err(BuildError::Cards)
    };
    (0..depth).map(row).collect()
}

/// What the cards of each copy of the model send each other activations and gradients by, where there are several.
#[cfg(feature = "cuda")]
fn messages(devices: &[Device], depth: usize) -> Result<Vec<Exchanges>, BuildError> {
    let cards: Vec<Gpu> = devices.iter().filter_map(Gpu::of).collect();
    // The kernels' addresses are those of so many cards.
    if !(2..=MOST_CARDS).contains(&depth) || cards.is_empty() {
        return Ok(Vec::new());
    }
    let column = |cards: &[Gpu]| Exchanges::between(cards).map_err(BuildError::Cards);
    cards.chunks(depth).map(column).collect()
}

/// There are no cards without CUDA.
#[cfg(not(feature = "cuda"))]
fn messages(_: &[Device], _: usize) -> Result<Vec<Exchanges>, BuildError> {
    Ok(Vec::new())
}

/// There are no cards without CUDA.
#[cfg(not(feature = "cuda"))]
fn exchanges(_: &[Device], _: usize, _: &Planner) -> Result<Vec<Exchanges>, BuildError> {
    Ok(Vec::new())
}

/// The plan's model on one device, and what changes it. Of a pipeline it is the device at `place`, whose
/// stages begin at `begin`. It changes `shard` of each bucket of weights.
fn rank(
    plan: &Plan,
    planner: &Planner,
    (place, begin): (usize, usize),
    shard: Shard,
    chain: Chain,
    device: Device,
    counts: impl Fn(usize) -> LabelCounts,
) -> Result<Rank, OffloadError> {
    let precision = plan.memory.precision;
    let inference = Inference::new(chain, &plan.heads, device, precision);
    let losses = plan.heads.iter().enumerate();
    let losses = losses
        .map(|(index, head)| head.loss().init(head.task, head.labels.len(), &counts(index)))
        .collect();
    let store = Store::open(&planner.settings().offload.0)?;
    let strategy = planner.strategies()[place].clone();
    let replica = Replica::new(inference, losses, strategy, store, plan.run.seed);
    let inference = &replica.inference;
    let stages = inference.chain.stages();
    let frozen = plan.frozen().saturating_sub(begin);
    let of_stages = stages.iter().skip(frozen).flat_map(|stage| stage.buckets());
    let trained: Vec<_> = of_stages.filter(|bucket| bucket.trained).collect();
    let factors = plan.lr_factors().into_iter().skip(begin);
    let factors = stages.iter().zip(factors).filter(|(_, factor)| *factor != 1.0);
    let lr_factors = factors
        .flat_map(|(stage, factor)| {
            stage.buckets().into_iter().map(move |bucket| (bucket.key().to_owned(), factor))
        })
        .collect();
    let sizes = trained.iter().filter_map(|bucket| {
        let own = shard.range(bucket.value.dims()[0]);
        (!own.is_empty()).then(|| (bucket.key().to_owned(), own.len()))
    });
    let centres = if replica.has_heads() { replica.centre_sizes() } else { Vec::new() };
    let optimizer = plan.train.optimizer.init(sizes.chain(centres));
    let host = OffloadConfig::Host(NoSettings {});
    let optimizer = match planner.settings().offload_optimizer {
        true => optimizer.wait_in(Store::open(&host)?),
        false => optimizer,
    };
    let weights = trained
        .into_iter()
        .filter_map(|bucket| Some((bucket.key().to_owned(), shard.of(bucket.value.clone())?)));
    let ema = plan.train.ema.as_ref().map(|ema| ema.init(weights));
    let loss_scale = precision.scales_loss().then(LossScale::default);
    let updater = Updater {
        optimizer,
        ema,
        loss_scale,
        clip_norm: plan.train.clip_norm,
        decay_norms_and_biases: plan.train.decay_norms_and_biases,
        lr_factors,
        shard,
    };
    Ok(Rank { replica, updater })
}
