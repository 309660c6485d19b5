//! The folds of a configuration, each trained by a process of its own, one after another or one a device.
//!
//! ```text
//! for each fold that has not ended, in their order, on one device, or on whichever of several is free:
//!     train it: `trainer run`, a child process, which goes on where it was stopped
//!     write folds.json anew
//! ```

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::child::{self, fresh};
use super::cross_validation::{CrossValidation, FoldRow};
use super::folder::{LOGS, SweepError, made, replace};
use super::queue::{self, lanes};
use super::trained;
use crate::plan::{DevicePlan, Plan};
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
    /// The devices that take one fold each at a time; with none, each is trained where its plan says, one
    /// after another.
    pub devices: Vec<DevicePlan>,
}

/// What is told of a fold while folds are trained.
#[derive(Debug)]
pub enum FoldTold<'a> {
    /// It has ended before.
    Before,
    /// It begins or goes on.
    Begins {
        /// Which of the devices has taken it.
        device: Option<DevicePlan>,
        /// Where its process tells what it does, unless that is the terminal.
        log: Option<&'a Path>,
    },
    /// It was trained.
    Trained {
        /// What it has found.
        row: &'a FoldRow,
        /// Where its process has told that, unless that is the terminal.
        log: Option<&'a Path>,
    },
}

/// How the training of folds ended without an error of its own.
#[derive(Debug)]
pub enum FoldsEnded {
    /// All are trained.
    Done(CrossValidation),
    /// A signal asked to stop; these folds, counted from 1, were on, and have saved.
    Stopped(Vec<usize>, Signal),
    /// The processes of these folds have told of an error; at least one.
    Failed(Vec<FailedFold>),
}

/// A fold whose process has ended with an error.
#[derive(Debug)]
pub struct FailedFold {
    /// Its number, counted from 1.
    pub fold: usize,
    /// The exit code.
    pub code: Option<i32>,
    /// The error and the file with all that was told, unless that was told to the terminal.
    pub told: Option<(String, PathBuf)>,
}

/// How the process of a fold ended.
enum Ended {
    Trained,
    Stopped(Signal),
    Failed(FailedFold),
}

impl Folds {
    /// The folder that the folders of the folds are in.
    pub fn folder(&self) -> PathBuf {
        let run = &self.plans[0].run;
        run.output.join(&run.name)
    }

