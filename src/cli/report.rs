//! `trainer report`.

use std::path::{Path, PathBuf};

use clap::Args;

use super::{Failure, output};
use crate::build::FoldFolders;
use crate::paths::looked_in;
use crate::report::{Judged, REPORT_FILE, Record, RecordError, comparison, page, write_page};

/// Writes the page of a run, or one that compares several
///
/// A run keeps its page, <run folder>/report.html, up to date by itself: learning curves, learning rate,
/// speed, memory, what was left out, and the configuration. This command writes it anew from what the
/// run folder holds. With several runs it writes one page with their learning curves in the same
/// pictures, their best values, and where their configurations differ; so it does of the folder of a
/// run's folds. A page is one file that loads nothing. Its path goes to standard output.
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

/// Writes the page.
pub fn execute(command: &Report) -> Result<(), Failure> {
    let runs: Vec<PathBuf> = command.runs.iter().flat_map(|run| members(run)).collect();
    let records = runs.iter().map(|run| read(run)).collect::<Result<Vec<_>, _>>()?;
    let (file, text) = match (&records[..], &command.runs[..]) {
        ([record], [run]) => {
            (run.join(REPORT_FILE), page(record, &Judged::read(run, &record.config)))
        }
        (_, given) => {
            let runs: Vec<(String, Record)> = names(&runs).into_iter().zip(records).collect();
            let file = match given {
                [folds] => folds.join(REPORT_FILE),
                _ => PathBuf::from("comparison.html"),
            };
            (file, comparison(&runs))
        }
    };
    let file = command.out.clone().unwrap_or(file);
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
