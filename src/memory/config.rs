//! What the user writes under `[memory]`.

use std::path::PathBuf;
use std::str::FromStr;

use burn::tensor::DType;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::choice::{Choice, NoSettings, name_of};
use crate::fault::{Fault, require};
use crate::ops::MatmulPrecision;
use crate::ops::gpu::Element;

/// `[memory]`: how a training step fits in memory.
///
/// With `micro_batch = "auto"` what is absent here is chosen together: of the combinations that are
/// estimated to fit, the fastest that trains with the numbers of whole batches at once, and the
/// fastest of the others where none does.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MemoryConfig {
    /// The numbers that activations and weights are held in. docs/precision.md says what each is
    /// good for.
    #[schemars(example = &"bf16")]
    pub precision: Precision,
    /// How many images go through the network at once, at most; `"auto"` lets the program choose.
    /// The gradient stays that of the whole batch, but for BatchNorm, which normalises over the
    /// images that go through at once. The whole batch goes through at once when this is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = 8)]
    pub micro_batch: Option<MicroBatch>,
    /// What BatchNorm's running statistics move towards, once a step, where a batch goes through in
    /// several parts.
    pub batch_norm: BatchStatistics,
    /// The memory that a run must fit in, such as `"10GiB"`, `"800MiB"` or `"90%"` of the device's: of a card,
    /// what the process holds, as `nvidia-smi` shows it; on the CPU, what a step uses. A run that is estimated to
    /// take more does not start. When this is left out, what is chosen automatically must fit in 98% of what is
    /// free on the card when the run starts, or in 90% of what is free on the CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"10GiB")]
    pub budget: Option<String>,
    /// Whether the outputs of 1×1 convolutions are kept for the backward pass: of the dense layers of a
    /// DenseNet and of the blocks of a ResNet, where they run fused, as they do on CUDA. When this is left
    /// out, they are kept, or what is chosen automatically decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"share")]
    pub dense_layers: Option<DenseLayers>,
    /// Which stages of the chain keep what their backward pass needs; the others compute it again.
    /// All keep it when this is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"sqrt")]
    pub checkpointing: Option<Choice<CheckpointingConfig>>,
    /// Where what is kept waits for the backward pass; on the device when this is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"host")]
    pub offload: Option<Choice<OffloadConfig>>,
    /// Whether the optimizer's state waits in host memory between steps.
    pub offload_optimizer: bool,
}

/// The numbers that activations and weights are held in.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// 32-bit floating point throughout.
    #[default]
    Fp32,
    /// 32-bit numbers, which convolutions round to TF32 where they multiply them; on CUDA only.
    Tf32,
    /// Activations are bfloat16; weights, statistics, losses and sums have 32 bits.
    Bf16,
    /// Activations are 16-bit floating point; weights, statistics, losses and sums have 32 bits.
    /// The loss is scaled so that small gradients survive, and a step whose gradients overflow is
    /// left out.
    Fp16,
    /// Everything is 16-bit floating point, as after PyTorch's `.half()`: weights, gradients,
    /// running statistics and the optimizer's state too. The loss is not scaled.
    Half,
}

