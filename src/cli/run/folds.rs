//! `trainer run --fold all`.

use std::path::Path;

use crate::build::fold_plans;
use crate::cli::named_devices::check_on_each;
use crate::cli::{Failure, Kind, located_for, output};
use crate::fault::fault;
use crate::metric::INTERVAL;
use crate::plan::DevicePlan;
use crate::report::{duration, number};
use crate::run::{FolderMode, Stop};
use crate::screen::{Column, Frame, Table, is_quiet, say, stdout_columns, tell_progress};
use crate::sweep::{CrossValidation, FailedFold, FoldTold, Folds, FoldsEnded, Spread};

/// The folds that are trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fold {
    /// One, counted from 1.
    One(usize),
    /// All, one after another.
    All,
}

/// Reads `--fold`.
pub(super) fn which(text: &str) -> Result<Fold, String> {
    match (text, text.parse()) {
        ("all", _) => Ok(Fold::All),
        (_, Ok(fold)) if fold >= 1 => Ok(Fold::One(fold)),
        _ => Err("write the number of a fold, counted from 1, or `all`".to_owned()),
    }
}

/// Trains all folds of the configuration at `config`, on each of `devices` one at a time, and tells what they
/// have found.
pub(super) fn execute(
    config: &Path,
    set: &[String],
    mode: FolderMode,
    json: bool,
    devices: Vec<DevicePlan>,
) -> Result<(), Failure> {
    let mut set = set.to_vec();
    // Every process is given its own; this one is what the plan is made for.
    set.extend(devices.first().map(|device| format!("device.use=\"{device}\"")));
    let (plan, _) = located_for(config, &set, |plan| {
        check_on_each(plan, &devices)?;
        let help = "write `validation = { folds = 5 }` under [data], or leave out --fold";
        let none = || fault("data.validation.folds", "there are no folds to train", help);
        plan.data.validation.folds.map(drop).ok_or_else(none)
    })?;
    let program = std::env::current_exe().map_err(Failure::other)?;
    let folds = Folds { program, plans: fold_plans(&plan, mode)?, mode, silent: json, devices };
    let stop = Stop::install().map_err(Failure::other)?;
    let count = folds.plans.len();
    let ended = folds.execute(&stop, |fold, told| {
        let folder = folds.plans[fold - 1].folder();
        if let Some(told) = progress(&told, &folder) {
            tell_progress(&format!("fold {fold} of {count}{told}"));
        }
    });
    let again = "the same command with --resume in place of --overwrite goes on";
    let again =
        if mode == FolderMode::Overwrite { again } else { "go on with --fold all --resume" };
    match ended.map_err(Failure::other)? {
        FoldsEnded::Done(found) if json => output::print(&found.to_json()),
        FoldsEnded::Done(found) if is_quiet() => {
            say(format_args!("{}", closing(&found, &folds.folder())));
            Ok(())
        }
        FoldsEnded::Done(found) => {
            output::print(&table(&found, Frame::of_stdout(), stdout_columns()))?;
            let run = folds.folder();
            let run = run.display();
            tell_progress(&format!(
                "`trainer eval {run}` measures each image by the fold that did not see it"
            ));
            Ok(())
        }
        FoldsEnded::Stopped(on, signal) => {
            let on = on.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
            let told = format!("stopped by {} in fold {on} of {count}; {again}", signal.name());
            Err(Failure::new(Kind::Stopped(signal), told))
        }
        FoldsEnded::Failed(failed) => {
            let told = failed.iter().map(|failed| failure(failed, count));
            let told = told.collect::<Vec<_>>().join("; ");
            let kind = Kind::of_code(failed.first().and_then(|failed| failed.code));
            Err(Failure::new(kind, format!("{told}; once it is mended, {again}")))
        }
    }
}

