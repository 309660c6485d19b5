//! `trainer list`.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, ValueEnum};

use super::{Failure, output};
use crate::metric::higher_is_better;
use crate::paths::looked_in;
use crate::report::{duration, number};
use crate::run::{ListedRun, list_runs};
use crate::screen::{Bytes, Column, Frame, Table, stdout_columns};

/// Where runs are, unless `run.output` says otherwise.
const FOLDER: &str = "checkpoints";

/// Lists runs: how far each is, its best metric, when it last wrote and its size on disk
///
/// Runs in folders below are found too, down to those of a sweep. Only run folders are read, and nothing
/// in them is changed. A folder that cannot be read is a row that says why.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  trainer list
  trainer list checkpoints/xray-sweep --sort best
  trainer list /data/runs checkpoints --json

States:
  running        a process trains in the folder
  done           all epochs are done
  stopped early  early stopping ended it
  interrupted    stopped by a signal; `trainer run CONFIG --resume` goes on
  failed         ended by an error or killed; --resume goes on from the last saved state
  no state       the same, before anything was saved
  unreadable     what the folder holds is not what a run writes")]
pub struct List {
    /// Folders that hold runs, or run folders
    #[arg(value_name = "DIR", default_value = FOLDER)]
    folders: Vec<PathBuf>,
    /// The order of the rows
    #[arg(long, value_enum, default_value_t = Order::When)]
    sort: Order,
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

/// What rows are ordered by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Order {
    /// The one that wrote last comes first
    When,
    /// By folder
    Name,
    /// By metric, and the best value of each first
    Best,
    /// The largest first
    Size,
}

/// Prints the runs.
pub fn execute(list: &List) -> Result<(), Failure> {
    let mut runs = Vec::new();
    for folder in &list.folders {
        // A project without runs is none that went wrong.
        if folder != Path::new(FOLDER) || folder.exists() {
            runs.extend(list_runs(folder).map_err(|error| unlisted(folder, &error))?);
        }
    }
    sort(&mut runs, list.sort);
    runs.dedup_by(|a, b| a.folder == b.folder);
    if list.json {
        return output::print(&serde_json::to_string_pretty(&runs).map_err(Failure::other)?);
    }
    if runs.is_empty() {
        let names: Vec<String> = list.folders.iter().map(|path| place(path)).collect();
        return output::print(&format!("no runs in {}", names.join(", ")));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    output::print(&table(&runs, now).draw(Frame::of_stdout(), stdout_columns()))
}

fn place(folder: &Path) -> String {
    format!("{}{}", folder.display(), looked_in(folder))
}

fn unlisted(folder: &Path, error: &std::io::Error) -> Failure {
    Failure::configuration(format!("cannot list the runs in {}: {error}", place(folder)))
        .with_help(Some("name a folder that holds runs, such as `run.output`".to_owned()))
}

fn sort(runs: &mut [ListedRun], order: Order) {
    runs.sort_by(|a, b| a.folder.cmp(&b.folder));
    match order {
        Order::Name => {}
        Order::When => runs.sort_by_key(|run| std::cmp::Reverse(run.modified)),
        Order::Size => runs.sort_by_key(|run| std::cmp::Reverse(run.bytes)),
        Order::Best => runs.sort_by(|a, b| {
            let better = |run: &ListedRun| {
                let metric = run.metric.as_deref()?;
                let sign = if higher_is_better(metric)? { -1.0 } else { 1.0 };
                run.best.map(|best| sign * best)
            };
            let (first, second) = (better(a), better(b));
            // Runs without a value come last.
            first
                .is_none()
                .cmp(&second.is_none())
                .then_with(|| a.metric.cmp(&b.metric))
                .then_with(|| first.unwrap_or_default().total_cmp(&second.unwrap_or_default()))
        }),
    }
}

fn table(runs: &[ListedRun], now: u64) -> Table {
    let columns = vec![
        Column::words("run"),
        Column::words("state").always(),
        Column::numbers("epochs").always(),
        Column::words("metric"),
        Column::numbers("best").always(),
        Column::numbers("epoch").always(),
        Column::numbers("written").always(),
        Column::numbers("size").always(),
        Column::words("problem"),
    ];
    let mut table = Table::new(columns, 1);
    for run in runs {
        let epochs = run.epochs.map(|of| format!("{}/{of}", run.epochs_done));
        let when = run.modified.map(|then| match now.checked_sub(then) {
            Some(ago) => format!("{} ago", duration(ago as f64)),
            None => "later than now".to_owned(),
        });
        let told = |text: &Option<String>| text.as_deref().map(printable).unwrap_or_default();
        table.add(vec![
            printable(&run.folder.display().to_string()),
            run.state.name().to_owned(),
            epochs.unwrap_or_default(),
            told(&run.metric),
            run.best.map(|best| number(Some(best))).unwrap_or_default(),
            run.best_epoch.map(|epoch| epoch.to_string()).unwrap_or_default(),
            when.unwrap_or_default(),
            Bytes(run.bytes).to_string(),
            told(&run.problem),
        ]);
    }
    table
}

/// `text` without what a terminal would take for a command.
fn printable(text: &str) -> String {
    text.chars().map(|sign| if sign.is_control() { '\u{fffd}' } else { sign }).collect()
}
