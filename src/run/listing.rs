//! Run folders as they stand, read without changing anything in them.
//!
//! What a folder holds need not be what a run wrote: a file may be damaged, a pipe or without end. A
//! folder that cannot be read as a run is a row that says why.

use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::folder::{CONFIG_FILE, METRICS_FILE, bytes_of, is_config_of_a_run};
use super::lock::LOCK_FILE;
use super::state;
use crate::report::{EndReason, Watched};

/// Folders so far below the one asked for are looked at: the runs of a sweep are in
/// `<output>/<name>-sweep/runs/<combination>/`, or one folder below where they are of folds.
const DEPTH: usize = 4;

/// No line of a run's events is longer, in bytes.
const LONGEST_LINE: u64 = 16 << 20;

/// No configuration of a run is longer, in bytes.
const LONGEST_CONFIG: u64 = 4 << 20;

/// A run as its folder shows it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ListedRun {
    /// The run folder.
    #[serde(serialize_with = "shown")]
    pub folder: PathBuf,
    /// `run.name`.
    pub name: Option<String>,
    /// How far it is.
    pub state: ListedState,
    /// Epochs trained and evaluated.
    pub epochs_done: usize,
    /// Epochs, at most.
    pub epochs: Option<usize>,
    /// The metric watched, such as `val/findings/auroc`.
    pub metric: Option<String>,
    /// Its best value.
    pub best: Option<f64>,
    /// The epoch of the best value, counted from 1.
    pub best_epoch: Option<usize>,
    /// When an event was last told, in seconds since 1970 began (UTC).
    pub modified: Option<u64>,
    /// Bytes of all files in the folder.
    pub bytes: u64,
    /// What in the folder cannot be read or used.
    pub problem: Option<String>,
}

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ListedState {
    /// A process holds the folder's lock.
    Running,
    /// All epochs are done.
    Done,
    /// Early stopping ended it.
    StoppedEarly,
    /// A signal stopped it; `--resume` goes on.
    Interrupted,
    /// It ended with an error or was killed; `--resume` goes on from the last saved state.
    Failed,
    /// It ended with an error or was killed before anything was saved.
    NoState,
    /// The folder cannot be read as a run's.
    Unreadable,
}

impl ListedState {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::StoppedEarly => "stopped early",
            Self::Interrupted => "interrupted",
            Self::Failed => "failed",
            Self::NoState => "no state",
            Self::Unreadable => "unreadable",
        }
    }
}

/// The runs in `folder`: itself where it is a run's, else those in the folders below it.
///
/// # Errors
/// When `folder` cannot be listed. A folder below that cannot is a row.
pub fn list_runs(folder: &Path) -> io::Result<Vec<ListedRun>> {
    let mut runs = Vec::new();
    match is_run(folder) {
        true => runs.push(look(folder)),
        false => collect(folder, DEPTH, &mut runs)?,
    }
    Ok(runs)
}

fn collect(folder: &Path, depth: usize, runs: &mut Vec<ListedRun>) -> io::Result<()> {
    let entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    let below: BTreeSet<PathBuf> = entries.iter().map(fs::DirEntry::path).collect();
    for path in below.into_iter().filter(|path| path.is_dir()) {
        if is_run(&path) {
            runs.push(look(&path));
        } else if depth > 1
            && let Err(error) = collect(&path, depth - 1, runs)
        {
            runs.push(ListedRun {
                problem: Some(format!("the folder cannot be read: {error}")),
                ..empty(&path)
            });
        }
    }
    Ok(())
}

/// Whether a run was begun in `folder`.
fn is_run(folder: &Path) -> bool {
    let events = fs::symlink_metadata(folder.join(METRICS_FILE)).is_ok();
    events || config(folder).is_some_and(|text| is_config_of_a_run(&text))
}

