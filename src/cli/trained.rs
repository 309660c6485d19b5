//! A trained model that a command is given.

use std::path::{Path, PathBuf};

use super::{Failure, located_for};
use crate::build::{self, FoldFolders, Trained, TrainedFolder};
use crate::config::Source;
use crate::plan::Plan;

/// Opens the model at `path`, the folder of a run or of one of its states, on the device that its
/// configuration names, which `set` may change. Returns its plan and where that was written too.
///
/// # Errors
/// When no state is there, or the configuration, the state or the device cannot be used.
pub(super) fn open(path: &Path, set: &[String]) -> Result<(Trained, Plan, Source), Failure> {
    let TrainedFolder { config, state } = TrainedFolder::find(path)?;
    let (plan, source) = located_for(&config, set, build::check_here)?;
    let trained = build::open_trained(&plan, &state)?;
    Ok((trained, plan, source))
}

/// The models that `paths` name: of a folder with the folds of a run those of all folds, in their place.
///
/// # Errors
/// Folds of which some were not trained, or that do not belong together.
pub(super) fn members(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let members = paths.iter().map(|path| match FoldFolders::find(path) {
        Some(folds) => folds.complete(),
        None => Ok(vec![path.clone()]),
    });
    Ok(members.collect::<Result<Vec<_>, _>>()?.concat())
}

/// Opens the model whose weights are in the file at `path`, as the configuration `config` describes it.
/// Returns its plan too, and what a person should know, a sentence each.
///
/// # Errors
/// When the configuration, the file or the device cannot be used.
pub(super) fn open_weights(
    path: &Path,
    config: &Path,
    set: &[String],
) -> Result<(Trained, Plan, Vec<String>), Failure> {
    let (plan, _) = located_for(config, set, build::check_here)?;
    let (trained, warnings) = build::open_weights(&plan, path)?;
    Ok((trained, plan, warnings))
}
