//! A sweep: one configuration in many combinations of values, each measured in a process of its
//! own, so that one that runs out of memory is a row of the result and not the end of it.
//!
//! ```text
//! for each combination, or each of a shard, that no earlier start has left, the first key varying slowest,
//! on one device, or on whichever of several is free:
//!     measure it: `trainer bench`, a child process
//!     or train it: `trainer run`, which goes on where it was stopped
//!     write sweep.json, sweep.csv, sweep.md and report.html anew
//! ```

mod child;
mod cross_validation;
mod folder;
mod folds;
mod page;
mod queue;
mod row;
mod shard;
mod table;
mod trained;

use std::ops::ControlFlow;
use std::path::PathBuf;

pub use cross_validation::{CrossValidation, FoldRow, Spread};
pub use folder::{SweepError, SweepFolder};
pub use folds::{FailedFold, FoldTold, Folds, FoldsEnded};
pub use row::{Row, Status};
pub use shard::Shard;
pub use table::{drawn, summary};

use crate::config::{self, Grid};
use crate::fault::Fault;
use crate::plan::{DevicePlan, Plan};
use crate::run::{Signal, Stop};

/// What is done with each combination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Its first steps are measured.
    Steps {
        /// How many.
        steps: usize,
        /// Whether they are taken on one batch that stays on the device, not on the data.
        synthetic: bool,
    },
    /// It is trained for so many epochs, which its configuration says too.
    Epochs(usize),
}

/// What is swept and what is done with each combination.
#[derive(Debug, Clone)]
pub struct Sweep {
    /// This program, which is started for each combination.
    pub program: PathBuf,
    /// The swept keys, in the order of the columns.
    pub keys: Vec<String>,
    /// The configuration as written, without the swept keys.
    pub rest: toml::Value,
    /// The combinations, at least one, in the order of the rows.
    pub combinations: Vec<Planned>,
    /// What is done with each.
    pub work: Work,
    /// The combination, by its number from 0, that others are given in percent of; without one, the
    /// first that fits.
    pub reference: Option<usize>,
    /// The devices that take one combination each at a time; with none, every combination is done where
    /// its configuration says, one after another.
    pub devices: Vec<DevicePlan>,
    /// The part of the combinations that this process does; without one, all.
    pub shard: Option<Shard>,
}

/// A combination and what it means.
#[derive(Debug, Clone)]
pub struct Planned {
    /// As a person writes it.
    pub name: String,
    /// The value of each swept key.
    pub set: row::Set,
    /// The whole configuration.
    pub plan: Plan,
}

/// What the sweep tells while it runs.
#[derive(Debug)]
pub enum Told<'a> {
    /// A combination is measured now.
    Begins {
        /// The combination.
        of: &'a Planned,
        /// Which of the sweep's devices does it.
        device: Option<DevicePlan>,
    },
    /// A row is there.
    Row {
        /// Its number, from 0.
        number: usize,
        /// The combination.
        of: &'a Planned,
        /// The row.
        row: &'a Row,
        /// Whether it was measured by an earlier start of the sweep.
        kept: bool,
    },
    /// The page cannot be written, for this reason; nothing depends on it.
    NoPage(String),
}

/// How a sweep ended without an error.
#[derive(Debug)]
pub enum Outcome {
    /// Every combination of its own has its row.
    Done(Vec<Row>),
    /// A signal asked it to stop; the rows so far are saved.
    Stopped(Vec<Row>, Signal),
}

impl Sweep {
    /// Plans every combination of `grid`.
    ///
    /// # Errors
    /// At the first combination that means nothing.
    pub fn plan(
        grid: Grid,
        plan: impl Fn(config::Config) -> Result<Plan, Fault>,
    ) -> Result<Self, config::ConfigError> {
        let planned = |combination: config::Combination| {
            let name = combination.name();
            let config::Loaded { config, source } = combination.loaded.clone();
            let plan = plan(config).map_err(|fault| combination.error(source.error(fault)))?;
            Ok(Planned { name, set: combination.set.into_iter().collect(), plan })
        };
        Ok(Self {
            program: PathBuf::new(),
            keys: grid.keys,
            rest: grid.rest,
            combinations: grid.combinations.into_iter().map(planned).collect::<Result<_, _>>()?,
            work: Work::Steps { steps: 1, synthetic: false },
            reference: None,
            devices: Vec::new(),
            shard: None,
        })
    }

