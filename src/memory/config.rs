//! What the user writes under `[memory]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::choice::{Choice, NoSettings};

/// `[memory]`: how a training step fits in memory.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MemoryConfig {
    /// The numbers that activations and weights are held in.
    pub precision: Precision,
    /// Which stages of the chain keep what their backward pass needs.
    pub checkpointing: Choice<CheckpointingConfig>,
}

/// The numbers that activations and weights are held in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// 32-bit floating point throughout.
    #[default]
    Fp32,
}

/// `[memory.checkpointing.…]`: a policy that makes the schedule of a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointingConfig {
    /// Every stage keeps what backward needs; nothing is recomputed.
    None(NoSettings),
}

impl Default for CheckpointingConfig {
    fn default() -> Self {
        Self::None(NoSettings {})
    }
}
