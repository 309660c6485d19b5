//! What the user writes under `[model.sequential]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::choice::{Choice, NoSettings};
use crate::model::layers::Join;

/// `[model.sequential]`: layers, each run on the output of the one before it.
///
/// Weights and biases are drawn as PyTorch draws them by default, and have the names that
/// `torch.nn.Sequential` of the same layers gives.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "SequentialNetworkConfig")]
pub struct SequentialConfig {
    /// The layers, first to last. One that needs no settings may be written as a string: `"relu"`.
    #[schemars(example = serde_json::json!([{ "conv": { "channels": 16, "kernel": 3 } }, "relu", "global_pool"]))]
    pub layers: Vec<Choice<LayerConfig>>,
}

/// A layer, or several.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LayerConfig {
    /// A convolution with a square kernel.
    Conv(ConvConfig),
    /// A fully connected layer.
    Linear(LinearLayerConfig),
    /// ReLU: max(x, 0).
    Relu(NoSettings),
    /// The logistic function: 1 / (1 + exp(−x)).
    Sigmoid(NoSettings),
    /// BatchNorm (Ioffe and Szegedy 2015): each channel is normalised over the batch, then scaled
    /// and shifted.
    BatchNorm(NoSettings),
    /// The largest number of each window.
    MaxPool(PoolConfig),
    /// The mean of each window; padding counts as zeros.
    MeanPool(PoolConfig),
    /// The mean of each channel, which turns a map into features.
    GlobalPool(NoSettings),
    /// All numbers of a map as features, channel by channel.
    Flatten(NoSettings),
    /// Dropout: numbers become zero in training, each with the same probability, and the others are
    /// scaled up.
    Dropout(DropoutConfig),
    /// Layers side by side on the same input, whose outputs are joined.
    Branches(BranchesConfig),
    /// The same layers several times in a row, each time with weights of their own.
    Repeat(RepeatConfig),
    /// Layers that make up one stage of the chain: what lies inside is kept or computed again as a
    /// whole.
    Stage(StageConfig),
}

/// `conv`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConvConfig {
    /// How many channels the output has.
    #[schemars(example = 64)]
    pub channels: usize,
    /// The height and width of the kernel.
    #[schemars(example = 3)]
    pub kernel: usize,
    /// The step in both directions.
    #[serde(default = "one")]
    #[schemars(example = 2)]
    pub stride: usize,
    /// How many zeros are added on every side; fewer than `kernel`.
    #[serde(default)]
    #[schemars(example = 1)]
    pub padding: usize,
    /// Whether a number is added to each channel.
    #[serde(default = "yes")]
    pub bias: bool,
}

/// `linear`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinearLayerConfig {
    /// How many features the output has.
    #[schemars(example = 10)]
    pub features: usize,
    /// Whether a number is added to each feature.
    #[serde(default = "yes")]
    pub bias: bool,
}

/// `max_pool` and `mean_pool`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolConfig {
    /// The height and width of the window.
    #[schemars(example = 2)]
    pub kernel: usize,
    /// The step in both directions; that of the window's size when this is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = 2)]
    pub stride: Option<usize>,
    /// How many pixels are added on every side; at most half the window.
    #[serde(default)]
    #[schemars(example = 1)]
    pub padding: usize,
}

/// `dropout`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DropoutConfig {
    /// The probability that a number becomes zero; from 0 to below 1.
    #[serde(default = "half")]
    #[schemars(example = 0.2)]
    pub probability: f64,
}

/// `branches`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BranchesConfig {
    /// How the outputs become one.
    pub join: Join,
    /// The layers of each branch; `[]` hands on the input as it is.
    #[schemars(example = serde_json::json!([[], [{ "conv": { "channels": 8, "kernel": 1 } }, "relu"]]))]
    pub of: Vec<Vec<Choice<LayerConfig>>>,
}

/// `repeat`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RepeatConfig {
    /// How often the layers are repeated.
    #[schemars(example = 3)]
    pub times: usize,
    /// The layers.
    #[schemars(example = serde_json::json!([{ "linear": { "features": 64 } }, "relu"]))]
    pub layers: Vec<Choice<LayerConfig>>,
}

/// `stage`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StageConfig {
    /// The name of the stage where memory is planned and logged; inside `repeat` a number follows,
    /// `.0`, `.1` and so on.
    #[schemars(example = &"stem")]
    pub name: String,
    /// The layers.
    #[schemars(example = serde_json::json!([{ "conv": { "channels": 16, "kernel": 3 } }, "relu"]))]
    pub layers: Vec<Choice<LayerConfig>>,
}

fn one() -> usize {
    1
}

fn yes() -> bool {
    true
}

fn half() -> f64 {
    0.5
}

impl SequentialConfig {
    /// Whether some layer normalises over the batch.
    pub fn normalises_over_batch(&self) -> bool {
        normalises_over_batch(&self.layers)
    }
}

fn normalises_over_batch(layers: &[Choice<LayerConfig>]) -> bool {
    layers.iter().any(|layer| match &layer.0 {
        LayerConfig::BatchNorm(_) => true,
        LayerConfig::Branches(branches) => {
            branches.of.iter().any(|branch| normalises_over_batch(branch))
        }
        LayerConfig::Repeat(RepeatConfig { layers, .. })
        | LayerConfig::Stage(StageConfig { layers, .. }) => normalises_over_batch(layers),
        _ => false,
    })
}