/// What is said of a fold after its number; nothing of one that tells its end itself.
fn progress(told: &FoldTold<'_>, folder: &Path) -> Option<String> {
    let folder = folder.display();
    match told {
        FoldTold::Before => Some(format!(": {folder} has ended before")),
        FoldTold::Begins { device, log } => {
            let on = device.map_or(String::new(), |device| format!(" on {device}"));
            let told = log.map_or(String::new(), |log| format!(", told in {}", log.display()));
            Some(format!("{on}: {folder}{told}"))
        }
        FoldTold::Trained { row, log: Some(_) } => {
            let metric = row.metric.as_deref().unwrap_or("val/loss");
            let value = metric.strip_prefix("val/").and_then(|name| row.val.get(name));
            let value = number(value.copied().flatten());
            let (epoch, time) = (row.epoch, duration(row.seconds));
            Some(format!(" is trained: {metric} {value} in epoch {epoch}, {time}"))
        }
        FoldTold::Trained { log: None, .. } => None,
    }
}

/// One line in place of the table.
fn closing(found: &CrossValidation, folder: &Path) -> String {
    let watched = found.metric.strip_prefix("val/").unwrap_or(&found.metric);
    let mean = found.metrics.get(watched).map(|spread| {
        let std = spread.std.map_or(String::new(), |std| format!(" (std {})", number(Some(std))));
        format!("mean best {} {}{std}, ", found.metric, number(Some(spread.mean)))
    });
    let (count, mean) = (found.rows.len(), mean.unwrap_or_default());
    format!("done: {count} folds, {mean}all in {}", folder.join(CrossValidation::FILE).display())
}

/// The error of a fold.
fn failure(failed: &FailedFold, count: usize) -> String {
    let fold = failed.fold;
    match &failed.told {
        Some((said, log)) => format!("fold {fold} of {count}: {said}, told in {}", log.display()),
        None => format!("fold {fold} of {count} ended with an error, shown above"),
    }
}

/// A row for each fold, the mean and the standard deviation. Metrics of single labels
/// and the ends of intervals are in the file only.
fn table(found: &CrossValidation, frame: Frame, columns: usize) -> String {
    let watched = found.metric.strip_prefix("val/").unwrap_or(&found.metric);
    let losses = found.metrics.keys().filter(|metric| metric.ends_with("/loss")).count();
    let is_shown = |metric: &&String| {
        let interval = INTERVAL.iter().any(|end| metric.ends_with(end));
        // Of one head it is the loss.
        let again = losses == 1 && metric.ends_with("/loss");
        metric.as_str() == watched || metric.matches('/').count() < 2 && !interval && !again
    };
    let mut metrics: Vec<&String> = found.metrics.keys().filter(is_shown).collect();
    // The sort is stable: the metric watched comes first.
    metrics.sort_by_key(|metric| metric.as_str() != watched);
    let titles = [
        Column::words("fold").always(),
        Column::numbers("epoch").always(),
        Column::numbers("time"),
    ];
    let titles =
        titles.into_iter().chain(metrics.iter().map(|m| Column::numbers(m.as_str()).always()));
    let mut table = Table::new(titles.collect(), 1);
    for row in &found.rows {
        let first =
            [row.fold.to_string(), format!("{}/{}", row.epoch, row.epochs), duration(row.seconds)];
        let values = metrics.iter().map(|metric| number(row.val.get(*metric).copied().flatten()));
        table.add(first.into_iter().chain(values).collect());
    }
    let mut add = |name: &str, of: fn(&Spread) -> Option<f64>| {
        let first = [name, "", ""].map(str::to_owned);
        let values = metrics.iter().map(|metric| match of(&found.metrics[*metric]) {
            Some(value) => number(Some(value)),
            None => String::new(),
        });
        table.add(first.into_iter().chain(values).collect());
    };
    add("mean", |spread| Some(spread.mean));
    add("std", |spread| spread.std);
    table.draw(frame, columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_a_row_for_each_fold_and_the_metric_watched_first() {
        let found = CrossValidation::of_three_folds();
        insta::assert_snapshot!(table(&found, Frame::Ascii, 80));
    }

    #[test]
    fn a_fold_is_a_number_from_1_or_all() {
        assert_eq!((which("all"), which("2")), (Ok(Fold::All), Ok(Fold::One(2))));
        for wrong in ["0", "-1", "1.5", "All", ""] {
            assert!(which(wrong).is_err(), "{wrong}");
        }
    }
}
