//! From a plan to a run: the only place that opens devices and files.

mod bench;
mod device;
mod differences;
mod drawing;
mod here;
mod machine;
mod resume;
mod trace;
mod warm;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

pub use bench::{Bench, Taken};
pub use device::{DeviceError, Found, describe, find_devices, is_gpu, resolve_device};
pub(crate) use differences::differences;
pub use drawing::Drawing;
pub use here::{NotHere, check_here};
pub use machine::machine_here;
pub use resume::ChangedKeys;
pub use trace::{Traced, trace};

use burn::tensor::{Device, Tensor, TensorData};

use crate::choice::NoSettings;
use crate::data::{self, Cache, DataError, Dataset, LabelCounts, Loader, LoaderConfig, Splits};
use crate::memory::Chain;
use crate::memory::measure::Meter;
use crate::memory::offload::{OffloadError, Store};
use crate::memory::{OffloadConfig, Operation};
use crate::model::weights::{self, NamedTensor, WeightsError, match_names};
use crate::model::{HeadConfig, Norm};
use crate::optim::{LossScale, Schedule};
use crate::plan::{NothingFits, Plan, Planner, TrainPlan};
use crate::report::{
    Event, HeadLabels, Place, Report, ReportError, Reports, ResumePoint, Start, StartMemory,
    Watched,
};
use crate::run::state::{Resumable, SavedState, StateError, StateStore};
use crate::run::{
    FolderError, FolderMode, LearnedHead, Learner, Position, RestoreError, Run, RunFolder, Stop,
    restore,
};

/// What the command line asks for besides the plan.
#[derive(Debug, Clone)]
pub struct Options {
    /// Whether the run is new, goes on, or replaces another.
    pub mode: FolderMode,
    /// Weights to start from.
    pub init: Option<PathBuf>,
}

