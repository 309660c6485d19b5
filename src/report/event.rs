//! What the loop tells.
//!
//! The serialised form is what `metrics.jsonl` holds and a contract with its readers: keys may be
//! added, not renamed; bytes are bytes, times are seconds, and what is unknown, undefined or not
//! finite is `null`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::ser::{SerializeSeq, Serializer};
use serde::{Deserialize, Serialize};

use crate::data::{BadImage, Fingerprint};
use crate::memory::measure::{MemoryUse, PeakKind};
use crate::model::weights::Initial;
use crate::parallel::course::Waited;
use crate::parallel::{BatchNormOver, OptimizerPlacement, PipelineSchedule};

/// Values by name, such as `loss`, `findings/auroc` (head, metric) or `findings/auroc/Edema` (head,
/// metric, label); `None` where undefined.
pub type Values = BTreeMap<String, Option<f64>>;

/// Something that happened in a run.
///
/// ```text
/// Start, then Resumed where a state was loaded (after one DamagedState for each that could not be),
///     or Initialized where the model starts from weights in a file
/// for each epoch:
///     EpochBegin(train),      Step…, Progress…, SkippedStep…, SkippedImages…, Saved(interval)…
///     EpochBegin(validation), Progress…
///     Epoch
///     Saved(epoch_end)
/// EarlyStopped, where that is why
/// End
/// ```
///
/// A signal gives `Interrupted` and `Saved(interrupted)` at any place, and then nothing more.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The process has opened everything and is about to train.
    Start(Start),
    /// A pass over the training or validation images begins. On screens only.
    EpochBegin(EpochBegin),
    /// How far a pass has come; cheap, one for each batch. On screens only.
    Progress(Progress),
    /// A step whose number `run.log_every` divides. In files only.
    Step {
        /// The epoch, counted from 1.
        epoch: usize,
        /// Optimizer steps taken since the run began, this one included.
        step: usize,
        /// The loss of this step's images alone; `None` where no label of theirs is known.
        loss: Option<f64>,
        /// The learning rate of the step.
        learning_rate: f64,
    },
    /// An epoch is trained and evaluated.
    Epoch(Epoch),
    /// A state is complete on disk.
    Saved {
        /// Its folder.
        #[serde(serialize_with = "path")]
        folder: PathBuf,
        /// The epoch it is in, or whose end it is.
        epoch: usize,
        /// Optimizer steps taken since the run began.
        step: usize,
        /// Why it was saved.
        reason: SaveReason,
    },
    /// The model starts from weights in a file.
    Initialized(Initial),
    /// The run goes on from a saved state.
    Resumed {
        /// Its folder.
        #[serde(serialize_with = "path")]
        folder: PathBuf,
        /// The epoch it is in, or whose end it is.
        epoch: usize,
        /// Optimizer steps taken since the run began.
        step: usize,
    },
    /// A saved state cannot be used; the one before it is tried.
    DamagedState {
        /// Its folder.
        #[serde(serialize_with = "path")]
        folder: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The optimizer left out a step.
    SkippedStep {
        /// The epoch, counted from 1.
        epoch: usize,
        /// The number the step would have had.
        step: usize,
        /// Why, such as "the gradient is not finite".
        reason: String,
    },
    /// Images of a batch that could not be read; told again in each epoch that meets them.
    SkippedImages {
        /// Each image, where it is listed and what is wrong with it.
        #[serde(serialize_with = "bad_images")]
        images: Vec<BadImage>,
    },
    /// The device has no memory left for a step.
    OutOfMemory(OutOfMemory),
    /// Something a person should know that does not stop the run.
    Warning {
        /// One sentence.
        message: String,
    },
    /// The metric watched has not improved for long enough.
    EarlyStopped {
        /// The last epoch, counted from 1.
        epoch: usize,
        /// The metric watched.
        metric: String,
        /// Its best value.
        best: Option<f64>,
        /// The epoch of the best value.
        best_epoch: Option<usize>,
        /// Epochs without improvement that were waited for.
        patience: usize,
    },
    /// A signal asks the run to save and stop.
    Interrupted {
        /// Its name, such as `SIGINT`.
        signal: String,
    },
    /// Training has come to its end.
    End(End),
}

