//! Why a run could not be put together.

use std::path::PathBuf;

use super::device::DeviceError;
use super::resume::{ChangedData, ChangedKeys};
use crate::data::DataError;
use crate::fault::Fault;
use crate::memory::offload::OffloadError;
use crate::model::weights::{InitialError, WeightsError};
use crate::parallel::processes::Elsewhere;
use crate::plan::NothingFits;
use crate::report::ReportError;
use crate::run::state::StateError;
use crate::run::{FolderError, RestoreError, Signal};

/// Why a run could not be put together.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A signal came before the run was made or changed.
    #[error("stopped by {}; no run was made or changed", .0.name())]
    Stopped(Signal),
    /// The device is not there.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The cards cannot work together.
    #[error("the cards cannot compute one batch together: {0}")]
    Cards(String),
    /// Another process has failed, or does not fit to this one.
    #[error(transparent)]
    Elsewhere(#[from] Elsewhere),
    /// The device fails before the first step.
    #[error("{0}")]
    Begin(String),
    /// Each process has one device.
    #[error(
        "`device.use` names {devices} devices for {processes} processes: each has one\nStart as many \
         processes as there are devices, or leave `device.use` at \"cpu\"."
    )]
    DevicesOfProcesses {
        /// How many the plan has.
        devices: usize,
        /// How many processes there are.
        processes: usize,
    },
    /// The stages of a pipeline are those of one process.
    #[error(
        "`[parallel.pipeline]` splits a model over the devices of one process, and {processes} were started\n\
         Start one process, or remove `[parallel.pipeline]`."
    )]
    PipelineOfProcesses {
        /// How many processes there are.
        processes: usize,
    },
    /// The device does not have the precision.
    #[error(transparent)]
    Precision(#[from] Fault),
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
    /// A run to be resumed was started on other data.
    #[error(transparent)]
    ChangedData(#[from] ChangedData),
    /// The images of a step cannot be read.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// The model cannot start from the weights given.
    #[error(transparent)]
    Initial(#[from] InitialError),
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
    /// A trained model is asked for where nothing was saved.
    #[error(
        "there is no saved state in {}\nName the folder of a run, <run.output>/<run.name>, that has \
         finished an epoch, or one of the states in it, such as best.",
        path.display()
    )]
    NoState {
        /// The folder named.
        path: PathBuf,
    },
    /// A model is asked for, and there are the folds of a run.
    #[error(
        "{} holds the folds of a run, but this command takes one model\nName one of them, such as \
         {}/fold-1.",
        .0.display(), .0.display()
    )]
    Folds(PathBuf),
    /// The folder of folds holds a run that has none.
    #[error(
        "{} holds a run without folds\nGive the folds another name with --set run.name=<other>.",
        path.display()
    )]
    NoFolds {
        /// The folder.
        path: PathBuf,
    },
    /// Some of the folds were not trained.
    #[error(
        "{} has no saved state of fold {} of {folds}\n`trainer run CONFIG --fold all --resume` trains \
         them. Those that are there may be named by themselves.",
        path.display(),
        missing.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
    )]
    FoldsMissing {
        /// The folder that the folds are in.
        path: PathBuf,
        /// The missing ones, counted from 1.
        missing: Vec<usize>,
        /// How many there are.
        folds: usize,
    },
    /// Two folds do not belong together.
    #[error(
        "{} and {} were trained with different configurations, so they are not folds of one \
         run:\n{}\n\
         Train one of them again with --overwrite, or name them by themselves.",
        folders[0].display(), folders[1].display(), changes.join("\n")
    )]
    OtherFolds {
        /// Their folders.
        folders: Box<[PathBuf; 2]>,
        /// What differs, a line each.
        changes: Vec<String>,
    },
    /// A file of weights that is not the whole of a trained model.
    #[error("{} is no trained model of this configuration: {why}", file.display())]
    NotTrained {
        /// The file.
        file: PathBuf,
        /// What it lacks.
        why: String,
    },
    /// No saved state can be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// States were saved, and none of them is there any more.
    #[error(
        "{} had saved states, the last in epoch {epoch} at step {step}, but all of them are \
         gone\nPut one of the folders `last`, `best` or `step-…` back from a copy, or start again with \
         --overwrite.",
        folder.display()
    )]
    StatesGone {
        /// The run folder.
        folder: PathBuf,
        /// The epoch of the last that was saved.
        epoch: u64,
        /// Its step.
        step: u64,
    },
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
