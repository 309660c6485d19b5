//! `[parallel]`: how several devices share a run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::BatchNormOver;

/// `[parallel]`: how the devices that `device.use` names share the run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ParallelConfig {
    /// A copy of the model on every device, each of which computes a part of every batch.
    pub data: DataParallelConfig,
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