fn config(folder: &Path) -> Option<String> {
    let mut text = String::new();
    let file = regular(&folder.join(CONFIG_FILE)).ok()?;
    file.take(LONGEST_CONFIG).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Opens a file to read it. A pipe, which would be waited for, and a folder are refused.
fn regular(path: &Path) -> io::Result<File> {
    match fs::metadata(path)?.is_file() {
        true => File::open(path),
        false => Err(io::Error::other("it is no file")),
    }
}

fn empty(folder: &Path) -> ListedRun {
    ListedRun {
        folder: folder.to_owned(),
        name: None,
        state: ListedState::Unreadable,
        epochs_done: 0,
        epochs: None,
        metric: None,
        best: None,
        best_epoch: None,
        modified: None,
        bytes: 0,
        problem: None,
    }
}

fn look(folder: &Path) -> ListedRun {
    let written = |name| fs::metadata(folder.join(name)).and_then(|about| about.modified());
    let modified = written(METRICS_FILE).or_else(|_| written(CONFIG_FILE)).ok();
    let seconds =
        |time: SystemTime| time.duration_since(UNIX_EPOCH).ok().as_ref().map(Duration::as_secs);
    let (modified, bytes) = (modified.and_then(seconds), bytes_of(folder));
    let mut run = ListedRun { modified, bytes, ..empty(folder) };
    match events(folder) {
        Ok(told) => told.fill(&mut run),
        Err(reason) => run.problem = Some(reason),
    }
    match is_locked(folder) {
        Ok(true) => run.state = ListedState::Running,
        Ok(false) => look_at_states(&mut run),
        Err(error) => {
            run.problem.get_or_insert(format!("{LOCK_FILE} cannot be read: {error}"));
        }
    }
    run
}

/// A run that did not end needs a saved state to go on.
fn look_at_states(run: &mut ListedRun) {
    if !matches!(run.state, ListedState::Interrupted | ListedState::Failed) {
        return;
    }
    match state::glance(&run.folder) {
        Ok(true) => {}
        Ok(false) => run.state = ListedState::NoState,
        Err(damage) => run.problem = Some(damage.to_string()),
    }
}

/// Whether a process holds the lock of `folder`. Nothing is written: the lock is asked for as one of
/// many readers, and given back at once.
fn is_locked(folder: &Path) -> io::Result<bool> {
    let file = match regular(&folder.join(LOCK_FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        opened => opened?,
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// What a run told that a list shows; of anything else only that it was told.
#[derive(Debug, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Line {
    Start {
        name: String,
        epochs: usize,
    },
    Epoch {
        epoch: usize,
        watched: Option<Watched>,
    },
    Interrupted {},
    End {
        epochs: usize,
        reason: EndReason,
    },
    #[serde(other)]
    Other,
}

/// The events of a run, summed up.
#[derive(Debug, Default)]
struct Told {
    name: Option<String>,
    epochs: Option<usize>,
    done: usize,
    watched: Option<Watched>,
    /// What became of it, where it was told since it last started.
    end: Option<ListedState>,
}

impl Told {
    fn take(&mut self, line: Line) {
        match line {
            Line::Start { name, epochs } => {
                (self.name, self.epochs, self.end) = (Some(name), Some(epochs), None);
            }
            Line::Epoch { epoch, watched } => (self.done, self.watched) = (epoch, watched),
            Line::Interrupted {} => self.end = Some(ListedState::Interrupted),
            Line::End { epochs, reason } => {
                self.done = epochs;
                self.end = Some(match reason {
                    EndReason::Epochs => ListedState::Done,
                    EndReason::EarlyStopping => ListedState::StoppedEarly,
                });
            }
            Line::Other => {}
        }
    }

    fn fill(self, run: &mut ListedRun) {
        run.state = self.end.unwrap_or(ListedState::Failed);
        (run.name, run.epochs, run.epochs_done) = (self.name, self.epochs, self.done);
        if let Some(watched) = self.watched {
            run.metric = Some(watched.metric);
            (run.best, run.best_epoch) = (watched.best, watched.best_epoch);
        }
    }
}

/// The events in `metrics.jsonl`, or what is wrong with that file. A run killed before its first event
/// has none; a last line without an end is one that a kill tore, or that is being written.
fn events(folder: &Path) -> Result<Told, String> {
    let failed = |error: io::Error| format!("{METRICS_FILE} cannot be read: {error}");
    let mut told = Told::default();
    let file = match regular(&folder.join(METRICS_FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(told),
        opened => opened.map_err(failed)?,
    };
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        reader.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line).map_err(failed)?;
        let Some(text) = line.strip_suffix(b"\n") else {
            match line.len() as u64 == LONGEST_LINE {
                true => return Err(format!("line {number} of {METRICS_FILE} is too long")),
                false => break,
            }
        };
        let wrong = |error| format!("line {number} of {METRICS_FILE} is no event: {error}");
        told.take(serde_json::from_slice(text).map_err(wrong)?);
    }
    Ok(told)
}

// Serde refuses a path that is not UTF-8.
fn shown<S: serde::Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

#[cfg(test)]
mod tests;
