//! The whole configuration, composed from the families' parts.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::choice::Choice;
use crate::data::DataConfig;
use crate::memory::MemoryConfig;
use crate::model::{HeadConfig, ModelTable};
use crate::optim::{EmaConfig, OptimizerConfig, ScheduleConfig};

/// An experiment, as the user wrote it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The run's name, folder and seed.
    pub run: RunConfig,
    /// The device it runs on.
    #[serde(default)]
    pub device: DeviceConfig,
    /// Its images and labels.
    pub data: DataConfig,
    /// The network below the heads, and the weights that it starts from.
    pub model: ModelTable,
    /// What is predicted; at least one.
    pub heads: Vec<HeadConfig>,
    /// How it is trained.
    pub train: TrainConfig,
    /// How a training step fits in memory.
    #[serde(default)]
    pub memory: MemoryConfig,
}

/// `[run]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunConfig {
    /// Names the run folder, `<output>/<name>/`: letters, digits, `.`, `_` and `-`.
    pub name: String,
    /// The folder of all runs. Paths are relative to the working directory, not to this file.
    #[serde(default = "default_output")]
    pub output: PathBuf,
    /// All randomness of the run follows from it.
    #[serde(default)]
    pub seed: u64,
    /// Records the loss of every so many-th step in `metrics.jsonl` and TensorBoard; 0 for never.
    #[serde(default = "default_log_every")]
    pub log_every: usize,
    /// When the state is saved besides at the end of each epoch.
    #[serde(default)]
    pub save: SaveConfig,
}

fn default_output() -> PathBuf {
    "checkpoints".into()
}

fn default_log_every() -> usize {
    50
}

/// `run.save`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SaveConfig {
    /// Saves inside an epoch whenever this many minutes have passed; 0 for never.
    pub every_minutes: f64,
    /// Saves inside an epoch every so many steps; 0 for never.
    pub every_steps: usize,
    /// Saved states kept besides `last` and `best`, to fall back on; at least 1.
    pub keep: usize,
}

impl Default for SaveConfig {
    fn default() -> Self {
        Self { every_minutes: 15.0, every_steps: 0, keep: 2 }
    }
}

/// `[device]`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DeviceConfig {
    /// `"auto"` (the first GPU, else the CPU), `"cpu"`, `"cuda"` (the first GPU) or `"cuda:1"`.
    #[serde(rename = "use")]
    pub device: DeviceUse,
}

/// One device, or several that share the work (which is refused so far, by a message of its own).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum DeviceUse {
    /// One device.
    One(String),
    /// Several devices.
    Several(Vec<String>),
}

impl Default for DeviceUse {
    fn default() -> Self {
        Self::One("auto".to_owned())
    }
}

/// `[train]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrainConfig {
    /// Passes over the training images, at most.
    pub epochs: usize,
    /// Images per optimizer step.
    pub batch_size: usize,
    /// The optimizer and its settings.
    pub optimizer: Choice<OptimizerConfig>,
    /// The learning rate over time; constant when absent.
    #[serde(default)]
    pub schedule: Choice<ScheduleConfig>,
    /// Whether weight decay also acts on biases and on the scales and shifts of norms, as PyTorch
    /// does by default.
    #[serde(default = "yes")]
    pub decay_norms_and_biases: bool,
    /// Scales the gradient down where its norm over all parameters is above this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clip_norm: Option<f64>,
    /// An exponential moving average of the weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ema: Option<EmaConfig>,
    /// Ends training when a metric no longer improves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub early_stopping: Option<EarlyStoppingConfig>,
    /// The metric that `best` is saved by; early stopping's, else `val/loss`, when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best_metric: Option<String>,
}

fn yes() -> bool {
    true
}

/// `[train.early_stopping]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EarlyStoppingConfig {
    /// The metric watched, such as `val/loss` or `val/findings/auroc`.
    pub metric: String,
    /// Whether more or less is better; known for every metric the program computes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Epochs without improvement before training ends. An epoch in which the metric is undefined does
    /// not count.
    #[serde(default = "default_patience")]
    pub patience: usize,
    /// The least change that counts as an improvement.
    #[serde(default)]
    pub min_delta: f64,
    /// Epochs before this one (counted from 1) never end training.
    #[serde(default)]
    pub start_epoch: usize,
}

fn default_patience() -> usize {
    5
}

/// Which direction is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Less is better.
    Min,
    /// More is better.
    Max,
}
