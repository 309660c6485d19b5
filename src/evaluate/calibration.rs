//! From a head's outputs to its probabilities.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::platt::sigmoid;
use super::{Platt, Temperature, Undefined};
use crate::metric::HeadPredictions;
use crate::model::Task;

/// What is fitted to a head's outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CalibrationMethod {
    /// One number for the head; for any head but regression.
    Temperature,
    /// Two numbers for each label; for `multilabel` and `binary` heads.
    Platt,
}

/// What turns a head's outputs into probabilities, fitted on validation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Calibration {
    /// All logits are divided by it.
    Temperature(Temperature),
    /// By label; a label that is not there keeps its probabilities.
    Platt(BTreeMap<String, Platt>),
}

/// What came of a fit: nothing, where it is undefined for all labels, and the reason by label.
pub(super) type Fit = (Option<Calibration>, BTreeMap<String, Undefined>);

impl Calibration {
    /// Fits a head's outputs by `method`. Labels that it is undefined for are told with the reason,
    /// and keep their probabilities.
    pub(super) fn fit(method: CalibrationMethod, predictions: &HeadPredictions) -> Fit {
        match (method, predictions.task) {
            (_, Task::Regression) => refused(predictions, "calibration", "regression"),
            (CalibrationMethod::Platt, Task::Multiclass) => {
                refused(predictions, "Platt scaling", "multiclass")
            }
            (CalibrationMethod::Platt, _) => fit_platt(predictions),
            (CalibrationMethod::Temperature, _) => match fit_temperature(predictions) {
                Ok(temperature) => (Some(Self::Temperature(temperature)), BTreeMap::new()),
                Err(reason) => (None, for_all(predictions, reason)),
            },
        }
    }

    /// The probabilities of `outputs`, `[images, labels]`: their sigmoid, or the softmax of each row for
    /// a `multiclass` head, after `calibration`. For `regression` they are the outputs themselves.
    pub fn probabilities(
        calibration: Option<&Self>,
        task: Task,
        labels: &[String],
        outputs: &[f32],
    ) -> Vec<f64> {
        let scale = |logit: f32| match calibration {
            Some(Self::Temperature(temperature)) => temperature.apply(f64::from(logit)),
            _ => f64::from(logit),
        };
        let rows = outputs.chunks_exact(labels.len().max(1));
        match task {
            Task::Regression => outputs.iter().map(|&output| f64::from(output)).collect(),
            Task::Multiclass => {
                rows.flat_map(|row| softmax(row.iter().map(|&logit| scale(logit)))).collect()
            }
            Task::Multilabel | Task::Binary => {
                let platt: Vec<Option<&Platt>> = match calibration {
                    Some(Self::Platt(of)) => labels.iter().map(|label| of.get(label)).collect(),
                    _ => vec![None; labels.len()],
                };
                let probability = |(&logit, platt): (&f32, &Option<&Platt>)| match platt {
                    Some(platt) => platt.apply(f64::from(logit)),
                    None => sigmoid(scale(logit)),
                };
                rows.flat_map(|row| row.iter().zip(&platt).map(probability)).collect()
            }
        }
    }
}

fn for_all(predictions: &HeadPredictions, reason: Undefined) -> BTreeMap<String, Undefined> {
    predictions.labels.iter().map(|label| (label.clone(), reason)).collect()
}

fn refused(predictions: &HeadPredictions, method: &'static str, task: &'static str) -> Fit {
    (None, for_all(predictions, Undefined::NotForTask { method, task }))
}

fn fit_platt(predictions: &HeadPredictions) -> Fit {
    let (mut fitted, mut undefined) = (BTreeMap::new(), BTreeMap::new());
    for (label, examples) in predictions.labels.iter().zip(predictions.examples()) {
        let (logits, positive): (Vec<f64>, Vec<bool>) =
            examples.iter().map(|example| (example.score, example.positive)).unzip();
        match Platt::fit(&logits, &positive) {
            Ok(platt) => drop(fitted.insert(label.clone(), platt)),
            Err(reason) => drop(undefined.insert(label.clone(), reason)),
        }
    }
    ((!fitted.is_empty()).then_some(Calibration::Platt(fitted)), undefined)
}

/// One temperature for all known labels of the head together.
fn fit_temperature(predictions: &HeadPredictions) -> Result<Temperature, Undefined> {
    let (mut logits, mut truth) = (Vec::new(), Vec::new());
    if predictions.task == Task::Multiclass {
        let rows = predictions.outputs.chunks_exact(predictions.labels.len().max(1));
        let targets = predictions.targets.values.iter().zip(&predictions.targets.mask);
        for (row, (&target, _)) in rows.zip(targets).filter(|(_, (_, mask))| **mask != 0.0) {
            logits.extend(row.iter().map(|&logit| f64::from(logit)));
            truth.push(target as usize);
        }
    } else {
        for example in predictions.examples().iter().flatten() {
            logits.extend([0.0, example.score]);
            truth.push(usize::from(example.positive));
        }
    }
    Temperature::fit(&logits, &truth)
}

fn softmax(logits: impl Iterator<Item = f64> + Clone) -> Vec<f64> {
    let greatest = logits.clone().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = logits.map(|logit| (logit - greatest).exp()).collect();
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / sum).collect()
}