/// The run as it starts or goes on.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Start {
    /// The run's name.
    pub name: String,
    /// The device, as a person knows it.
    pub device: String,
    /// How several devices share each batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel: Option<SharedBatch>,
    /// How several devices share the stages of the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<Box<SharedModel>>,
    /// Numbers that training changes.
    pub parameters: usize,
    /// Images trained on.
    pub train_images: usize,
    /// Images evaluated on.
    pub validation_images: usize,
    /// Epochs, at most.
    pub epochs: usize,
    /// Optimizer steps in an epoch.
    pub steps_per_epoch: usize,
    /// Where the state stands that the run goes on from.
    pub resumed_from: Option<Place>,
    /// How steps are taken.
    pub memory: Option<StartMemory>,
    /// The heads in the order of the configuration.
    pub heads: Vec<HeadLabels>,
    /// The metric watched and its best so far.
    pub watched: Option<Watched>,
    /// The version of this program.
    pub version: String,
    /// What the run learns from.
    pub data: Option<Fingerprint>,
    /// How often each label is known and positive, by `train` or `validation`, head and label.
    pub labels: BTreeMap<String, HeadCounts>,
    /// Whether early stopping may end the run before its last epoch. On screens only.
    #[serde(skip)]
    pub may_stop_early: bool,
    /// The resolved configuration, as TOML. In TensorBoard only: `config.toml` stands beside.
    #[serde(skip)]
    pub config: String,
}

/// How several devices share each batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SharedBatch {
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
    /// Where the optimizer's state lies.
    pub optimizer: OptimizerPlacement,
}

/// How several devices share the stages of the model.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SharedModel {
    /// In which order micro-batches go through.
    pub schedule: PipelineSchedule,
    /// The first and the last stage of each device.
    pub stages: Vec<[String; 2]>,
    /// Micro-batches of a full batch.
    pub micro_batches: usize,
    /// The share of the time in which a device waits at least, where all take equally long.
    pub bubble: f64,
}

/// How often each label of each head is known and positive, by the names of both.
pub type HeadCounts = BTreeMap<String, BTreeMap<String, LabelCount>>;

/// How often a label is known and positive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct LabelCount {
    /// Images with the label, or of the class; soft labels count as their value, and numbers as 1.
    pub positives: f64,
    /// Images of which the label is known.
    pub known: f64,
}

/// How steps are taken.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct StartMemory {
    /// Images that go through the network at once.
    pub micro_batch: usize,
    /// The policy's name.
    pub checkpointing: &'static str,
    /// Where what is kept waits.
    pub offload: &'static str,
    /// What dense layers keep.
    pub dense_layers: &'static str,
    /// Whether the optimizer's state waits in host memory.
    pub offload_optimizer: bool,
    /// Bytes that the process may hold of a card; on the CPU, that a step may use.
    pub budget: u64,
    /// The peak that is predicted.
    pub predicted_peak: u64,
    /// Operations done again, in percent.
    pub recompute_percent: f64,
    /// The same in one line for a person. On screens only.
    #[serde(skip)]
    pub told: String,
}

/// A place in the training.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The epoch, counted from 1.
    pub epoch: usize,
    /// Optimizer steps taken since the run began.
    pub step: usize,
}

/// A head and its labels, in the order of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeadLabels {
    /// The head's name.
    pub name: String,
    /// Its labels or classes.
    pub labels: Vec<String>,
}

/// A metric watched for the best epoch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Watched {
    /// Its name, such as `val/findings/auroc`.
    pub metric: String,
    /// Its value in this epoch.
    pub value: Option<f64>,
    /// The best so far, this epoch included.
    pub best: Option<f64>,
    /// The epoch of the best, counted from 1.
    pub best_epoch: Option<usize>,
}

/// A pass over images begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct EpochBegin {
    /// The epoch, counted from 1.
    pub epoch: usize,
    /// The steps of this pass already taken before the run was resumed.
    pub first_step_in_epoch: usize,
    /// The steps of the pass.
    pub steps: usize,
    /// What the pass is for.
    pub phase: Phase,
}

/// What a pass over images is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Changing the weights.
    Train,
    /// Measuring them on images set aside.
    Validation,
}

/// How far a pass has come.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Progress {
    /// What the pass is for.
    pub phase: Phase,
    /// Images seen in this pass.
    pub done_images: usize,
    /// Images of the pass.
    pub total_images: usize,
    /// The mean loss of the pass so far.
    pub loss: f64,
    /// The speed of the pass, of all devices together; not finite or 0 where unknown.
    pub images_per_second: f64,
    /// How many devices there are.
    pub devices: usize,
    /// The share of the pass that these have waited for each other, on average; unknown of one device.
    pub waited: Option<f64>,
}