    /// Trains every fold that has not ended. `tell` is told of each, by its number from 1. Where one fails,
    /// no further fold is begun; those that other devices train go on to their end.
    ///
    /// # Errors
    /// When a child cannot be started, or a file not be read or written.
    pub fn execute(
        &self,
        stop: &Stop,
        mut tell: impl FnMut(usize, FoldTold<'_>),
    ) -> Result<FoldsEnded, SweepError> {
        let folder = self.folder();
        made(&folder)?;
        // Children read it, so that all do what was planned, whatever becomes of the user's file.
        let config = folder.join(CONFIG);
        let mut shared = self.plans[0].clone();
        shared.data.validation.fold = None;
        replace(&config, shared.to_toml()?.as_bytes())?;
        let mut done = Done { folds: self, folder: &folder, rows: Vec::new() };
        let has_ended =
            |fold: &usize| self.mode == FolderMode::Resume && has_ended(&self.plans[fold - 1]);
        let (before, left): (Vec<usize>, Vec<usize>) = (1..=self.plans.len()).partition(has_ended);
        for fold in before {
            tell(fold, FoldTold::Before);
            done.add(fold)?;
        }
        let (mut stopped, mut failed) = (Vec::new(), Vec::new());
        let train = |fold: &usize, device| match self.train(&config, *fold, device, stop) {
            Ok(Ended::Trained) => ControlFlow::Continue(Ok(Ended::Trained)),
            over => ControlFlow::Break(over),
        };
        queue::each(&left, &lanes(&self.devices), stop, train, |&fold, device, event| {
            let log = self.log(fold);
            let log = log.as_deref();
            match event {
                queue::Event::Begins => tell(fold, FoldTold::Begins { device, log }),
                queue::Event::Ended(ended) => match ended? {
                    Ended::Trained => tell(fold, FoldTold::Trained { row: done.add(fold)?, log }),
                    Ended::Stopped(signal) => stopped.push((fold, signal)),
                    Ended::Failed(fold) => failed.push(fold),
                },
            }
            Ok::<(), SweepError>(())
        })?;
        stopped.sort_by_key(|(fold, _)| *fold);
        failed.sort_by_key(|failed| failed.fold);
        Ok(match (stopped.first(), failed.is_empty()) {
            (Some(&(_, signal)), _) => {
                FoldsEnded::Stopped(stopped.into_iter().map(|(fold, _)| fold).collect(), signal)
            }
            (None, false) => FoldsEnded::Failed(failed),
            (None, true) => FoldsEnded::Done(done.found()),
        })
    }

    /// Where the process of a fold tells what it does: the terminal, or where several do so at once, a file.
    fn log(&self, fold: usize) -> Option<PathBuf> {
        let name = format!("fold-{fold}.log");
        (self.devices.len() > 1).then(|| self.folder().join(LOGS).join(name))
    }

    /// Trains a fold, unless it is stopped or fails.
    fn train(
        &self,
        config: &Path,
        fold: usize,
        device: Option<DevicePlan>,
        stop: &Stop,
    ) -> Result<Ended, SweepError> {
        if let Some(signal) = stop.requested() {
            return Ok(Ended::Stopped(signal));
        }
        let run = self.plans[fold - 1].folder();
        trained::wait_until_free(&run, stop)?;
        let mut command = Command::new(&self.program);
        command.arg("run").arg(config).args(["--fold", &fold.to_string()]);
        command.args(device.into_iter().flat_map(|device| ["--device".into(), device.to_string()]));
        command.args(match self.mode {
            FolderMode::Overwrite => Some("--overwrite"),
            FolderMode::Resume if run.exists() => Some("--resume"),
            _ => None,
        });
        command.args(is_quiet().then_some("--quiet"));
        command.args(["--with-parent", &std::process::id().to_string()]);
        command.stdin(Stdio::null());
        let log = self.log(fold);
        if let Some(log) = &log {
            let logs = self.folder().join(LOGS);
            fs::create_dir_all(&logs).map_err(SweepError::at("make", &logs))?;
            let file = fresh(log).map_err(SweepError::at("write", log))?;
            let again = file.try_clone().map_err(SweepError::at("write", log))?;
            command.stdout(file).stderr(again).env("NO_COLOR", "1");
        } else if self.silent {
            command.stdout(Stdio::null());
        }
        let mut child = command.spawn().map_err(SweepError::at("start", &self.program))?;
        let waited = child::wait(&mut child, stop, true);
        Ok(match waited.map_err(SweepError::at("wait for", &self.program))? {
            Err(signal) => Ended::Stopped(signal),
            Ok(status) if status.success() => Ended::Trained,
            Ok(status) => match status.code().and_then(asked) {
                Some(signal) => Ended::Stopped(signal),
                None => {
                    let told = log.map(|log| (child::said(&log), log));
                    Ended::Failed(FailedFold { fold, code: status.code(), told })
                }
            },
        })
    }
}

/// The folds that are trained so far, in their order, whichever was done first.
struct Done<'a> {
    folds: &'a Folds,
    folder: &'a Path,
    rows: Vec<FoldRow>,
}

impl Done<'_> {
    /// Puts what the fold has found in its place, and writes all of them.
    fn add(&mut self, fold: usize) -> Result<&FoldRow, SweepError> {
        let row = FoldRow::read(fold, &self.folds.plans[fold - 1].folder())?;
        let at = self.rows.partition_point(|before| before.fold < fold);
        self.rows.insert(at, row);
        let file = self.folder.join(CrossValidation::FILE);
        replace(&file, self.found().to_json().as_bytes())?;
        Ok(&self.rows[at])
    }

    fn found(&self) -> CrossValidation {
        CrossValidation::new(self.folder, self.folds.plans.len(), self.rows.clone())
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