impl Precision {
    /// As a configuration writes it.
    pub fn name(self) -> &'static str {
        name_of(&self)
    }

    /// What maps and features are held in, between stages and for the backward pass.
    pub fn activations(self) -> DType {
        match self {
            Self::Fp32 | Self::Tf32 => DType::F32,
            Self::Bf16 => DType::BF16,
            Self::Fp16 | Self::Half => DType::F16,
        }
    }

    /// What parameters, running statistics, gradients and the optimizer's state are held in.
    pub fn parameters(self) -> DType {
        match self {
            Self::Fp32 | Self::Tf32 | Self::Bf16 | Self::Fp16 => DType::F32,
            Self::Half => DType::F16,
        }
    }

    /// How a GPU multiplies 32-bit numbers.
    pub fn matmul_precision(self) -> MatmulPrecision {
        match self {
            Self::Tf32 => MatmulPrecision::Tf32,
            Self::Fp32 | Self::Bf16 | Self::Fp16 | Self::Half => MatmulPrecision::Full,
        }
    }

    /// What a GPU's kernels compute with.
    pub fn element(self) -> Element {
        Element::of(self.activations(), self.matmul_precision())
    }

    /// Whether the loss is scaled, so that small gradients survive.
    pub fn scales_loss(self) -> bool {
        self == Self::Fp16
    }

    /// Whether there are fused stages for it: they read parameters in 32 bits.
    pub fn fuses(self) -> bool {
        self.parameters() == DType::F32
    }

    /// Whether only a GPU has it.
    pub fn needs_gpu(self) -> bool {
        self == Self::Tf32
    }

    /// Refuses a run on the CPU in a precision that needs a GPU. `on_cpu` is asked for these only.
    ///
    /// # Errors
    ///
    /// The fault, at the key `memory.precision`.
    pub fn check_device(self, on_cpu: impl FnOnce() -> bool) -> Result<(), Fault> {
        let name = self.name();
        let message = format!("the precision \"{name}\" needs a GPU, and this runs on the CPU");
        let help = "write \"fp32\" (or \"bf16\"), or use a GPU";
        let fault = require(!self.needs_gpu() || !on_cpu(), "memory.precision", message, help);
        fault.map_err(|fault| fault.also("device.use"))
    }

    /// Bytes of a number of an activation.
    pub fn bytes(self) -> u64 {
        self.activations().size() as u64
    }
}

/// Images that go through the network at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum MicroBatch {
    /// So many, at most.
    Images(usize),
    /// As many as the program chooses within the budget.
    Auto(Auto),
}

/// The word `"auto"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Auto {
    /// The program chooses, and with it what is left out under `[memory]`: as many as is fastest,
    /// but under BatchNorm the whole batch, where that fits in any way.
    Auto,
}

/// What BatchNorm's running statistics move towards, once a step, where a batch is taken in several
/// parts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BatchStatistics {
    /// The mean of the parts' statistics, each weighted by its images.
    #[default]
    Mean,
    /// The statistics of the last part.
    Last,
}

/// What the backward pass finds of the outputs of 1×1 convolutions, in a DenseNet's dense layers and a
/// ResNet's blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DenseLayers {
    /// Their outputs are kept.
    #[default]
    Keep,
    /// Nothing is kept of them, and the convolutions run again in the backward pass: less memory, more time, the
    /// same numbers.
    Share,
}

impl DenseLayers {
    /// As a configuration writes it.
    pub fn name(self) -> &'static str {
        name_of(&self)
    }
}

/// `[memory.checkpointing.…]`: a policy that makes the schedule of a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointingConfig {
    /// Every stage keeps what its backward pass needs; nothing is computed again.
    None(NoSettings),
    /// The chain is cut into segments of equally many stages. Each keeps its input, and all but the
    /// last are computed again before their backward pass (PyTorch's `checkpoint_sequential`).
    Sequential(SequentialConfig),
    /// As `sequential`, with √n segments for n stages (Chen et al. 2016, arXiv:1604.06174).
    Sqrt(NoSettings),
    /// Every stage but the last keeps nothing but its input.
    Every(NoSettings),
    /// The chain is cut into segments after the stages that are named.
    Manual(ManualConfig),
    /// As little is computed again as the budget allows, by dynamic programming over the stages'
    /// bytes and operations (Beaumont et al. 2019, "Optimal checkpointing for heterogeneous
    /// chains").
    Budget(NoSettings),
}

impl Default for CheckpointingConfig {
    fn default() -> Self {
        Self::None(NoSettings {})
    }
}

/// `[memory.checkpointing.sequential]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SequentialConfig {
    /// How many segments there are; at least 1. More than there are stages are as many as there
    /// are.
    #[schemars(example = 4)]
    #[schemars(range(min = 1))]
    pub segments: usize,
}

/// `[memory.checkpointing.manual]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ManualConfig {
    /// The last stage of each segment but the last, by name; `trainer plan` lists the names.
    #[schemars(example = ["denseblock2", "transition2"])]
    pub after: Vec<String>,
}

/// `memory.offload`: where what is kept waits for the backward pass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OffloadConfig {
    /// What is kept waits on the device.
    None(NoSettings),
    /// What is kept waits in the host's memory.
    Host(NoSettings),
    /// What is kept waits in a file.
    Disk(DiskOffloadConfig),
}