/// Why a run could not be put together.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The device is not there.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The device does not have the precision.
    #[error(
        "the precision \"tf32\" under [memory] needs a GPU, and the device is {device}\nWrite \
         `precision = \"fp32\"` (or \"bf16\") under [memory], or name a GPU under [device]."
    )]
    Precision {
        /// The device.
        device: String,
    },
    /// No way to take a step keeps within the budget.
    #[error(transparent)]
    NothingFits(#[from] NothingFits),
    /// There is nowhere to move what is kept for the backward pass.
    #[error(transparent)]
    Offload(#[from] OffloadError),
    /// The run folder cannot be used.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The configuration is another one than that of the run to be resumed.
    #[error(transparent)]
    Changed(#[from] ChangedKeys),
    /// Data are missing or wrong.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The weights to start from cannot be read.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// The weights to start from are of another model.
    #[error(
        "{} does not fit this model: {why}\nGive weights of the same architecture to --init, or \
         change [model] to theirs.",
        path.display()
    )]
    OtherModel {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        why: String,
    },
    /// The images to take a step on are not those of the plan.
    #[error(
        "{} has no tensor `images` of shape {shape:?}\nThe shape is `batch_size` under [train], \
         then `channels` and `size` of `image` under [data].",
        path.display()
    )]
    OtherImages {
        /// The file.
        path: PathBuf,
        /// The plan's batch, channels, height and width.
        shape: [usize; 4],
    },
    /// No saved state can be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// A saved state is intact and cannot be used.
    #[error(
        "the state in {} cannot be used: {source}\nIt was saved by another version of the program or \
         for another configuration. Start anew with --overwrite, or under another name with \
         --set run.name=<other>.",
        folder.display()
    )]
    Restore {
        /// Its folder.
        folder: PathBuf,
        /// What does not fit.
        source: RestoreError,
    },
    /// A report cannot be opened.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// The resolved configuration cannot be written down.
    #[error("the configuration cannot be saved as TOML: {0}")]
    Config(#[from] toml::ser::Error),
    /// The system refuses to tell of signals.
    #[error("cannot listen for SIGINT and SIGTERM: {0}")]
    Signals(#[source] std::io::Error),
}

/// Opens everything that `plan` names and puts a run together, at its beginning or, when it is
/// resumed, where the newest intact state stands.
///
/// # Errors
/// When something cannot be opened, or does not fit together; the run folder is then as before.
pub fn build(plan: Plan, options: &Options) -> Result<Run, BuildError> {
    let stop = Stop::install().map_err(BuildError::Signals)?;
    let device = device(&plan)?;
    let folder = RunFolder::create(&plan.folder(), options.mode)?;
    let config = plan.to_toml()?;
    if options.mode == FolderMode::Resume {
        resume::check_unchanged(folder.path(), &config)?;
    }
    let heads: Vec<HeadConfig> = plan.heads.iter().map(|head| head.to_config()).collect();
    let splits = open_data(&plan, &heads)?;
    let (train, validation) = (Arc::new(splits.train), Arc::new(splits.validation));
    let cache = Arc::new(Cache::open(&plan.data.cache.0, &plan.data.image)?);
    let train_loader = train_loader(&plan, &heads, Arc::clone(&train), cache.clone())?;
    let validation_loader = Loader::new(
        Arc::clone(&validation),
        LoaderConfig::evaluation(&plan.data, plan.train.batch_size, plan.run.seed),
        cache,
    );

    let mut saved = match options.mode {
        FolderMode::Resume => Some(open_saved(&plan, &folder)?),
        FolderMode::New | FolderMode::Overwrite => None,
    };
    let remembered = saved.as_ref().and_then(|(_, resumed)| resumed.as_ref());
    let remembered = remembered.map(|resumable| position(&resumable.state)).transpose()?;
    let machine = machine::machine(plan.device, &device);
    let planner = resume::planner(&plan, machine, remembered)?;

    warm::compile_kernels(&plan, &planner, &device);
    let meter = Meter::open(&device);
    let mut chain = chain(&plan, &planner, &device);
    let fresh = match &options.init {
        Some(path) => start_from(&mut chain, path, &device)?,
        None => Vec::new(),
    };
    let mut learner =
        learner(&plan, planner, &heads, chain, device, |head| train.label_counts(head))?;
    let mut schedule = schedule(&plan, train_loader.batches_per_epoch());

    if options.mode == FolderMode::Overwrite {
        folder.clear()?;
    }
    let (store, resumed) = match saved.take() {
        Some(saved) => saved,
        None => open_saved(&plan, &folder)?,
    };
    let mut position = Position::start(schedule.state());
    if let Some(Resumable { state, .. }) = &resumed {
        position = restore(state, &mut learner, &mut schedule)
            .map_err(|source| BuildError::Restore { folder: state.folder.clone(), source })?;
        resume::reopen(&mut position, &plan);
    }
    position.remember(&learner.planner, &plan.memory);
    folder.write_config(&config)?;
    // A run killed before its first save has told something already: it is told again.
    let from = ResumePoint {
        metrics_bytes: position.metrics_bytes,
        first_step: position.step + usize::from(resumed.is_some()),
    };
    let goes_on = options.mode == FolderMode::Resume;
    let reports = Reports::open(folder.path(), goes_on.then_some(from))?;
    let mut run = Run {
        plan,
        heads,
        folder,
        store,
        learner,
        schedule,
        validation,
        train_loader,
        validation_loader,
        reports,
        stop,
        position,
        saved_at: Instant::now(),
        meter,
    };
    announce(&mut run, resumed, train.len(), config)?;
    let planner = &run.learner.planner;
    let idle = idle_offload(&run.plan, &run.learner).map(str::to_owned);
    let warnings = planner.beyond().into_iter().chain(planner.fewer_normalised());
    for message in warnings.chain(idle).collect::<Vec<_>>() {
        run.reports.event(&Event::Warning { message })?;
    }
    if !fresh.is_empty() {
        let message = format!("not in the weights given, so drawn at random: {}", fresh.join(", "));
        run.reports.event(&Event::Warning { message })?;
    }
    Ok(run)
}

/// The plan's device, which must have kernels for the plan's precision.
fn device(plan: &Plan) -> Result<Device, BuildError> {
    let device = resolve_device(&plan.device.to_string())?;
    match plan.memory.precision.needs_gpu() && !is_gpu(&device) {
        true => Err(BuildError::Precision { device: describe(&device) }),
        false => Ok(device),
    }
}

/// Batches of training images.
fn train_loader(
    plan: &Plan,
    heads: &[HeadConfig],
    train: Arc<Dataset>,
    cache: Arc<Cache>,
) -> Result<Loader, DataError> {
    let (images, batch) = (train.len(), plan.train.batch_size);
    let sampler = plan.data.sampler.0.init(&train, heads);
    let config = LoaderConfig {
        // Only a norm over the batch suffers from one image, which may be all that was asked for.
        avoid_single: batch > 1 && plan.model.norm() == Norm::Batch,
        ..LoaderConfig::training(&plan.data, batch, plan.run.seed, sampler)
    };
    let loader = Loader::new(train, config, cache);
    match loader.batches_per_epoch() {
        0 => Err(DataError::NoBatch { images, batch }),
        _ => Ok(loader),
    }
}

/// The learning rate over time, for epochs of so many steps.
fn schedule(plan: &Plan, steps_per_epoch: usize) -> Schedule {
    let TrainPlan { schedule, optimizer, epochs, plateau, .. } = &plan.train;
    let higher = plateau.as_ref().is_some_and(|monitor| monitor.is_higher_better());
    schedule.init(optimizer.lr(), steps_per_epoch, *epochs, higher)
}

/// Opens the data, and says so where a phantom is drawn.
///
/// # Errors
/// As [`data::open`].
pub fn open_data(plan: &Plan, heads: &[HeadConfig]) -> Result<Splits, DataError> {
    let mut drawing = Drawing::default();
    data::open(&plan.data, heads, plan.run.seed, |done, all| drawing.tell(done, all))
}

/// Puts the weights in `path` into the chain and returns the names of those that it has not: only
/// heads may be missing, anything else is an error.
fn start_from(chain: &mut Chain, path: &Path, device: &Device) -> Result<Vec<String>, BuildError> {
    let file = weights::read(path)?;
    let wanted: Vec<(String, Vec<usize>)> =
        chain.parameters().into_iter().map(|p| (p.name, p.shape)).collect();
    let matched = match_names(&file.tensors, &wanted);
    let other = |why| BuildError::OtherModel { path: path.to_owned(), why };
    let essential = |name: &&String| !name.starts_with("classifier.");
    if let Some(mismatch) = matched.mismatched.iter().find(|m| essential(&&m.name)) {
        let weights::Mismatch { name, found, wanted } = mismatch;
        return Err(other(format!("its `{name}` is {found:?}, and the model's {wanted:?}")));
    }
    let missing: Vec<&String> = matched.missing.iter().filter(essential).collect();
    if let Some(first) = missing.first() {
        return Err(other(format!("it has no `{first}` ({} are missing)", missing.len())));
    }
    let assigned = matched.assignments.iter();
    let mut values: BTreeMap<&str, &NamedTensor> = assigned
        .map(|&(wanted_at, at)| (wanted[wanted_at].0.as_str(), &file.tensors[at]))
        .collect();
    chain.map_parameters(|name, value| match values.remove(name) {
        Some(tensor) => {
            let data = TensorData::new(tensor.data.clone(), [tensor.data.len()]);
            Tensor::from_data(data, (device, value.dtype()))
        }
        None => value,
    });
    Ok(matched.missing)
}

/// The saved states, and the newest that can be used.
fn open_saved(
    plan: &Plan,
    folder: &RunFolder,
) -> Result<(StateStore, Option<Resumable>), StateError> {
    let mut store = StateStore::open(folder.lock(), plan.run.save.keep)?;
    let newest = store.newest()?;
    Ok((store, newest))
}

/// Where a saved state stands.
fn position(state: &SavedState) -> Result<Position, BuildError> {
    let folder = state.folder.clone();
    Position::of(state).map_err(|source| BuildError::Restore { folder, source })
}

/// The plan's model, to run as `planner` has it.
fn chain(plan: &Plan, planner: &Planner, device: &Device) -> Chain {
    Chain::init(&plan.stages_with(&planner.memory()), device, plan.run.seed)
}

fn learner(
    plan: &Plan,
    planner: Planner,
    heads: &[HeadConfig],
    chain: Chain,
    device: Device,
    counts: impl Fn(usize) -> LabelCounts,
) -> Result<Learner, OffloadError> {
    let strategy = planner.strategy().clone();
    let memory = planner.memory();
    let store = Store::open(&memory.offload())?;
    let precision = plan.memory.precision;
    let chain = chain.in_numbers(precision.parameters());
    let with_loss = heads.iter().zip(&plan.heads).enumerate();
    let with_loss = with_loss.map(|(index, (config, head))| LearnedHead {
        config: config.clone(),
        loss: head.loss.init(head.task, head.labels.len(), &counts(index)),
    });
    let trained: Vec<_> = chain.packs().into_iter().filter(|pack| pack.trained).collect();
    let sizes = trained.iter().map(|pack| (pack.key().to_owned(), pack.value.dims()[0]));
    let optimizer = plan.train.optimizer.init(sizes);
    let host = OffloadConfig::Host(NoSettings {});
    let optimizer = match memory.offload_optimizer {
        true => optimizer.wait_in(Store::open(&host)?),
        false => optimizer,
    };
    Ok(Learner {
        device,
        heads: with_loss.collect(),
        optimizer,
        ema: plan
            .train
            .ema
            .as_ref()
            .map(|ema| ema.init(trained.iter().map(|p| (p.key().to_owned(), p.value.clone())))),
        clip_norm: plan.train.clip_norm,
        decay_norms_and_biases: plan.train.decay_norms_and_biases,
        strategy,
        planner,
        store,
        precision,
        loss_scale: precision.scales_loss().then(LossScale::default),
        seed: plan.run.seed,
        retreats: Vec::new(),
        chain,
    })
}

/// What is to be said of offloads that do nothing.
fn idle_offload(plan: &Plan, learner: &Learner) -> impl Iterator<Item = &'static str> {
    let is_moved = |operation: &Operation| matches!(operation, Operation::Offload { .. });
    let on_cpu = !is_gpu(&learner.device);
    let activations = match plan.memory.offload() {
        OffloadConfig::None(_) => None,
        OffloadConfig::Host(_) if on_cpu => Some(
            "`offload = \"host\"` under [memory] frees nothing: the memory of the CPU is the host's. \
             `[memory.offload.disk]` does.",
        ),
        _ if learner.strategy.schedule(1).operations.iter().any(is_moved) => None,
        _ => Some(
            "`offload` under [memory] moves nothing: the stages of this model keep graphs, which \
             cannot be moved, and put no inputs aside. Choose a policy under \
             [memory.checkpointing], such as \"every\".",
        ),
    };
    let optimizer = (plan.memory.offload_optimizer && on_cpu).then_some(
        "`offload_optimizer = true` under [memory] frees nothing: the memory of the CPU is the host's.",
    );
    activations.into_iter().chain(optimizer)
}

