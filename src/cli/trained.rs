//! A trained model that a command is given.

use std::path::{Path, PathBuf};

use super::{Failure, located_as, located_for, overrides};
use crate::build::{self, FoldFolders, Trained, TrainedFolder};
use crate::config::{Config, Source};
use crate::plan::Plan;

/// Opens the model at `path`, the folder of a run or of one of its states, on the device that its
/// configuration names, which `set` may change. Returns its plan and where that was written too.
///
/// # Errors
/// When no state is there, or the configuration, the state or the device cannot be used.
pub(super) fn open(path: &Path, set: &[String]) -> Result<(Trained, Plan, Source), Failure> {
    let TrainedFolder { config, state } = TrainedFolder::find(path)?;
    // A model that was trained over several devices is opened whole, on one.
    let whole = |config: &mut Config| config.parallel.pipeline = None;
    let (plan, source) = located_as(&config, set, whole, build::check_here)?;
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

/// A trained model, and where it is from.
pub(super) struct Opened {
    pub trained: Trained,
    pub plan: Plan,
    /// The folder of its run; none of a file of weights.
    pub folder: Option<PathBuf>,
    /// What a person should know, a sentence each.
    pub warnings: Vec<String>,
}

impl Opened {
    /// The model at `path`: of a run, or of a file of weights that `config` describes.
    ///
    /// # Errors
    /// When the configuration, the state, the file or the device cannot be used, and where `config` is given
    /// for a run or is lacking for a file.
    pub fn at(path: &Path, config: Option<&Path>, set: &[String]) -> Result<Self, Failure> {
        match (config, path.is_file()) {
            (Some(config), true) => Self::of_weights(path, config, set),
            (None, true) if path.extension().is_some_and(|extension| extension == "toml") => {
                let path = path.display();
                let message = format!("{path} is a configuration, and not a trained model");
                let help = format!(
                    "name the folder of its run, or a file of weights with `--config {path}`"
                );
                Err(Failure::configuration(message).with_help(Some(help)))
            }
            (None, true) => {
                let message = format!(
                    "{} is a file of weights, and does not say of what model",
                    path.display()
                );
                let help = "--config names the configuration of its model";
                Err(Failure::configuration(message).with_help(Some(help.to_owned())))
            }
            (Some(_), false) => {
                let message =
                    format!("--config is for files of weights, and {} is none", path.display());
                let help = "the folder of a run has its own config.toml, and --set changes it";
                Err(Failure::configuration(message).with_help(Some(help.to_owned())))
            }
            (None, false) => {
                let (trained, plan, _) = open(path, set)?;
                let TrainedFolder { config, .. } = TrainedFolder::find(path)?;
                let folder = config.parent().map(Path::to_owned).unwrap_or_default();
                Ok(Self { trained, plan, folder: Some(folder), warnings: Vec::new() })
            }
        }
    }

    fn of_weights(path: &Path, config: &Path, set: &[String]) -> Result<Self, Failure> {
        // As training from the file would have it, its scale of images included.
        let set = [set, &[overrides::init(path)]].concat();
        let (plan, _) = located_for(config, &set, build::check_here)?;
        let (trained, warnings) = build::open_weights(&plan, path)?;
        Ok(Self { trained, plan, folder: None, warnings })
    }
}