impl OffloadConfig {
    /// As a configuration writes it.
    pub fn name(&self) -> &'static str {
        name_of(self)
    }
}

impl Default for OffloadConfig {
    fn default() -> Self {
        Self::None(NoSettings {})
    }
}

/// `[memory.offload.disk]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskOffloadConfig {
    /// A folder on a fast disk. A relative path counts from the folder in which the program is
    /// started. What is written there is gone when the run ends.
    #[schemars(example = &"/scratch")]
    pub path: PathBuf,
}

/// An amount of memory: bytes, or a share of the device's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Budget {
    /// So many bytes.
    Bytes(u64),
    /// A share of the device's memory, above 0 and at most 1.
    Share(f64),
}

const UNITS: [(&str, u64); 7] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
];

/// Text that is no amount of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this is not an amount of memory")]
pub struct NoAmount;

impl FromStr for Budget {
    type Err = NoAmount;

    fn from_str(text: &str) -> Result<Self, NoAmount> {
        let number = |digits: &str| digits.trim().parse::<f64>().ok().filter(|n| n.is_finite());
        if let Some(digits) = text.strip_suffix('%') {
            let share = number(digits).map(|percent| percent / 100.0);
            return share.filter(|s| *s > 0.0 && *s <= 1.0).map(Self::Share).ok_or(NoAmount);
        }
        let unit = UNITS.iter().find_map(|(unit, bytes)| Some((text.strip_suffix(unit)?, *bytes)));
        let (digits, unit) = unit.ok_or(NoAmount)?;
        let bytes = number(digits).map(|count| count * unit as f64);
        bytes.filter(|b| (1.0..1e18).contains(b)).map(|b| Self::Bytes(b as u64)).ok_or(NoAmount)
    }
}

impl Budget {
    /// In bytes, on a device with `memory` bytes.
    pub fn bytes(&self, memory: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => *bytes,
            Self::Share(share) => (memory as f64 * share) as u64,
        }
    }
}

impl MemoryConfig {
    /// The same with every default written out.
    pub fn with_defaults(self) -> Self {
        Self {
            dense_layers: Some(self.dense_layers()),
            checkpointing: Some(Choice(self.checkpointing())),
            offload: Some(Choice(self.offload())),
            ..self
        }
    }

    /// What a dense layer keeps.
    pub fn dense_layers(&self) -> DenseLayers {
        self.dense_layers.unwrap_or_default()
    }

    /// Which stages keep what their backward pass needs.
    pub fn checkpointing(&self) -> CheckpointingConfig {
        self.checkpointing.as_ref().map(|choice| choice.0.clone()).unwrap_or_default()
    }

    /// Where what is kept waits.
    pub fn offload(&self) -> OffloadConfig {
        self.offload.as_ref().map(|choice| choice.0.clone()).unwrap_or_default()
    }

    /// The memory that a run must fit in, where it is given.
    ///
    /// # Errors
    ///
    /// When it is no amount of memory.
    pub fn budget(&self) -> Result<Option<Budget>, NoAmount> {
        self.budget.as_deref().map(Budget::from_str).transpose()
    }

    /// Whether the program is to choose what is absent.
    pub fn is_auto(&self) -> bool {
        matches!(self.micro_batch, Some(MicroBatch::Auto(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read() {
        for (text, budget) in [
            ("10GiB", Budget::Bytes(10 << 30)),
            ("1.5 GiB", Budget::Bytes(3 << 29)),
            ("800MB", Budget::Bytes(800_000_000)),
            ("90%", Budget::Share(0.9)),
        ] {
            assert_eq!(text.parse(), Ok(budget));
        }
        assert_eq!(Budget::Share(0.5).bytes(80), 40);
        assert_eq!(Budget::Bytes(7).bytes(80), 7);
    }

    #[test]
    fn what_is_no_amount_is_refused() {
        for text in ["", "10", "GiB", "-1GiB", "0%", "101%", "nanGiB", "1e40GiB", "10 gib"] {
            text.parse::<Budget>().expect_err(text);
        }
    }
}
