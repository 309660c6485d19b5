//! A trained model, opened from what its run has saved.

use std::path::{Path, PathBuf};

use super::{BuildError, FoldFolders, device};
use crate::evaluate::{Fitted, FittedError, PredictionError, PredictionTable};
use crate::memory::Chain;
use crate::plan::Plan;
use crate::run::state::{BEST, LAST, SavedState, is_state, read_state};
use crate::run::{CONFIG_FILE, restore_inference};
use crate::train::Inference;

/// Where a trained model is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrainedFolder {
    /// The resolved configuration of its run.
    pub config: PathBuf,
    /// The saved state, such as `checkpoints/xray/best`.
    pub state: PathBuf,
}

impl TrainedFolder {
    /// That of `path`: the folder of a run, of which the best state is taken or, where there is none,
    /// the last, or the folder of a state itself.
    ///
    /// # Errors
    /// When no state is there.
    pub fn find(path: &Path) -> Result<Self, BuildError> {
        let none = || match FoldFolders::find(path) {
            Some(_) => BuildError::Folds(path.to_owned()),
            None => BuildError::NoState { path: path.to_owned() },
        };
        if is_state(path) {
            let run = match path.parent() {
                Some(run) if run != Path::new("") => run.to_owned(),
                // The current folder, or a folder in it.
                _ => path
                    .canonicalize()
                    .ok()
                    .and_then(|path| Some(path.parent()?.to_owned()))
                    .ok_or_else(none)?,
            };
            return Ok(Self { config: run.join(CONFIG_FILE), state: path.to_owned() });
        }
        let state =
            [BEST, LAST].map(|name| path.join(name)).into_iter().find(|path| is_state(path));
        Ok(Self { config: path.join(CONFIG_FILE), state: state.ok_or_else(none)? })
    }
}

/// A trained model on a device, and what its run has found of it.
pub struct Trained {
    /// The model.
    pub inference: Inference,
    /// The state that it is from.
    pub state: SavedState,
}

impl Trained {
    /// Calibration and thresholds that were fitted on the validation images; none in states that were
    /// saved within an epoch, or by earlier versions.
    ///
    /// # Errors
    /// When the file is of another version.
    pub fn fitted(&self) -> Result<Option<Fitted>, FittedError> {
        let file = self.state.folder.join(Fitted::FILE);
        let text = self.state.files.get(Fitted::FILE).map(|bytes| String::from_utf8_lossy(bytes));
        text.map(|text| Fitted::from_json(&text, &file)).transpose()
    }

    /// The outputs for the validation images of the run; none in states that were saved within an epoch,
    /// or by earlier versions, or where they are too many.
    ///
    /// # Errors
    /// When an output is not finite.
    pub fn validation(&self) -> Result<Option<PredictionTable>, PredictionError> {
        let file = self.state.folder.join(PredictionTable::FILE);
        let heads: Vec<_> = self.inference.heads.iter().map(|head| head.config.clone()).collect();
        let bytes = self.state.files.get(PredictionTable::FILE);
        bytes.map(|bytes| PredictionTable::from_csv(bytes, &heads, &file)).transpose()
    }
}

/// Opens the model of `plan`, the resolved configuration of a run, on the plan's device, with the
/// weights of the saved state in the folder `state` (such as `checkpoints/xray/best`): those that
/// validation has measured, so their average where there is one. Neither data nor optimizer are opened,
/// and the run may be under way.
///
/// # Errors
/// When the device cannot be opened, or the state is damaged or of another model.
pub fn open_trained(plan: &Plan, state: &Path) -> Result<Trained, BuildError> {
    let device = device(plan)?;
    let state = read_state(state)?;
    let chain = Chain::init(&plan.stages(), &device, plan.run.seed);
    let mut inference = Inference::new(chain, &plan.heads, device, plan.memory.precision);
    restore_inference(&state, &mut inference)
        .map_err(|source| BuildError::Restore { folder: state.folder.clone(), source })?;
    Ok(Trained { inference, state })
}
