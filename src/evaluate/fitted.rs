//! What is fitted on validation and travels with the weights: calibration and thresholds.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Calibration, CalibrationMethod, Criterion, Temperature};
use crate::metric::HeadPredictions;
use crate::model::Task;

/// The form of the file that this program writes and reads.
const VERSION: u32 = 1;

/// Calibration and operating points of every head.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fitted {
    version: u32,
    /// By the head's name.
    pub heads: BTreeMap<String, FittedHead>,
}

/// Those of one head.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FittedHead {
    /// Applied to outputs before anything else; nothing where none was asked for or none is defined.
    pub calibration: Option<Calibration>,
    /// Why labels keep the probabilities that the model gave, by label.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub uncalibrated: BTreeMap<String, String>,
    /// The thresholds of each label, for `multilabel` and `binary` heads.
    pub operating_points: BTreeMap<String, Vec<FittedPoint>>,
}

/// A threshold, on calibrated probabilities.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FittedPoint {
    /// How it was chosen.
    pub criterion: Criterion,
    /// The probability from which up an image is decided positive; `None` where there is none.
    pub threshold: Option<f64>,
    /// Why there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undefined: Option<String>,
}

/// A file of calibration and operating points that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FittedError {
    /// It is no such file.
    #[error("`{}`, line {}, column {}: {}", file.display(), source.line(), source.column(), without_place(source))]
    Malformed {
        /// The file.
        file: PathBuf,
        /// What the parser found.
        source: serde_json::Error,
    },
    /// It was written by another version of this program.
    #[error("`{}` has version {found}, and this program reads version {VERSION}", file.display())]
    Version {
        /// The file.
        file: PathBuf,
        /// Its version.
        found: u32,
    },
    /// A number that means nothing.
    #[error("`{}`, `{key}`: {value} is not {expected}", file.display())]
    BadNumber {
        /// The file.
        file: PathBuf,
        /// Where the number stands.
        key: String,
        /// The number.
        value: f64,
        /// What may stand there.
        expected: &'static str,
    },
}

/// What the parser says, without the place, which stands before it.
fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or(text.as_str(), |(said, _)| said).to_owned()
}

impl Fitted {
    /// Its name in a saved state.
    pub const FILE: &str = "fitted.json";

    /// That of these heads, by name.
    pub fn new(heads: BTreeMap<String, FittedHead>) -> Self {
        Self { version: VERSION, heads }
    }

    /// The file's text.
    pub fn to_json(&self) -> String {
        let text = serde_json::to_string_pretty(self).unwrap_or_default();
        text + "\n"
    }

    /// Reads the text of `file`, which is only named in errors.
    ///
    /// # Errors
    /// A text that is not such a file's, with line and column, or a number out of its range.
    pub fn from_json(text: &str, file: &Path) -> Result<Self, FittedError> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let malformed = |source| FittedError::Malformed { file: file.to_owned(), source };
        let Versioned { version } = serde_json::from_str(text).map_err(malformed)?;
        if version != VERSION {
            return Err(FittedError::Version { file: file.to_owned(), found: version });
        }
        let fitted: Self = serde_json::from_str(text).map_err(malformed)?;
        match fitted.fault() {
            None => Ok(fitted),
            Some((key, value, expected)) => {
                Err(FittedError::BadNumber { file: file.to_owned(), key, value, expected })
            }
        }
    }

    /// The same for outputs that are calibrated already: thresholds alone.
    pub fn of_calibrated(&self) -> Self {
        let mut fitted = self.clone();
        fitted.heads.values_mut().for_each(|head| head.calibration = None);
        fitted
    }

    /// The first number out of its range: where it is, what it is and what may stand there.
    fn fault(&self) -> Option<(String, f64, &'static str)> {
        let share = "a number from 0 to 1";
        for (name, head) in &self.heads {
            if let Some(Calibration::Temperature(Temperature(temperature))) = head.calibration
                && temperature <= 0.0
            {
                let key = format!("heads.{name}.calibration.temperature");
                return Some((key, temperature, "greater than 0"));
            }
            for (label, points) in &head.operating_points {
                for point in points {
                    let key = |what| format!("heads.{name}.operating_points.{label}.{what}");
                    let wanted = match point.criterion {
                        Criterion::Youden => None,
                        Criterion::Sensitivity(share)
                        | Criterion::Specificity(share)
                        | Criterion::Threshold(share) => Some(share),
                    };
                    for (what, value) in [("criterion", wanted), ("threshold", point.threshold)] {
                        if let Some(value) = value.filter(|value| !(0.0..=1.0).contains(value)) {
                            return Some((key(what), value, share));
                        }
                    }
                }
            }
        }
        None
    }
}