/// How steps are taken.
fn memory(planner: &Planner) -> StartMemory {
    let (way, prediction) = (planner.way(), planner.prediction());
    StartMemory {
        micro_batch: way.micro_batch,
        checkpointing: way.checkpointing.name(),
        offload: way.offload.name(),
        dense_layers: way.dense_layers.name(),
        offload_optimizer: way.offload_optimizer,
        budget: planner.budget(),
        predicted_peak: prediction.peak,
        recompute_percent: prediction.recompute_percent,
        told: planner.told(),
    }
}

/// Tells the reports what has been opened.
fn announce(
    run: &mut Run,
    resumed: Option<Resumable>,
    train_images: usize,
    config: String,
) -> Result<(), ReportError> {
    let position = &run.position;
    let place = Place { epoch: position.epoch_told(), step: position.step };
    let parameters = run.learner.chain.parameters().into_iter().filter(|p| p.trained);
    let start = Start {
        name: run.plan.run.name.clone(),
        device: describe(&run.learner.device),
        parameters: parameters.map(|p| p.shape.iter().product::<usize>()).sum(),
        train_images,
        validation_images: run.validation.len(),
        epochs: run.plan.train.epochs,
        steps_per_epoch: run.train_loader.batches_per_epoch(),
        resumed_from: resumed.is_some().then_some(place),
        memory: Some(memory(&run.learner.planner)),
        heads: run
            .heads
            .iter()
            .map(|head| HeadLabels { name: head.name.clone(), labels: head.labels.clone() })
            .collect(),
        watched: Some(Watched {
            metric: run.plan.train.best.metric.clone(),
            value: None,
            best: position.best.best,
            best_epoch: position.best.best_epoch,
        }),
        may_stop_early: run.plan.train.early_stopping.is_some(),
        config,
    };
    run.reports.event(&Event::Start(start))?;
    let Some(Resumable { state, damaged }) = resumed else { return Ok(()) };
    for damage in damaged {
        let reason = format!("{} {}", damage.file, damage.fault);
        run.reports.event(&Event::DamagedState { folder: damage.folder, reason })?;
    }
    let Place { epoch, step } = place;
    run.reports.event(&Event::Resumed { folder: state.folder, epoch, step })
}
