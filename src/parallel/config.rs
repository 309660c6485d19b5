//! `[parallel]`: how several devices share a run.

use schemars::JsonSchema;
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};

use super::{BatchNormOver, OptimizerPlacement, PipelineConfig};

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
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DataParallelConfig {
    /// What BatchNorm normalises over.
    #[schemars(example = &"local")]
    pub batch_norm: BatchNormOver,
    /// Where the optimizer's state lies.
    #[schemars(example = &"sharded")]
    pub optimizer: OptimizerPlacement,
}

impl DataParallelConfig {
    /// Whether it says nothing.
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Writes what is not left at its default, so that a run may go on with another of these keys than it began with, where
/// all others are as they were.
impl Serialize for DataParallelConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { batch_norm, optimizer } = self;
        let default = Self::default();
        let mut table = serializer.serialize_map(None)?;
        if *batch_norm != default.batch_norm {
            table.serialize_entry("batch_norm", batch_norm)?;
        }
        if *optimizer != default.optimizer {
            table.serialize_entry("optimizer", optimizer)?;
        }
        table.end()
    }
}
