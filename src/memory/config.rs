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
    /// What a dense layer keeps for its backward pass where it runs fused (on CUDA, without dropout,
    /// with `norm = "batch"`).
    pub dense_layers: DenseLayers,
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
    /// 32-bit numbers, rounded to TF32 where convolutions multiply them. Fused models on CUDA only.
    Tf32,
    /// Activations in bfloat16; weights, statistics and sums in 32 bits. Fused models on CUDA only.
    Bf16,
}

/// What a dense layer keeps for its backward pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DenseLayers {
    /// The outputs of every layer's 1×1 convolution.
    #[default]
    Keep,
    /// Only the block's own maps; the 1×1 convolutions run again in the backward pass.
    Share,
}

impl MemoryConfig {
    /// Whether it needs fused stages, which only some models on CUDA have.
    pub fn needs_fused(&self) -> bool {
        self.precision != Precision::Fp32
    }
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