impl FittedHead {
    /// Fits a head on validation: the calibration by `method` first, where one is wanted, then the
    /// threshold of each criterion and label on the probabilities that follow. A `multiclass` head
    /// gets no thresholds, since its greatest output is decided, and `regression` gets nothing.
    pub fn fit(
        predictions: &HeadPredictions,
        method: Option<CalibrationMethod>,
        criteria: &[Criterion],
    ) -> Self {
        let (calibration, undefined) = match method {
            Some(method) => Calibration::fit(method, predictions),
            None => (None, BTreeMap::new()),
        };
        let uncalibrated =
            undefined.into_iter().map(|(label, reason)| (label, reason.to_string())).collect();
        let mut fitted = Self { calibration, uncalibrated, operating_points: BTreeMap::new() };
        if matches!(predictions.task, Task::Multiclass | Task::Regression) {
            return fitted;
        }
        let labels = &predictions.labels;
        let probabilities = Calibration::probabilities(
            fitted.calibration.as_ref(),
            predictions.task,
            labels,
            &predictions.outputs,
        );
        for (place, examples) in predictions.examples().iter().enumerate() {
            let known = examples.iter();
            let (of_label, positive): (Vec<f64>, Vec<bool>) = known
                .map(|one| (probabilities[one.image * labels.len() + place], one.positive))
                .unzip();
            let point = |criterion: &Criterion| {
                let threshold = criterion.fit(&of_label, &positive);
                FittedPoint {
                    criterion: *criterion,
                    threshold: threshold.ok(),
                    undefined: threshold.err().map(|reason| reason.to_string()),
                }
            };
            let points = criteria.iter().map(point).collect();
            fitted.operating_points.insert(labels[place].clone(), points);
        }
        fitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> String {
        Fitted::from_json(text, Path::new("fitted.json")).expect_err("wrong").to_string()
    }

    #[test]
    fn a_file_that_is_none_is_refused_at_its_place() {
        insta::assert_snapshot!(read("{\"version\": 1,\n \"heads\": 3}"), @"`fitted.json`, line 2, column 11: invalid type: integer `3`, expected a map");
        insta::assert_snapshot!(read("{\"version\": 2, \"more\": 1}"), @"`fitted.json` has version 2, and this program reads version 1");
        insta::assert_snapshot!(read("{\"heads\": {}}"), @"`fitted.json`, line 1, column 13: missing field `version`");
        for (calibration, points) in [
            (r#"{"temperature":0}"#, "{}"),
            (r#"{"temperature":-2.5}"#, "{}"),
            ("null", r#"{"Edema":[{"criterion":"youden","threshold":1.5}]}"#),
            ("null", r#"{"Edema":[{"criterion":{"sensitivity":7},"threshold":0.5}]}"#),
        ] {
            let head = format!(r#"{{"calibration":{calibration},"operating_points":{points}}}"#);
            let text = format!(r#"{{"version":1,"heads":{{"findings":{head}}}}}"#);
            assert!(read(&text).contains("is not"), "{}", read(&text));
        }
    }
}
