//! The folds of a configuration, trained one after another, each by a process of its own.
//!
//! ```text
//! for each fold, in their order:
//!     has it ended? else train it: `trainer run`, a child process, which goes on where it was stopped
//!     write folds.json anew
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::child;
use super::cross_validation::{CrossValidation, FoldRow};
use super::folder::{SweepError, replace};
use super::trained;
use crate::plan::Plan;
use crate::run::{CONFIG_FILE, FolderMode, ListedState, Signal, Stop, list_runs};
use crate::screen::is_quiet;

/// The configuration that the folds share, in the folder of all of them.
const CONFIG: &str = "folds.toml";

/// The folds of a configuration, to be trained.
#[derive(Debug, Clone)]
pub struct Folds {
    /// This program, which is started for each fold.
    pub program: PathBuf,
    /// The plan of each fold, in their order; at least two.
    pub plans: Vec<Plan>,
    /// Whether folds go on, or are replaced.
    pub mode: FolderMode,
    /// Whether nothing is printed to standard output.
    pub silent: bool,
}

/// How the training of folds ended without an error of its own.
#[derive(Debug)]
pub enum FoldsEnded {
    /// All are trained.
    Done(CrossValidation),
    /// A signal asked to stop; the fold, counted from 1, has saved.
    Stopped(usize, Signal),
    /// The process of the fold, counted from 1, has told of an error, and ended with this exit code.
    Failed(usize, Option<i32>),
}

impl Folds {
    /// The folder that the folders of the folds are in.
    pub fn folder(&self) -> PathBuf {
        let run = &self.plans[0].run;
        run.output.join(&run.name)
    }

    /// Trains every fold that has not ended. `tell` is told the number of each, counted from 1, and
    /// whether it has ended before.
    ///
    /// # Errors
    /// When a child cannot be started, or a file not be read or written.
    pub fn execute(
        &self,
        stop: &Stop,
        mut tell: impl FnMut(usize, bool),
    ) -> Result<FoldsEnded, SweepError> {
        let folder = self.folder();
        fs::create_dir_all(&folder).map_err(SweepError::at("make", &folder))?;
        // Children read it, so that all do what was planned, whatever becomes of the user's file.
        let config = folder.join(CONFIG);
        let mut shared = self.plans[0].clone();
        shared.data.validation.fold = None;
        replace(&config, shared.to_toml()?.as_bytes())?;
        let mut rows = Vec::new();
        for (place, plan) in self.plans.iter().enumerate() {
            let fold = place + 1;
            let before = self.mode == FolderMode::Resume && has_ended(plan);
            tell(fold, before);
            if !before {
                match self.train(&config, plan, fold, stop)? {
                    Ok(()) => {}
                    Err(ended) => return Ok(ended),
                }
            }
            rows.push(FoldRow::read(fold, &plan.folder())?);
            let found = CrossValidation::new(&folder, self.plans.len(), rows.clone());
            replace(&folder.join(CrossValidation::FILE), found.to_json().as_bytes())?;
        }
        Ok(FoldsEnded::Done(CrossValidation::new(&folder, self.plans.len(), rows)))
    }

    /// Trains a fold, unless it is stopped or fails.
    fn train(
        &self,
        config: &Path,
        plan: &Plan,
        fold: usize,
        stop: &Stop,
    ) -> Result<Result<(), FoldsEnded>, SweepError> {
        if let Some(signal) = stop.requested() {
            return Ok(Err(FoldsEnded::Stopped(fold, signal)));
        }
        let run = plan.folder();
        trained::wait_until_free(&run, stop)?;
        let mut command = Command::new(&self.program);
        command.arg("run").arg(config).args(["--fold", &fold.to_string()]);
        command.args(match self.mode {
            FolderMode::Overwrite => Some("--overwrite"),
            FolderMode::Resume if run.exists() => Some("--resume"),
            _ => None,
        });
        command.args(is_quiet().then_some("--quiet"));
        command.args(["--with-parent", &std::process::id().to_string()]);
        command.stdin(Stdio::null());
        if self.silent {
            command.stdout(Stdio::null());
        }
        let mut child = command.spawn().map_err(SweepError::at("start", &self.program))?;
        let waited = child::wait(&mut child, stop, true);
        Ok(match waited.map_err(SweepError::at("wait for", &self.program))? {
            Err(signal) => Err(FoldsEnded::Stopped(fold, signal)),
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(match status.code().and_then(asked) {
                Some(signal) => FoldsEnded::Stopped(fold, signal),
                None => FoldsEnded::Failed(fold, status.code()),
            }),
        })
    }
}

/// The signal that asked a child of this exit code to stop, where one did.
fn asked(code: i32) -> Option<Signal> {
    Signal::ALL.into_iter().find(|signal| i32::from(signal.exit_code()) == code)
}

/// Whether the run of `plan` has come to its end, and would not go on if it were resumed.
fn has_ended(plan: &Plan) -> bool {
    let folder = plan.folder();
    let runs = list_runs(&folder).unwrap_or_default();
    let ended = |state| matches!(state, ListedState::Done | ListedState::StoppedEarly);
    let train = |text: &str| toml::from_str::<toml::Table>(text).ok()?.get("train").cloned();
    let saved = fs::read_to_string(folder.join(CONFIG_FILE)).ok().and_then(|text| train(&text));
    let now = plan.to_toml().ok().and_then(|text| train(&text));
    // More epochs, or more patience, reopen it.
    matches!(&runs[..], [run] if ended(run.state)) && saved.is_some() && saved == now
}
