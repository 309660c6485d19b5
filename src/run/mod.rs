//! The loop: epochs, evaluation, early stopping, saving and resuming.
//!
//! ```text
//! Start (Resumed)
//! for each epoch:
//!     for each batch:  step (Step, at every so many); save when an interval has passed
//!     for each validation batch:  evaluate
//!     the schedule, the best epoch and early stopping take note of the metrics
//!     Epoch; save
//! EarlyStopped?; End
//! ```
//!
//! A save goes on behind the batches after it (`saving.rs`), and is told once it is done (Saved).
//!
//! After each batch the loop looks whether a signal asks it to stop; then it saves where it is and
//! returns. A state taken during evaluation stands before it: evaluation is done again from its
//! beginning. Everything that decides what happens next is in [`TrainState`], the weights and the
//! optimizer's state, so that a resumed run does what an uninterrupted one does, bit for bit.

mod agreement;
mod epoch;
mod findings;
mod folder;
mod kept;
mod listing;
mod lock;
mod monitor;
mod notes;
mod outputs;
mod outputs_of_all;
mod place;
#[cfg(test)]
mod power_loss;
mod restore;
mod saving;
mod signals;
mod snapshot;
pub mod state;
mod tally;
mod train_state;
mod trainer;
mod undefined;
mod usage;
mod validation;
mod signal_guard;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

pub use agreement::weights;
pub use epoch::Pass;
pub use findings::best_findings;
pub use folder::{
    CONFIG_FILE, EVALUATION, FolderError, METRICS_FILE, Mode as FolderMode, RunFolder,
};
pub use listing::{ListedRun, ListedState, list_runs};
pub use lock::{LockError, RunLock};
pub use notes::{PREPROCESSING, notes};
pub use outputs::{ListOutputs, OutputsError, list_outputs};
pub use place::RunPlace;
pub use restore::{RestoreError, restore, restore_inference};
pub use saving::Writer;
pub use signal_guard::{SignalGuard, end};
pub use signals::{Noting, Signal, Stop};
pub use snapshot::{GatherError, STANDARDIZE, chain_tensors, not_kept};
pub use train_state::TrainState;
pub use trainer::{Backoff, BegunEvaluation, BegunStep, Rank, Trainer};
pub use undefined::undefined_for_good;
pub use usage::Usage;

use crate::data::{DataError, Dataset, Loader, SharedBatches};
use crate::memory::measure::Meter;
use crate::optim::Schedule;
use crate::parallel::processes::Elsewhere;
use crate::plan::Plan;
use crate::report::{End, EndReason, Event, Report, ReportError, Reports, SaveReason};
use crate::train::TrainError;
use state::StateError;

/// A run with everything open, ready to train.
pub struct Run {
    /// What was asked for.
    pub plan: Plan,
    /// The run folder.
    pub folder: PathBuf,
    /// What writes there. Of several processes the first has it, and no other.
    pub keeper: Option<Keeper>,
    /// The model and what changes it.
    pub trainer: Trainer,
    /// The learning rate over time.
    pub schedule: Schedule,
    /// The validation images.
    pub validation: Arc<Dataset>,
    /// Batches of training images.
    pub train_loader: Loader,
    /// The batches of a pass that has not begun: the first of them are read while the pass before it ends.
    pub coming: Option<(Pass, SharedBatches)>,
    /// Batches of validation images.
    pub validation_loader: Loader,
    /// Who is told what happens.
    pub reports: Reports,
    /// Whether a signal asks to stop.
    pub stop: Stop,
    /// Where the run is.
    pub state: TrainState,
    /// When the state was taken that is saved last, or one was loaded.
    pub saved_at: Instant,
    /// What says how much memory the device uses.
    pub meter: Meter,
    /// Whether the peak of memory is to be measured from the next epoch on: in the first one of a process, and
    /// after memory has not sufficed. The epochs after it take their steps in the same way.
    pub unmeasured: bool,
    /// Whether it is measured in the epoch under way.
    pub measures: bool,
    /// The metrics of which has been said that they are undefined.
    pub told_undefined: BTreeSet<String>,
}

/// What writes a run's folder.
pub struct Keeper {
    /// What writes the saved states. It is dropped first: the folder stays locked until a save under way has ended.
    pub writer: Writer,
    /// The folder, locked.
    pub folder: RunFolder,
}

/// How a run ended without an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All epochs are done, or early stopping ended it.
    Ended(EndReason),
    /// A signal asked it to stop; it has saved.
    Stopped(Signal),
}

