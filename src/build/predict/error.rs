//! Why images could not be predicted.

use std::path::PathBuf;

use burn::tensor::ExecutionError;

use crate::data::DataError;
use crate::evaluate::{FittedError, PredictionError, UnknownPoint};
use crate::run::OutputsError;
use crate::train::{NoFeatureMap, TrainError};

/// Why images could not be predicted.
#[derive(Debug, thiserror::Error)]
pub enum PredictError {
    /// Models of an ensemble have different heads.
    #[error(
        "the model in {} has other heads or labels than the first, so their predictions have no mean",
        state.display()
    )]
    OtherHeads {
        /// Its state.
        state: PathBuf,
    },
    /// There is only one way to look at an image.
    #[error(
        "--tta looks at images mirrored or shifted where training did, and the run's [data.augment] has \
         neither `horizontal_flip` nor `translate`"
    )]
    NoViews,
    /// There is nothing to fit sets of decisions to.
    #[error(
        "{} has no validation.csv, to which sets of decisions are fitted\nStates have it that were saved \
         at the end of an epoch, such as `best`; files of weights have none.",
        state.display()
    )]
    NoValidation {
        /// The state.
        state: PathBuf,
    },
    /// The models were validated on different images, so that there are none to fit the ensemble's sets to.
    #[error(
        "--conformal fits the sets of an ensemble to validation images that no model was trained on, and \
         these models were validated on different images, as the folds of a run are\nName one of them: \
         {} has sets of its own.",
        run.display()
    )]
    NoCommonValidation {
        /// The run of the first.
        run: PathBuf,
    },
    /// The validation images cannot be looked at in several views.
    #[error(
        "--conformal with --tta fits sets to the validation images, looked at in the same views, and these \
         cannot be opened: {source}\nSay with --set where they are, or leave out --tta: then the outputs that \
         are saved with the state suffice."
    )]
    ValidationImages {
        /// Why.
        source: DataError,
    },
    /// The data of a run have changed.
    #[error(
        "--conformal with --tta fits sets to the validation images, looked at in the same views, and today's \
         are not those of the validation.csv in {}: {now} images, of which {known} stand there\nName the data \
         that the run had with --set, or leave out --tta.",
        state.display()
    )]
    OtherValidation {
        /// The state.
        state: PathBuf,
        /// How many there are today.
        now: usize,
        /// How many of these the state was validated on.
        known: usize,
    },
    /// A model could not be asked about its validation images.
    #[error(transparent)]
    Outputs(#[from] OutputsError),
    /// A model of an ensemble has neither what was fitted nor what to fit it to.
    #[error(
        "{} has no validation.csv and no fitted.json, without which the ensemble cannot be calibrated and \
         decided as `trainer eval` does it\nName a state that was saved at the end of an epoch, such as \
         `best`, in its place, or leave it out.",
        state.display()
    )]
    UnfittedMember {
        /// The state.
        state: PathBuf,
    },
    /// There is nothing to fit calibration and thresholds to.
    #[error(
        "{} has no validation.csv, to which calibration and thresholds could be fitted as \
         `--set evaluate.…` asks\nLeave that out, or name a state that was saved at the end of an epoch, \
         such as `best`. `trainer eval` with the same --set fits anew without the file.",
        state.display()
    )]
    NotRefitted {
        /// The state.
        state: PathBuf,
    },
    /// A label that heatmaps are asked for is not there.
    #[error("no head has a label `{label}`; there are {known}")]
    NoLabel {
        /// What was asked for.
        label: String,
        /// The labels that there are.
        known: String,
    },
    /// No heatmap can be made.
    #[error(transparent)]
    NoFeatureMap(#[from] NoFeatureMap),
    /// The operating point asked for was not fitted.
    #[error(transparent)]
    Point(#[from] UnknownPoint),
    /// What was fitted on validation cannot be read.
    #[error(transparent)]
    Fitted(#[from] FittedError),
    /// The validation outputs cannot be read.
    #[error(transparent)]
    Validation(#[from] PredictionError),
    /// Images cannot be loaded.
    #[error(transparent)]
    Data(#[from] DataError),
    /// Memory does not suffice, or the device failed.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// The device failed.
    #[error("the device failed: {0:?}")]
    Device(#[from] ExecutionError),
}
