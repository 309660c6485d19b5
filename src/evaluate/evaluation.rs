//! What an evaluation found, in the form that `--json` prints. Keys may be added, not renamed.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Confusion, ConfusionMatrix, DecisionMeasures, Estimate, Reliability, Undefined};
use crate::model::Task;

/// All heads over all images, and over parts of them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Evaluation {
    /// By the head's name.
    pub heads: BTreeMap<String, HeadEvaluation>,
    /// By what the images are grouped by, such as `sex`.
    pub subgroups: BTreeMap<String, Vec<SubgroupEvaluation>>,
}

/// One group of images.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SubgroupEvaluation {
    /// What its images have in common.
    pub group: String,
    /// How many they are.
    pub images: usize,
    /// Of how many patients.
    pub patients: usize,
    /// By the head's name.
    pub heads: BTreeMap<String, HeadEvaluation>,
}

/// One head. What its task does not have is left out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HeadEvaluation {
    /// What its outputs mean.
    pub task: Task,
    /// Images that were predicted, whether a label is known or not.
    pub images: usize,
    /// Their patients.
    pub patients: usize,
    /// Area under the receiver operating characteristic; one-versus-rest for classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auroc: Option<MetricTable>,
    /// Average precision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auprc: Option<MetricTable>,
    /// Expected calibration error; for classes that of the decided class, with no labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ece: Option<MetricTable>,
    /// Brier score; for classes summed over them, with no labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub brier: Option<MetricTable>,
    /// The curve of each label; for classes one of the decided class, under `top-1`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub reliability: BTreeMap<String, Reliability>,
    /// By label, then by the name of the criterion.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub operating_points: BTreeMap<String, BTreeMap<String, PointEvaluation>>,
    /// The share of images given their own class (top-1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<Estimate>,
    /// Which class was given how often to images of which.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confusion_matrix: Option<ConfusionMatrix>,
    /// Mean absolute error, in the unit of the label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mae: Option<MetricTable>,
    /// Root of the mean squared error, in the unit of the label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rmse: Option<MetricTable>,
    /// Coefficient of determination.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r2: Option<MetricTable>,
}

/// A metric of a head and of each of its labels.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MetricTable {
    /// The unweighted mean over the labels where it is defined; `None` where it is nowhere.
    pub mean: Option<f64>,
    /// The lower end of the mean's 95% interval, by the bootstrap over patients.
    pub low: Option<f64>,
    /// The upper end.
    pub high: Option<f64>,
    /// Why there is no mean, or no interval of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undefined: Option<Undefined>,
    /// By label or class.
    pub labels: BTreeMap<String, Estimate>,
}

/// A measure that a head may have for each of its labels.
#[derive(Debug, Clone, Copy)]
pub struct Measure {
    /// Its key in JSON.
    pub key: &'static str,
    /// What it is called beside the values.
    pub title: &'static str,
    /// The head of a narrow column.
    pub column: &'static str,
    of: fn(&HeadEvaluation) -> Option<&MetricTable>,
}

/// All of them, in the order in which they are shown.
pub const MEASURES: [Measure; 7] = [
    Measure { key: "auroc", title: "AUROC", column: "AUROC (95%)", of: |head| head.auroc.as_ref() },
    Measure { key: "auprc", title: "AUPRC", column: "AUPRC (95%)", of: |head| head.auprc.as_ref() },
    Measure { key: "brier", title: "Brier score", column: "Brier", of: |head| head.brier.as_ref() },
    Measure {
        key: "ece",
        title: "calibration error (ECE)",
        column: "ECE",
        of: |head| head.ece.as_ref(),
    },
    Measure { key: "mae", title: "MAE", column: "MAE (95%)", of: |head| head.mae.as_ref() },
    Measure { key: "rmse", title: "RMSE", column: "RMSE (95%)", of: |head| head.rmse.as_ref() },
    Measure { key: "r2", title: "R²", column: "R2 (95%)", of: |head| head.r2.as_ref() },
];

impl HeadEvaluation {
    /// The measures that it has.
    pub fn measures(&self) -> impl Iterator<Item = (Measure, &MetricTable)> {
        MEASURES.into_iter().filter_map(|measure| Some((measure, (measure.of)(self)?)))
    }
}

impl MetricTable {
    /// The mean over the labels, with its interval.
    pub fn mean(&self) -> Estimate {
        Estimate { value: self.mean, low: self.low, high: self.high, undefined: self.undefined }
    }

    pub(super) fn new(mean: Estimate, labels: BTreeMap<String, Estimate>) -> Self {
        let Estimate { value, low, high, undefined } = mean;
        Self { mean: value, low, high, undefined, labels }
    }
}

/// What a label's decisions at one threshold are worth.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PointEvaluation {
    /// The probability from which up an image is decided positive.
    pub threshold: Option<f64>,
    /// Why there is no threshold, or nothing to count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undefined: Option<String>,
    /// The counts.
    #[serde(flatten)]
    pub confusion: Option<Confusion>,
    /// The measures taken from them.
    #[serde(flatten)]
    pub measures: Option<DecisionMeasures>,
}
