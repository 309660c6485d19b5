//! The whole configuration, composed from the families' parts.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::choice::Choice;
use crate::data::DataConfig;
use crate::evaluate::EvaluateConfig;
use crate::memory::MemoryConfig;
use crate::model::{HeadConfig, ModelTable};
use crate::optim::{EmaConfig, OptimizerConfig, ScheduleConfig};
use crate::parallel::ParallelConfig;

/// An experiment, as the user wrote it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The run's name, its folder and its seed.
    pub run: RunConfig,
    /// The device that the run computes on.
    #[serde(default)]
    pub device: DeviceConfig,
    /// How several devices share the run.
    #[serde(default, skip_serializing_if = "ParallelConfig::is_default")]
    pub parallel: ParallelConfig,
    /// The images and their labels.
    pub data: DataConfig,
    /// The network that turns an image into features, on which the heads stand, and the weights that it
    /// starts from.
    #[schemars(example = serde_json::json!({ "densenet": { "depth": 121 } }))]
    pub model: ModelTable,
    /// What is predicted: a table for each head, at least one and at most 1,000.
    pub heads: Vec<HeadConfig>,
    /// How the network is trained.
    pub train: TrainConfig,
    /// How a training step is made to fit in memory.
    #[serde(default)]
    pub memory: MemoryConfig,
    /// How the trained model is judged.
    #[serde(default)]
    pub evaluate: EvaluateConfig,
}

/// `[run]`: the run's name, its folder and its seed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunConfig {
    /// The name of the run and of its folder, `<output>/<name>/`. It may have letters, digits, `.`,
    /// `_` and `-`.
    #[schemars(example = &"xray_densenet")]
    pub name: String,
    /// The folder that holds the folders of all runs. A relative path counts from the folder in
    /// which the program is started.
    #[serde(default = "default_output")]
    #[schemars(example = &"/scratch/runs")]
    pub output: PathBuf,
    /// The number that all randomness of the run follows from: the same configuration and seed give
    /// the same result.
    #[serde(default)]
    #[schemars(example = 7)]
    pub seed: u64,
    /// How many steps lie between two records of the loss, in `metrics.jsonl` and for TensorBoard;
    /// 0 records none.
    #[serde(default = "default_log_every")]
    #[schemars(example = 10)]
    pub log_every: usize,
    /// How many validation images of each kind (right and sure, wrong, uncertain) the page of the run
    /// shows for each head as small pictures, with heatmaps of where the model looks; at most 8. 0 shows
    /// no picture, only names of images: set it where a copy of patients' images may not leave their
    /// place with the page.
    #[serde(default = "default_pictures")]
    #[schemars(example = 0)]
    #[schemars(range(max = 8))]
    pub pictures: usize,
    /// When the state is saved within an epoch (at the end of one it always is), and how many
    /// states are kept.
    #[serde(default)]
    pub save: SaveConfig,
}

fn default_output() -> PathBuf {
    "checkpoints".into()
}

fn default_log_every() -> usize {
    50
}

fn default_pictures() -> usize {
    4
}

/// `[run.save]`: when the state is saved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SaveConfig {
    /// How many minutes pass within an epoch before the state is saved again; 0 never saves by
    /// time.
    #[schemars(example = 5.0)]
    pub every_minutes: f64,
    /// How many steps pass within an epoch before the state is saved again; 0 never saves by steps.
    #[schemars(example = 1000)]
    pub every_steps: usize,
    /// How many saved states are kept to fall back on, besides `last` and `best`; at least 1.
    #[schemars(example = 3)]
    #[schemars(range(min = 1))]
    pub keep: usize,
}

impl Default for SaveConfig {
    fn default() -> Self {
        Self { every_minutes: 15.0, every_steps: 0, keep: 2 }
    }
}

/// `[device]`: the device that the run computes on, or several.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DeviceConfig {
    /// `"auto"` is the first GPU, or the CPU where there is none. The others are `"cpu"`, `"cuda"`
    /// (the first GPU) and `"cuda:1"` (the second GPU); `trainer devices` lists what there is. Several
    /// devices are a list, such as `["cuda:0", "cuda:1"]`, or `"all"`, which is every GPU of the
    /// machine: each has a copy of the model and computes a part of every batch, or with
    /// `[parallel.pipeline]` some of its stages. `["cpu:0", "cpu:1"]` does so on the CPU, to try it out.
    #[serde(rename = "use")]
    #[schemars(example = &"cuda:1")]
    pub device: DeviceUse,
}

/// One device, or several that share the work.
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

/// `[train]`: how the network is trained.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrainConfig {
    /// How many times the training goes through the training images, at most; at least 1.
    #[schemars(example = 20)]
    #[schemars(range(min = 1))]
    pub epochs: usize,
    /// How many images a step of the optimizer is taken over; at least 1 and at most 1,048,576.
    #[schemars(example = 64)]
    #[schemars(range(min = 1, max = 1_048_576))]
    pub batch_size: usize,
    /// The optimizer. Its name, settings and defaults are those of `torch.optim`.
    pub optimizer: Choice<OptimizerConfig>,
    /// What the learning rate of single stages is multiplied by, by the names that `trainer plan` prints
    /// or by torchvision's (`layer1`, `features.denseblock1`); above 0. That of the others is 1.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(example = serde_json::json!({ "stem": 0.1 }))]
    pub lr_factors: BTreeMap<String, f64>,
    /// How the learning rate changes over the training.
    #[serde(default)]
    pub schedule: Choice<ScheduleConfig>,
    /// Whether weight decay also acts on biases and on the scales and shifts of norms, as it does
    /// in PyTorch by default.
    #[serde(default = "yes")]
    pub decay_norms_and_biases: bool,
    /// The largest norm that the gradient of all parameters together may have; a larger gradient is
    /// scaled down to it. Gradients stay as they are when this is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = 1.0)]
    pub clip_norm: Option<f64>,
    /// An exponential moving average of the weights, which is evaluated and saved beside them.
    /// There is none when this is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ema: Option<EmaConfig>,
    /// When the training ends before its last epoch: once a metric no longer improves. It never
    /// does when this is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub early_stopping: Option<EarlyStoppingConfig>,
    /// The metric that decides which epoch's state is saved as `best`. When this is left out it is
    /// the metric of early stopping, or `val/loss` where there is no early stopping.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"val/findings/auroc")]
    pub best_metric: Option<String>,
}

fn yes() -> bool {
    true
}

/// `[train.early_stopping]`: when the training ends before its last epoch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EarlyStoppingConfig {
    /// The metric that is watched, such as `val/loss` or `val/findings/auroc`.
    #[schemars(example = &"val/findings/auroc")]
    pub metric: String,
    /// Which direction of the metric is better. The program knows it for every metric, so this may
    /// be left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"max")]
    pub mode: Option<Mode>,
    /// How many epochs without an improvement end the training; at least 1. An epoch in which the
    /// metric is undefined does not count.
    #[serde(default = "default_patience")]
    #[schemars(example = 10)]
    #[schemars(range(min = 1))]
    pub patience: usize,
    /// The least change that counts as an improvement.
    #[serde(default)]
    #[schemars(example = 0.001)]
    pub min_delta: f64,
    /// The first epoch, counted from 1, that may end the training.
    #[serde(default)]
    #[schemars(example = 10)]
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