/// Why a run could not go on. What was saved stays as it is.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Data are missing or wrong.
    #[error(transparent)]
    Data(#[from] DataError),
    /// More images could not be read than `data.bad_image_limit` allows.
    #[error(
        "{count} images could not be read, more than data.bad_image_limit = {limit}; they are listed \
         in {list}\nRepair or remove them, or raise the limit."
    )]
    TooManyBadImages {
        /// How many.
        count: usize,
        /// How many are allowed.
        limit: usize,
        /// The file that lists them.
        list: String,
    },
    /// A pass over training or validation images in which none could be used.
    #[error(
        "epoch {epoch} has no {list} image that can be used\nThose that cannot be read are listed in \
         {file}, each with the reason. Put them right, then continue with --resume, or start again \
         with --overwrite."
    )]
    NoImages {
        /// The epoch, counted from 1.
        epoch: usize,
        /// "training" or "validation".
        list: &'static str,
        /// The file that lists the images that cannot be read.
        file: String,
    },
    /// A step could not be taken.
    #[error("epoch {epoch}, step {step}: {source}")]
    Step {
        /// The epoch, counted from 1.
        epoch: usize,
        /// The step, counted from 1 over the whole run.
        step: usize,
        /// What went wrong.
        source: TrainError,
    },
    /// Another process has failed.
    #[error(transparent)]
    Elsewhere(#[from] Elsewhere),
    /// The state of the run could not be gathered.
    #[error("the run could not be saved: {0}")]
    Unsaved(#[source] GatherError),
    /// A state could not be saved.
    #[error(transparent)]
    State(#[from] StateError),
    /// The thread that saves has come to a defect, which was told.
    #[error("the thread that saves the run has ended early")]
    Unwritten,
    /// A report could not be written.
    #[error(transparent)]
    Report(#[from] ReportError),
}

impl Run {
    /// Trains until all epochs are done, early stopping ends it, or a signal asks it to stop.
    ///
    /// # Errors
    /// When data, device or disk fail, or a loss is not finite.
    pub fn execute(&mut self) -> Result<Outcome, RunError> {
        let trained = self.epochs();
        // Whatever has ended training, the save that is under way is not left half done.
        let saved = self.end_save();
        let outcome = match (trained, saved) {
            (Err(error), Err(unsaved)) => {
                // The first is the one to tell, whatever becomes of the word about the second.
                drop(self.reports.event(&Event::Warning { message: unsaved.to_string() }));
                return Err(error);
            }
            (trained, saved) => saved.and(trained)?,
        };
        let Outcome::Ended(reason) = outcome else { return Ok(outcome) };
        if let Some(message) = best_gone(&self.state, &self.folder) {
            self.reports.event(&Event::Warning { message })?;
        }
        self.reports.event(&Event::End(self.end(reason)))?;
        Ok(outcome)
    }

    /// The epochs that are left, until their end or a signal.
    fn epochs(&mut self) -> Result<Outcome, RunError> {
        loop {
            if let Some(reason) = self.state.ended {
                return Ok(Outcome::Ended(reason));
            }
            if let Some(signal) = self.epoch()? {
                self.reports.event(&Event::Interrupted { signal: signal.name().to_owned() })?;
                self.save(SaveReason::Interrupted, false, None)?;
                return Ok(Outcome::Stopped(signal));
            }
        }
    }

    fn end(&self, reason: EndReason) -> End {
        let state = &self.state;
        let monitor = &self.plan.monitors.best;
        let best = state.best.best.zip(state.best_values.clone());
        let folder = &self.folder;
        // The best state may be gone, which was told.
        let is_there = |name: &&str| state::is_state(&folder.join(name));
        let wanted = if best.is_some() { &[state::BEST, state::LAST][..] } else { &[state::LAST] };
        let weights = wanted.iter().copied().find(is_there);
        End {
            epochs: state.last_values.epoch,
            step: state.step,
            seconds: state.seconds,
            reason,
            best: best.map(|(value, values)| crate::report::Best {
                metric: monitor.metric.clone(),
                value,
                values,
            }),
            last: state.last_values.clone(),
            undefined: state.undefined.clone(),
            weights: weights.map(|state| folder.join(state).join(snapshot::WEIGHTS)),
            next: vec![(
                "curves".to_owned(),
                format!("tensorboard --logdir {}", self.plan.run.output.display()),
            )],
        }
    }
}

/// What is to be said where the state that did best is gone from `folder`.
pub fn best_gone(state: &TrainState, folder: &Path) -> Option<String> {
    let epoch = state.best.best_epoch?;
    let best = folder.join(state::BEST);
    (!state::is_state(&best)).then(|| {
        format!(
            "{} is gone, and with it the weights that did best, those of epoch {epoch}; restore the \
             folder from a copy, or take those of the last epoch in {}",
            best.display(),
            state::LAST
        )
    })
}
