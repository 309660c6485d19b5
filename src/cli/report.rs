//! `trainer report`.

use std::path::{Path, PathBuf};

use clap::Args;

use super::compare::tested;
use super::{Failure, output};
use crate::build::{self, FoldFolders};
use crate::memory::measure::Meter;
use crate::paths::looked_in;
use crate::plan::Plan;
use crate::report::{
    Judged, REPORT_FILE, Record, RecordError, RunPage, TracedStep, comparison, page, write_page,
};
use crate::run::{CONFIG_FILE, RunLock, best_findings};
use crate::screen::say;

/// Writes the page of a run, or one that compares several
///
/// A run keeps its page, <run folder>/report.html, up to date by itself: learning curves, the measures of
/// the best epoch, samples with heatmaps, learning rate, speed, memory, what was left out, and the
/// configuration. This command writes the page again from the files in the run folder, and draws missing
/// pictures of samples, unless the run still trains or run.pictures is 0. For several runs it writes one
/// page with their learning curves in the same pictures, their best values, the tests of `trainer compare`,
/// and the differences of their configurations. The page of the folder of a run's folds is like that, but
/// without the tests. A page is one file that loads nothing. Its path goes to standard output.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  trainer report checkpoints/quickstart
  trainer report checkpoints/quickstart --out quickstart.html
  trainer report checkpoints/adamw checkpoints/sgd --out optimizers.html")]
pub struct Report {
    /// Run folders, such as checkpoints/quickstart, or folders of folds
    #[arg(value_name = "RUN", required = true)]
    runs: Vec<PathBuf>,
    /// The file to write, instead of RUN/report.html, or comparison.html of several runs
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Writes the page of the run of `plan` in `folder`, which has ended, with pictures of its samples and of
/// memory over a step, which `meter`, the run's, measures. What fails is a warning: the run has ended well.
pub(super) fn finish_page(plan: &Plan, folder: &Path, meter: &Meter) {
    let mut page = RunPage::of(folder, best_findings);
    let record = Record::read(folder).map_err(|error| error.to_string());
    let traced = record.and_then(|record| {
        build::trace_run(plan, folder, record.seconds_a_step(plan.train.batch_size), meter)
    });
    if let Err(error) = traced {
        say(format_args!("warning: {REPORT_FILE} does not show memory over a step: {error}"));
    }
    let drawn = build::draw_samples(plan, folder);
    if let Err(error) = drawn.and_then(|()| page.refresh()) {
        say(format_args!("warning: {REPORT_FILE} has no pictures of samples: {error}"));
    }
}

/// Draws what the page of the run in `folder` shows of its samples, unless the run is on: then its
/// memory is needed.
fn draw_samples(folder: &Path) {
    if RunLock::acquire(folder).is_err() {
        return;
    }
    let plan = super::planned(&folder.join(CONFIG_FILE), &[]);
    let drawn = plan.map_err(|failure| failure.to_string());
    let drawn = drawn.and_then(|plan| build::draw_samples(&plan, folder));
    if let Err(error) = drawn {
        say(format_args!("warning: the samples have no new pictures: {error}"));
    }
}

/// Writes the page.
pub fn execute(command: &Report) -> Result<(), Failure> {
    let runs: Vec<PathBuf> = command.runs.iter().flat_map(|run| members(run)).collect();
    let records = runs.iter().map(|run| read(run)).collect::<Result<Vec<_>, _>>()?;
    let text = match (&records[..], &runs[..]) {
        ([record], [run]) => {
            draw_samples(run);
            let judged = Judged::read(run, &record.config, best_findings);
            page(record, &judged, TracedStep::read(run).as_ref())
        }
        _ => {
            let runs: Vec<(String, Record)> = names(&runs).into_iter().zip(records).collect();
            // Folds were validated on different images.
            let several = command.runs.len() > 1;
            let tested = several.then(|| tested(&command.runs).map_err(|error| error.to_string()));
            comparison(&runs, tested.as_ref())
        }
    };
    let file = match (&command.out, &command.runs[..]) {
        (Some(file), _) => file.clone(),
        (None, [run]) => run.join(REPORT_FILE),
        (None, _) => PathBuf::from("comparison.html"),
    };
    write_page(&file, &text).map_err(|error| {
        Failure::other(format!("cannot write {}: {error}", file.display()))
            .with_help(Some("--out FILE writes it elsewhere".to_owned()))
    })?;
    output::print(&file.display().to_string())
}

/// The run itself; of a folder with folds, those that were begun.
fn members(run: &Path) -> Vec<PathBuf> {
    match FoldFolders::find(run) {
        Some(folds) => folds.begun.into_iter().map(|(_, run)| run).collect(),
        None => vec![run.to_owned()],
    }
}

fn read(run: &Path) -> Result<Record, Failure> {
    if !run.is_dir() {
        let told = format!("there is no run folder {}{}", run.display(), looked_in(run));
        return Err(Failure::configuration(told));
    }
    Record::read(run).map_err(|error| match error {
        RecordError::Unreadable { .. } => Failure::configuration(error)
            .with_help(Some("give the folder of a run, <run.output>/<run.name>".to_owned())),
        RecordError::Malformed { .. } => Failure::data(error),
    })
}

/// The last part of each path, or the whole where two would be called the same.
pub(super) fn names(runs: &[PathBuf]) -> Vec<String> {
    let last = |run: &PathBuf| run.file_name().map(|name| name.to_string_lossy().into_owned());
    let is_alone =
        |name: &Option<String>| runs.iter().filter(|run| last(run) == *name).count() == 1;
    let name = |run: &PathBuf| {
        last(run).filter(|name| is_alone(&Some(name.clone()))).unwrap_or(run.display().to_string())
    };
    runs.iter().map(name).collect()
}
