//! A trained model, opened from what its run has saved.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::initial::start_from;
use super::{BuildError, FoldFolders, device};
use crate::data::{ImageConfig, Standardizer};
use crate::evaluate::{Fitted, FittedError, PredictionError, PredictionTable};
use crate::memory::Chain;
use crate::model::weights;
use crate::plan::Plan;
use crate::run::state::{BEST, LAST, SavedState, StateTag, is_state, read_state};
use crate::run::{CONFIG_FILE, PREPROCESSING, STANDARDIZE, restore_inference};
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

/// Opens the model whose weights are in `file`, one that [`initial`](weights::initial) reads, as `plan`
/// describes it, on the plan's device; with it what a person should know, a sentence each. Calibration
/// and thresholds are those in the file's metadata, where `trainer export` has put them.
///
/// # Errors
/// When the device cannot be opened, or the file is damaged, of another model, for images of another scale or
/// without some weights.
pub fn open_weights(plan: &Plan, file: &Path) -> Result<(Trained, Vec<String>), BuildError> {
    let not_trained = |why| BuildError::NotTrained { file: file.to_owned(), why };
    let device = device(plan)?;
    let mut chain = Chain::init(&plan.stages(), &device, plan.run.seed);
    let plan = Plan { init: Some(file.to_owned()), ..plan.clone() };
    let initial = start_from(&plan, &mut [(&mut chain, &device)])?;
    if let Some(name) = initial.as_ref().and_then(|initial| initial.random().into_iter().next()) {
        let why = format!(
            "it has no weights for `{name}`, so that the outputs of that head would be random"
        );
        return Err(not_trained(why));
    }
    let notes = weights::notes(file)?;
    let mut inference = Inference::new(chain, &plan.heads, device, plan.memory.precision);
    let standardize = notes.get(STANDARDIZE).map(|text| serde_json::from_str(text));
    let mut standardize: BTreeMap<String, Standardizer> = match standardize.transpose() {
        Ok(found) => found.unwrap_or_default(),
        Err(error) => {
            return Err(not_trained(format!("its `{STANDARDIZE}` is unreadable: {error}")));
        }
    };
    for head in inference.heads.iter_mut().filter(|head| head.config.standardize) {
        let (name, labels) = (&head.config.name, head.config.labels.len());
        let found = standardize.remove(name);
        let found = found.filter(|of| of.mean.len() == labels && of.std.len() == labels);
        head.standardizer = Some(found.ok_or_else(|| {
            not_trained(format!("it does not say how the numbers of `{name}` were standardised"))
        })?);
    }
    let fitted = notes.get("fitted").map(|text| text.clone().into_bytes());
    let files = fitted.map(|fitted| (Fitted::FILE.to_owned(), fitted)).into_iter().collect();
    let tag = StateTag { epoch: 0, step: 0, batch: 0, reason: "weights".to_owned() };
    let state = SavedState { folder: file.to_owned(), tag, files };
    let mut warnings = initial.map(|initial| initial.warnings()).unwrap_or_default();
    warnings.extend(other_images(&notes, &plan.data.image, file));
    Ok((Trained { inference, state }, warnings))
}

/// What of the images that the model of `file` was trained on, as its metadata say, is not so in `image`.
fn other_images(
    notes: &BTreeMap<String, String>,
    image: &ImageConfig,
    file: &Path,
) -> Option<String> {
    let trained: Value = serde_json::from_str(notes.get(PREPROCESSING)?).ok()?;
    let now = serde_json::json!(image);
    let other = now.as_object()?.iter().filter_map(|(key, now)| {
        let trained = trained.get(key).filter(|trained| *trained != now)?;
        Some(format!("`{key}` was {trained}, is {now}"))
    });
    let other: Vec<String> = other.collect();
    let file = file.display();
    (!other.is_empty())
        .then(|| format!("{file} was trained on images prepared otherwise: {}", other.join(", ")))
}
