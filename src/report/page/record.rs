//! What a run folder tells, as far as pages show it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::data::BadImage;
use crate::metric::INTERVAL;
use crate::report::{EpochValues, HeadCounts, HeadLabels, Values};

/// A run as its folder tells it: `config.toml` and the lines of `metrics.jsonl`.
#[derive(Debug, Clone, Default)]
pub struct Record {
    /// The resolved configuration, as TOML.
    pub config: String,
    /// What the run told when it last started.
    pub start: Start,
    /// Every epoch that has ended.
    pub epochs: Vec<Epoch>,
    /// Step, and the learning rate that it was taken with.
    pub learning_rates: Vec<(usize, f64)>,
    /// How far it has come.
    pub progress: Progress,
    /// Why validation metrics of the best and of the last epoch are undefined, by their names.
    pub undefined: BTreeMap<String, String>,
    /// Batches whose step was left out.
    pub skipped_steps: Vec<SkippedStep>,
    /// Images that could not be read, each once.
    pub skipped_images: Vec<SkippedImage>,
    /// What else a person should know, each sentence once.
    pub warnings: Vec<String>,
}

/// How far a run has come.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Progress {
    /// It has not told that it has ended.
    #[default]
    UnderWay,
    /// A signal of this name has stopped it.
    Stopped(String),
    /// It has ended after so many seconds of training, early or not.
    Ended {
        /// Whether early stopping ended it.
        early: bool,
        /// Seconds of training and evaluation.
        seconds: f64,
    },
}

/// A folder that no page can be made of.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// A file that the system refuses to read.
    #[error("cannot read {}: {reason}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What the system says.
        reason: String,
    },
    /// A line that is not one of a run's.
    #[error("{}, line {line}: {reason}", file.display())]
    Malformed {
        /// The file.
        file: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
}

#[derive(Debug, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Line {
    Start(Box<Start>),
    Epoch(Box<Epoch>),
    Step {
        step: usize,
        learning_rate: Option<f64>,
    },
    SkippedStep(SkippedStep),
    SkippedImages {
        images: Vec<SkippedImage>,
    },
    OutOfMemory {
        epoch: usize,
        step: usize,
        advice: String,
    },
    DamagedState {
        folder: String,
        reason: String,
    },
    Warning {
        message: String,
    },
    Interrupted {
        signal: String,
    },
    End(Box<End>),
    #[serde(other)]
    Other,
}

/// The line `start`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Start {
    pub name: String,
    pub version: Option<String>,
    pub device: String,
    pub parameters: usize,
    pub train_images: usize,
    pub validation_images: usize,
    pub epochs: usize,
    pub steps_per_epoch: usize,
    pub memory: Option<StartMemory>,
    pub heads: Vec<HeadLabels>,
    pub data: Option<Fingerprint>,
    pub labels: BTreeMap<String, HeadCounts>,
}

/// How steps are taken.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct StartMemory {
    pub micro_batch: usize,
    pub checkpointing: String,
    pub offload: String,
    pub budget: u64,
    pub recompute_percent: f64,
}

/// What the run learns from.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Fingerprint {
    pub split: String,
    pub labels: String,
}

/// The line `epoch`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Epoch {
    pub epoch: usize,
    pub step: usize,
    pub train: Values,
    pub val: Values,
    pub learning_rate: Option<f64>,
    pub seconds: Option<f64>,
    pub images_per_second: Option<f64>,
    pub memory: Memory,
    pub best: bool,
    pub skipped_steps: usize,
    pub watched: Option<Watched>,
    pub undefined: BTreeMap<String, String>,
}

/// Bytes of device memory.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub struct Memory {
    pub live: Option<u64>,
    pub peak: Option<u64>,
    pub reserved: Option<u64>,
    pub smi: Option<u64>,
    pub predicted_peak: Option<u64>,
}

/// The metric that the best epoch is chosen by.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Watched {
    pub metric: String,
    pub value: Option<f64>,
}

/// A batch whose step was left out.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct SkippedStep {
    pub epoch: usize,
    pub step: usize,
    pub reason: String,
}

/// An image that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct SkippedImage {
    pub path: String,
    pub table: String,
    pub line: u64,
    pub reason: String,
}

