//! `[parallel.pipeline]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::choice::name_of;

/// `[parallel.pipeline]`: the stages of the model placed on the devices that `device.use` names, some on
/// each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PipelineConfig {
    /// Which stages each device has: the first stage of every device but the first, by the names that
    /// `trainer plan` prints. `["denseblock2", "denseblock4"]` is for three devices. A device may begin within a dense block:
    /// `"denseblock2.denselayer7"`. With `"auto"` a step is estimated to be as fast as can be where all stay within their budget.
    #[schemars(example = &["denseblock3"])]
    pub split: SplitConfig,
    /// In which order micro-batches go through the devices.
    #[schemars(example = &"gpipe")]
    pub schedule: PipelineScheduleConfig,
    /// How many copies of the pipeline there are, at least 1. Each batch is shared out over them, and each has
    /// as many of the devices: the first copy has the first ones. With two copies of two stages each on four
    /// devices, `cuda:0` and `cuda:1` have one copy, and `cuda:2` and `cuda:3` the other.
    #[schemars(example = 2)]
    pub copies: usize,
}

impl Default for PipelineConfig {
    fn default() -> Self {
        Self {
            split: SplitConfig::default(),
            schedule: PipelineScheduleConfig::default(),
            copies: 1,
        }
    }
}

impl PipelineConfig {
    /// The first stage of every device but the first; `None` where the program is to decide.
    pub fn split(&self) -> Option<&[String]> {
        match &self.split {
            SplitConfig::Auto(_) => None,
            SplitConfig::At(names) => Some(names),
        }
    }

    /// In which order micro-batches go through; `None` where the program is to decide.
    pub fn schedule(&self) -> Option<PipelineSchedule> {
        match self.schedule {
            PipelineScheduleConfig::Auto(_) => None,
            PipelineScheduleConfig::Of(schedule) => Some(schedule),
        }
    }
}

/// Which stages each device of a pipeline has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum SplitConfig {
    /// The program decides.
    Auto(AutoSplit),
    /// The first stage of every device but the first.
    At(Vec<String>),
}

impl Default for SplitConfig {
    fn default() -> Self {
        Self::Auto(AutoSplit::Auto)
    }
}

/// The word `"auto"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AutoSplit {
    /// The program decides.
    Auto,
}

/// In which order micro-batches go through the devices of a pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum PipelineScheduleConfig {
    /// The program decides.
    Auto(AutoSchedule),
    /// This one.
    Of(PipelineSchedule),
}

impl Default for PipelineScheduleConfig {
    fn default() -> Self {
        Self::Auto(AutoSchedule::Auto)
    }
}

/// The word `"auto"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AutoSchedule {
    /// `eager_1f1b` on cards where steps are estimated to be more than 3% faster by it and every device stays within its budget; else `1f1b`.
    Auto,
}

/// In which order micro-batches go through the devices of a pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PipelineSchedule {
    /// Each micro-batch goes through all devices and back before the next: one device works at a time.
    #[serde(rename = "sequential")]
    Sequential,
    /// All micro-batches go forward, then all back (Huang et al. 2019, `GPipe`). Each device keeps all of
    /// them until then.
    #[serde(rename = "gpipe")]
    Gpipe,
    /// As soon as a micro-batch can go back, it does (Narayanan et al. 2019, `PipeDream`; 2021, Megatron).
    /// It takes the time of `gpipe`, and each device keeps no more micro-batches than there are devices
    /// from it to the end.
    #[serde(rename = "1f1b")]
    OneForwardOneBackward,
    /// `1f1b` with so many more micro-batches on their way that no card waits for one that travels (Zhuang et al. 2023, "On optimizing
    /// the communication of model parallelism"). Each device keeps at most one for itself and two for each device behind it.
    #[serde(rename = "eager_1f1b")]
    Eager,
}

impl PipelineSchedule {
    /// As a configuration writes it.
    pub fn name(self) -> &'static str {
        name_of(&self)
    }
}
