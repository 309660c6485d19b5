//! What cross-validation has found: the validation metrics of every fold, their mean and how far they
//! lie apart.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::folder::SweepError;
use crate::run::METRICS_FILE;

/// The folds that were trained so far, in the form that `folds.json` has. Keys may be added, not renamed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CrossValidation {
    /// The folder that the folders of the folds are in.
    pub run: PathBuf,
    /// How many folds there are.
    pub folds: usize,
    /// The metric that decided which epoch is the best, such as `val/loss`.
    pub metric: String,
    /// Those that were trained, in their order.
    pub rows: Vec<FoldRow>,
    /// Of each validation metric, what the folds have of it.
    pub metrics: BTreeMap<String, Spread>,
}

/// A fold that was trained.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FoldRow {
    /// Its number, counted from 1.
    pub fold: usize,
    /// Its run folder.
    pub run: PathBuf,
    /// Epochs trained.
    pub epochs: usize,
    /// The best epoch, counted from 1, which `best` was saved after; the last where no epoch was best.
    pub epoch: usize,
    /// Seconds of training and evaluation.
    pub seconds: f64,
    /// The validation metrics of that epoch.
    pub val: BTreeMap<String, Option<f64>>,
    /// The metric that decided which epoch that is.
    #[serde(skip)]
    pub metric: Option<String>,
}

/// A metric over the folds where it has a value.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// The standard deviation, by n − 1; none of a single value.
    pub std: Option<f64>,
    /// How many folds have a value.
    pub folds: usize,
}

impl Spread {
    /// Of these values; none where there is none.
    fn of(values: &[f64]) -> Option<Self> {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
        let std = (values.len() > 1).then(|| (squares / (count - 1.0)).sqrt());
        (!values.is_empty()).then_some(Self { mean, std, folds: values.len() })
    }
}

/// A line of `metrics.jsonl`, as far as it is needed.
#[derive(Debug, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Line {
    End {
        epochs: usize,
        seconds: f64,
        best: Option<Best>,
        last: Last,
    },
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
struct Best {
    metric: String,
    epoch: usize,
    val: BTreeMap<String, Option<f64>>,
}

#[derive(Debug, Deserialize)]
struct Last {
    epoch: usize,
    val: BTreeMap<String, Option<f64>>,
}

impl FoldRow {
    /// The row of fold `fold`, whose run in the folder `run` has ended.
    ///
    /// # Errors
    /// When its events cannot be read, or do not tell of an end.
    pub(super) fn read(fold: usize, run: &Path) -> Result<Self, SweepError> {
        let file = run.join(METRICS_FILE);
        let text = std::fs::read_to_string(&file).map_err(SweepError::at("read", &file))?;
        let end = text.lines().rev().find_map(|line| match serde_json::from_str(line).ok()? {
            Line::End { epochs, seconds, best, last } => Some((epochs, seconds, best, last)),
            Line::Other => None,
        });
        let lost = || {
            SweepError::at("find the end of the run in", &file)(
                std::io::ErrorKind::InvalidData.into(),
            )
        };
        let (epochs, seconds, best, last) = end.ok_or_else(lost)?;
        let (metric, epoch, val) = match best {
            Some(Best { metric, epoch, val }) => (Some(metric), epoch, val),
            None => (None, last.epoch, last.val),
        };
        Ok(Self { fold, run: run.to_owned(), epochs, epoch, seconds, val, metric })
    }
}

impl CrossValidation {
    /// The file, in the folder of the folds, that it is written to.
    pub const FILE: &str = "folds.json";

    /// What `rows` have found, of a run in the folder `run` with so many folds.
    pub fn new(run: &Path, folds: usize, rows: Vec<FoldRow>) -> Self {
        let mut values: BTreeMap<&String, Vec<f64>> = BTreeMap::new();
        for (metric, value) in rows.iter().flat_map(|row| &row.val) {
            values.entry(metric).or_default().extend(*value);
        }
        let spread =
            |(metric, values): (&String, Vec<f64>)| Some((metric.clone(), Spread::of(&values)?));
        let metrics = values.into_iter().filter_map(spread).collect();
        let metric = rows.iter().find_map(|row| row.metric.clone());
        let metric = metric.unwrap_or_else(|| "val/loss".to_owned());
        Self { run: run.to_owned(), folds, metric, rows, metrics }
    }

    /// As JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}

#[cfg(test)]
impl CrossValidation {
    /// What three folds have found; the second has no AUROC.
    pub(crate) fn of_three_folds() -> Self {
        let row = |(fold, auroc, loss): (usize, Option<f64>, f64)| {
            let val =
                [("findings/auroc", auroc), ("loss", Some(loss)), ("findings/auroc/Edema", auroc)];
            FoldRow {
                fold,
                run: format!("runs/xray/fold-{fold}").into(),
                epochs: 3,
                epoch: fold,
                seconds: 61.0,
                val: val.map(|(name, value)| (name.to_owned(), value)).into(),
                metric: Some("val/findings/auroc".to_owned()),
            }
        };
        let rows = [(1, Some(0.75), 0.5), (2, None, 0.25), (3, Some(0.8), 0.75)];
        Self::new(Path::new("runs/xray"), 3, rows.map(row).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `statistics.mean` and `statistics.stdev` of Python.
    #[test]
    fn means_and_deviations_are_over_the_folds_that_have_a_value() {
        let found = CrossValidation::of_three_folds();
        let auroc = found.metrics["findings/auroc"];
        assert_eq!((auroc.folds, auroc.mean), (2, 0.775));
        assert!((auroc.std.expect("two values") - 0.035_355_339_059_327_41).abs() < 1e-15);
        assert_eq!(found.metrics["loss"], Spread { mean: 0.5, std: Some(0.25), folds: 3 });
        assert_eq!(Spread::of(&[2.0]), Some(Spread { mean: 2.0, std: None, folds: 1 }));
        assert_eq!(Spread::of(&[]), None);
    }
}
