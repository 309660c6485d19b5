//! `trainer run --fold all`.

use std::path::Path;

use crate::build::{self, fold_plans};
use crate::cli::{Failure, Kind, located_for, output};
use crate::fault::fault;
use crate::run::{FolderMode, Stop};
use crate::screen::{Frame, stdout_columns, tell_progress};
use crate::sweep::{Folds, FoldsEnded};

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
            output::print(&found.drawn(Frame::of_stdout(), stdout_columns()))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fold_is_a_number_from_1_or_all() {
        assert_eq!((which("all"), which("2")), (Ok(Fold::All), Ok(Fold::One(2))));
        for wrong in ["0", "-1", "1.5", "All", ""] {
            assert!(which(wrong).is_err(), "{wrong}");
        }
    }
}
