//! `[parallel]`: how several devices share a run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{BatchNormOver, PipelineConfig};

/// `[parallel]`: how the devices that `device.use` names share the run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ParallelConfig {
    /// A copy of the model on every device, each of which computes a part of every batch.
    #[serde(skip_serializing_if = "DataParallelConfig::is_default")]
    pub data: DataParallelConfig,
    /// Some stages of the model on each device, for a model that is too large for one of them. A batch goes
    /// through in micro-batches of `memory.micro_batch` images, and the numbers are those of one device with
    /// that micro-batch. Each device has a copy of the whole model when this is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<PipelineConfig>,
}

impl ParallelConfig {
    /// Whether it says nothing. Configurations of one device are then written without it.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// `[parallel.data]`: a copy of the model on every device, each of which computes a part of every batch.
/// `train.batch_size` is that of all devices together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DataParallelConfig {
    /// What BatchNorm normalises over.
    #[schemars(example = &"local")]
    pub batch_norm: BatchNormOver,
}

impl DataParallelConfig {
    /// Whether it says nothing.
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
