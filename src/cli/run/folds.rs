//! `trainer run --fold all`.

use std::path::Path;

use crate::build::{self, fold_plans};
use crate::cli::{Failure, Kind, located_for, output};
use crate::fault::fault;
use crate::metric::INTERVAL;
use crate::report::{duration, number};
use crate::run::{FolderMode, Stop};
use crate::screen::{Column, Frame, Table, stdout_columns, tell_progress};
use crate::sweep::{CrossValidation, Folds, FoldsEnded, Spread};

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

/// Trains all folds of the configuration at `config`, and tells what they have found.
pub(super) fn execute(
    config: &Path,
    set: &[String],
    mode: FolderMode,
    json: bool,
) -> Result<(), Failure> {
    let (plan, _) = located_for(config, set, |plan| {
        build::check_here(plan)?;
        let help = "write `validation = { folds = 5 }` under [data], or leave out --fold";
        let none = || fault("data.validation.folds", "there are no folds to train", help);
        plan.data.validation.folds.map(drop).ok_or_else(none)
    })?;
    let program = std::env::current_exe().map_err(Failure::other)?;
    let folds = Folds { program, plans: fold_plans(&plan, mode)?, mode, silent: json };
    let stop = Stop::install().map_err(Failure::other)?;
    let count = folds.plans.len();
    let ended = folds.execute(&stop, |fold, before| {
        let folder = folds.plans[fold - 1].folder();
        let before = if before { " has ended before" } else { "" };
        tell_progress(&format!("fold {fold} of {count}: {}{before}", folder.display()));
    });
    let again = "the same command with --resume in place of --overwrite goes on";
    let again =
        if mode == FolderMode::Overwrite { again } else { "go on with --fold all --resume" };
    match ended.map_err(Failure::other)? {
        FoldsEnded::Done(found) if json => output::print(&found.to_json()),
        FoldsEnded::Done(found) => {
            output::print(&table(&found, Frame::of_stdout(), stdout_columns()))?;
            let run = folds.folder();
            let run = run.display();
            tell_progress(&format!(
                "`trainer eval {run}` measures each image by the fold that did not see it"
            ));
            Ok(())
        }
        FoldsEnded::Stopped(fold, signal) => {
            let told = format!("stopped by {} in fold {fold} of {count}; {again}", signal.name());
            Err(Failure::new(Kind::Stopped(signal), told))
        }
        FoldsEnded::Failed(fold, code) => {
            let told = format!(
                "fold {fold} of {count} ended with an error, told above; once it is mended, {again}"
            );
            Err(Failure::new(Kind::of_code(code), told))
        }
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
    use crate::sweep::FoldRow;

    fn row(fold: usize, auroc: Option<f64>, loss: f64) -> FoldRow {
        let val =
            [("findings/auroc", auroc), ("loss", Some(loss)), ("findings/auroc/Edema", auroc)];
        FoldRow {
            fold,
            run: format!("runs/xray/fold-{fold}").into(),
            epochs: 3,
            epoch: fold,
            seconds: 61.0,
            val: val.map(|(name, value)| (name.to_owned(), value)).into(),
            metric: Some("val/findings/auroc".to_owned()),
        }
    }

    #[test]
    fn the_table_has_a_row_for_each_fold_and_the_metric_watched_first() {
        let rows = vec![row(1, Some(0.75), 0.5), row(2, None, 0.25), row(3, Some(0.8), 0.75)];
        let found = CrossValidation::new(Path::new("runs/xray"), 3, rows);
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