impl From<&BadImage> for SkippedImage {
    fn from(image: &BadImage) -> Self {
        let [path, table] = [&image.path, &image.table].map(|path| path.display().to_string());
        Self { path, table, line: image.line, reason: image.reason.clone() }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct End {
    seconds: Option<f64>,
    reason: String,
    undefined: BTreeMap<String, String>,
}

impl Epoch {
    /// Its number and values, as tables of epochs show them.
    pub fn values(&self) -> EpochValues {
        EpochValues { epoch: self.epoch, train: self.train.clone(), val: self.val.clone() }
    }
}

impl Watched {
    /// The 95% interval of its value in `epoch`, where it has one.
    pub fn interval(&self, epoch: &Epoch) -> Option<[f64; 2]> {
        let (head, metric) = self.metric.strip_prefix("val/")?.split_once('/')?;
        interval(epoch, head, metric)
    }
}

/// The 95% interval of a head's metric in `epoch`, where it has one: that of AUROC.
pub fn interval(epoch: &Epoch, head: &str, metric: &str) -> Option<[f64; 2]> {
    let end = |name: &str| epoch.val.get(&format!("{head}/{name}")).copied().flatten();
    let [low, high] = (metric == "auroc").then_some(INTERVAL)?.map(end);
    Some([low?, high?])
}

impl Record {
    /// Reads the run folder at `folder`. A line that has no end yet is being written, and left out.
    ///
    /// # Errors
    /// When `config.toml` or `metrics.jsonl` cannot be read, or a line is no event of a run.
    pub fn read(folder: &Path) -> Result<Self, RecordError> {
        let text = |name: &str| {
            let file = folder.join(name);
            let unreadable = |error: std::io::Error| error.to_string();
            let read = fs::read(&file).map_err(unreadable);
            let text = read.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            text.map_err(|reason| RecordError::Unreadable { file, reason })
        };
        let mut record = Self { config: text("config.toml")?, ..Self::default() };
        let metrics = text("metrics.jsonl")?;
        for (number, line) in metrics.split_inclusive('\n').enumerate() {
            let Some(line) = line.strip_suffix('\n') else { break };
            let line = serde_json::from_str(line).map_err(|error| RecordError::Malformed {
                file: folder.join("metrics.jsonl"),
                line: number + 1,
                reason: error.to_string(),
            })?;
            record.take(line);
        }
        let mut told = BTreeSet::new();
        record.warnings.retain(|warning| told.insert(warning.clone()));
        record.skipped_images.sort();
        record.skipped_images.dedup();
        Ok(record)
    }

    fn take(&mut self, line: Line) {
        match line {
            Line::Start(start) => {
                self.start = *start;
                self.progress = Progress::UnderWay;
            }
            Line::Epoch(epoch) => {
                self.undefined.clone_from(&epoch.undefined);
                self.epochs.push(*epoch);
            }
            Line::Step { step, learning_rate } => {
                self.learning_rates.extend(learning_rate.map(|rate| (step, rate)));
            }
            Line::SkippedStep(skipped) => self.skipped_steps.push(skipped),
            Line::SkippedImages { images } => self.skipped_images.extend(images),
            Line::OutOfMemory { epoch, step, advice } => {
                let place = format!("Out of memory in epoch {epoch}, step {step}: ");
                self.warnings.push(place + &advice);
            }
            Line::DamagedState { folder, reason } => {
                self.warnings.push(format!("The saved state {folder} was not used: {reason}"));
            }
            Line::Warning { message } => self.warnings.push(message),
            Line::Interrupted { signal } => self.progress = Progress::Stopped(signal),
            Line::End(end) => {
                self.undefined = end.undefined;
                let (early, seconds) = (end.reason == "early_stopping", end.seconds.unwrap_or(0.0));
                self.progress = Progress::Ended { early, seconds };
            }
            Line::Other => {}
        }
    }

    /// Seconds of a step on `batch` images, by the speed of the last epoch; NaN where none is known.
    pub fn seconds_a_step(&self, batch: usize) -> f64 {
        let speed = self.epochs.iter().rev().find_map(|epoch| epoch.images_per_second);
        speed.map_or(f64::NAN, |speed| batch as f64 / speed)
    }

    /// The best epoch, where the metric watched was ever defined.
    pub fn best(&self) -> Option<&Epoch> {
        self.epochs.iter().rev().find(|epoch| epoch.best)
    }
}
