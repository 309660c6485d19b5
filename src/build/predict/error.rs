//! Why images could not be predicted.

use std::path::PathBuf;

use burn::tensor::ExecutionError;

use crate::data::DataError;
use crate::evaluate::{FittedError, PredictionError, UnknownPoint};
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
         at the end of an epoch, such as `best`.",
        state.display()
    )]
    NoValidation {
        /// The state.
        state: PathBuf,
    },
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
