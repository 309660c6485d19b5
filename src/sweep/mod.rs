//! A sweep: one configuration in many combinations of values, each measured in a process of its
//! own, so that one that runs out of memory is a row of the result and not the end of it.
//!
//! ```text
//! for each combination, the first key varying slowest:
//!     kept from an earlier start? else measure it: `trainer bench`, a child process
//!                                 or train it: `trainer run`, which goes on where it was stopped
//!     write sweep.json, sweep.csv, sweep.md and report.html anew
//! ```

mod child;
mod cross_validation;
mod folder;
mod folds;
mod page;
mod row;
mod table;
mod trained;

use std::path::PathBuf;

pub use cross_validation::{CrossValidation, FoldRow, Spread};
pub use folder::{SweepError, SweepFolder};
pub use folds::{Folds, FoldsEnded};
pub use row::{Row, Status};
pub use table::{drawn, summary};

use crate::config::{self, Grid};
use crate::fault::Fault;
use crate::plan::Plan;
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
    Begins(&'a Planned),
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
    /// Every combination has its row.
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
        })
    }

    /// Measures every combination that `folder` does not hold, and saves after each.
    ///
    /// # Errors
    /// When a child cannot be started or the folder not be written.
    pub fn execute(
        &self,
        folder: &mut SweepFolder,
        stop: &Stop,
        mut tell: impl FnMut(Told<'_>),
    ) -> Result<Outcome, SweepError> {
        let mut rows: Vec<Row> = Vec::new();
        let reference = self.reference.map(|number| &self.combinations[number].set);
        for (number, of) in self.combinations.iter().enumerate() {
            let kept = folder.take(&of.set).filter(|row| row.status != Status::Failed);
            let is_kept = kept.is_some();
            let row = match kept {
                Some(row) => row,
                None => {
                    tell(Told::Begins(of));
                    match child::measure(self, of, folder, stop)? {
                        child::Ended::Row(row) => *row,
                        child::Ended::Stopped(signal) => {
                            folder.save(&self.keys, &mut rows, reference)?;
                            return Ok(Outcome::Stopped(rows, signal));
                        }
                    }
                }
            };
            rows.push(row);
            folder.save(&self.keys, &mut rows, reference)?;
            folder.write_page(self, &rows).unwrap_or_else(|reason| tell(Told::NoPage(reason)));
            tell(Told::Row { number, of, row: &rows[number], kept: is_kept });
        }
        Ok(Outcome::Done(rows))
    }
}