    /// The combinations that this process does, each with its number from 0.
    pub fn own(&self) -> impl Iterator<Item = (usize, &Planned)> {
        let all = self.combinations.iter().enumerate();
        all.filter(|(number, _)| self.shard.is_none_or(|shard| shard.has(*number)))
    }

    /// Measures every combination of its own that `folder` does not hold, and saves after each.
    ///
    /// # Errors
    /// When a child cannot be started or the folder not be written.
    pub fn execute(
        &self,
        folder: &mut SweepFolder,
        stop: &Stop,
        mut tell: impl FnMut(Told<'_>),
    ) -> Result<Outcome, SweepError> {
        let (mut done, tasks) = self.begin(folder);
        done.save(folder, &mut tell)?;
        for (number, row) in done.numbers.iter().zip(&done.rows) {
            tell(Told::Row { number: *number, of: &self.combinations[*number], row, kept: true });
        }
        let work = |task: &child::Task<'_>, device| match child::measure(self, task, device, stop) {
            Ok(child::Ended::Row(row)) => ControlFlow::Continue(Ok(child::Ended::Row(row))),
            over => ControlFlow::Break(over),
        };
        let mut stopped = None;
        queue::each(&tasks, &queue::lanes(&self.devices), stop, work, |task, device, event| {
            let child::Task { number, of, .. } = *task;
            match event {
                queue::Event::Begins => tell(Told::Begins { of, device }),
                queue::Event::Ended(ended) => match ended? {
                    child::Ended::Row(row) => {
                        // One that failed before.
                        folder.take(&of.set);
                        let at = done.insert(number, *row);
                        done.save(folder, &mut tell)?;
                        tell(Told::Row { number, of, row: &done.rows[at], kept: false });
                    }
                    child::Ended::Stopped(signal) => stopped = Some(signal),
                },
            }
            Ok::<(), SweepError>(())
        })?;
        Ok(match stopped {
            Some(signal) => Outcome::Stopped(done.rows, signal),
            None => Outcome::Done(done.rows),
        })
    }

    /// The rows that an earlier start has left, and what is to be done.
    fn begin(&self, folder: &mut SweepFolder) -> (Done<'_>, Vec<child::Task<'_>>) {
        let mut done = Done { sweep: self, numbers: Vec::new(), rows: Vec::new() };
        let mut tasks = Vec::new();
        for (number, of) in self.own() {
            match folder.take_kept(&of.set) {
                Some(row) => {
                    done.insert(number, row);
                }
                None => tasks.push(child::Task::new(self, folder, number)),
            }
        }
        (done, tasks)
    }
}

/// The rows so far, in the order of their combinations, whichever was done first.
struct Done<'a> {
    sweep: &'a Sweep,
    /// The number of each row's combination.
    numbers: Vec<usize>,
    rows: Vec<Row>,
}

impl Done<'_> {
    /// Puts the row of the combination `number` in its place, and says which that is.
    fn insert(&mut self, number: usize, row: Row) -> usize {
        let at = self.numbers.partition_point(|before| *before < number);
        self.numbers.insert(at, number);
        self.rows.insert(at, row);
        at
    }

    /// Writes the table in every format, and the page.
    fn save(
        &mut self,
        folder: &mut SweepFolder,
        tell: &mut impl FnMut(Told<'_>),
    ) -> Result<(), SweepError> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let Sweep { keys, combinations, reference, .. } = self.sweep;
        let reference = reference.map(|number| &combinations[number].set);
        folder.save(keys, &mut self.rows, reference)?;
        folder
            .write_page(self.sweep, &self.rows)
            .unwrap_or_else(|reason| tell(Told::NoPage(reason)));
        Ok(())
    }
}