/// An epoch and what came of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Epoch {
    /// Counted from 1.
    pub epoch: usize,
    /// Optimizer steps taken since the run began.
    pub step: usize,
    /// Means over the training pass.
    pub train: Values,
    /// Losses and metrics over the validation images.
    pub val: Values,
    /// The learning rate of the last step.
    pub learning_rate: f64,
    /// Of training and evaluation together.
    pub seconds: f64,
    /// Of the training pass, of all devices together.
    pub images_per_second: f64,
    /// Each device in the training pass, where there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceSpeed>,
    /// Device memory.
    pub memory: Memory,
    /// Whether this epoch is the best so far.
    pub best: bool,
    /// Batches whose step was left out.
    pub skipped_steps: usize,
    /// By how much the loss is scaled at the end of the epoch, where it is.
    pub loss_scale: Option<f64>,
    /// The metric watched.
    pub watched: Option<Watched>,
    /// Why validation metrics of this or of the best epoch have no value, by their names without
    /// `val/`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub undefined: BTreeMap<String, String>,
}

/// What one of several devices has done in a training pass.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeviceSpeed {
    /// As `device.use` names it; of a process its rank.
    pub device: String,
    /// Images that have gone through its stages.
    pub images_per_second: f64,
    /// The share of the pass that it has waited for the others.
    pub waited_percent: f64,
    /// Seconds that it has waited for each kind of exchange.
    pub waited: Waited,
}

/// Bytes of device memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// In use at the end of the epoch.
    pub live: Option<u64>,
    /// The most in use at once since the epoch that measures it began: the first of a process, or the one after memory has
    /// not sufficed.
    pub peak: Option<u64>,
    /// Held from the device, in use or not.
    pub reserved: Option<u64>,
    /// Held by the process, as the driver says.
    pub smi: Option<u64>,
    /// The peak that the plan foretold.
    pub predicted_peak: Option<u64>,
    /// Which moments `peak` is the most of.
    pub peak_kind: Option<PeakKind>,
    /// All that the device has.
    pub total: Option<u64>,
}

impl From<MemoryUse> for Memory {
    fn from(measured: MemoryUse) -> Self {
        let MemoryUse { live, peak, peak_kind, reserved, smi, total } = measured;
        Self { live, peak, reserved, smi, predicted_peak: None, peak_kind, total }
    }
}

/// Why a state was saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SaveReason {
    /// An epoch is done.
    EpochEnd,
    /// The minutes or steps of `run.save` have passed.
    Interval,
    /// A signal asked the run to stop.
    Interrupted,
}

impl SaveReason {
    /// As a state's manifest has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::EpochEnd => "epoch_end",
            Self::Interval => "interval",
            Self::Interrupted => "interrupted",
        }
    }
}

/// The device has no memory left.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OutOfMemory {
    /// The epoch, counted from 1.
    pub epoch: usize,
    /// The step that did not fit.
    pub step: usize,
    /// The bytes asked for last.
    pub requested: Option<u64>,
    /// Device memory at that moment.
    pub memory: Memory,
    /// What is tried next, or what the user can change.
    pub advice: String,
}

/// Training has come to its end.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct End {
    /// Epochs trained, those before resuming included.
    pub epochs: usize,
    /// Optimizer steps taken since the run began.
    pub step: usize,
    /// Since the run began, without the time between stopping and resuming.
    pub seconds: f64,
    /// Why it ended.
    pub reason: EndReason,
    /// The best epoch, where the metric watched was ever defined.
    pub best: Option<Best>,
    /// The last epoch.
    pub last: EpochValues,
    /// Why a validation metric has no value, by its name without `val/`; such as "one class only".
    pub undefined: BTreeMap<String, String>,
    /// The file with the best weights.
    #[serde(serialize_with = "optional_path")]
    pub weights: Option<PathBuf>,
    /// What can be done next: a word (`resume`, `evaluate`) and its command. In the table only.
    #[serde(skip)]
    pub next: Vec<(String, String)>,
}

/// Why training ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// All epochs are done.
    Epochs,
    /// The metric watched no longer improved.
    EarlyStopping,
}

/// The best epoch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Best {
    /// The metric watched.
    pub metric: String,
    /// Its best value.
    pub value: f64,
    /// The epoch it was reached in.
    #[serde(flatten)]
    pub values: EpochValues,
}

/// The values of one epoch.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EpochValues {
    /// Counted from 1.
    pub epoch: usize,
    /// Means over the training pass.
    pub train: Values,
    /// Losses and metrics over the validation images.
    pub val: Values,
}

// Serde refuses a path that is not UTF-8, and a file's name must not end a run.
fn path<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

fn optional_path<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
    path.as_ref().map(|path| path.display().to_string()).serialize(serializer)
}

fn bad_images<S: Serializer>(images: &[BadImage], serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Image<'a> {
        #[serde(serialize_with = "path")]
        path: &'a Path,
        #[serde(serialize_with = "path")]
        table: &'a Path,
        line: u64,
        reason: &'a str,
    }
    let mut list = serializer.serialize_seq(Some(images.len()))?;
    for BadImage { path, table, line, reason } in images {
        list.serialize_element(&Image { path, table, line: *line, reason })?;
    }
    list.end()
}
