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
    /// The layers, first to last; one without settings may be written as a string: `"relu"`.
    pub layers: Vec<Choice<LayerConfig>>,
}

/// A layer, or several.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LayerConfig {
    /// A square convolution.
    Conv(ConvConfig),
    /// A fully connected layer.
    Linear(LinearLayerConfig),
    /// max(x, 0).
    Relu(NoSettings),
    /// 1 / (1 + exp(−x)).
    Sigmoid(NoSettings),
    /// Normalises each channel over the batch (Ioffe and Szegedy 2015), then scales and shifts it.
    BatchNorm(NoSettings),
    /// The largest of each window.
    MaxPool(PoolConfig),
    /// The mean of each window; padding counts as zeros.
    MeanPool(PoolConfig),
    /// The mean of each channel: makes features of a map.
    GlobalPool(NoSettings),
    /// Makes features of a map, channel by channel.
    Flatten(NoSettings),
    /// Sets elements to zero with a probability in training and scales up the rest.
    Dropout(DropoutConfig),
    /// Layers side by side on the same input, their outputs joined.
    Branches(BranchesConfig),
    /// The same layers several times in a row, each time with weights of their own.
    Repeat(RepeatConfig),
    /// Layers that are one stage of the chain: what lies inside is kept or recomputed as a whole.
    Stage(StageConfig),
}

/// `conv`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConvConfig {
    /// Channels of the output.
    pub channels: usize,
    /// Height and width of the kernel.
    pub kernel: usize,
    /// Step in both directions.
    #[serde(default = "one")]
    pub stride: usize,
    /// Zeros added on every side.
    #[serde(default)]
    pub padding: usize,
    /// Whether a number is added to each channel.
    #[serde(default = "yes")]
    pub bias: bool,
}

/// `linear`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinearLayerConfig {
    /// Features of the output.
    pub features: usize,
    /// Whether a number is added to each feature.
    #[serde(default = "yes")]
    pub bias: bool,
}

/// `max_pool` and `mean_pool`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolConfig {
    /// Height and width of the window.
    pub kernel: usize,
    /// Step in both directions; the window's size when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stride: Option<usize>,
    /// Pixels added on every side, at most half the window.
    #[serde(default)]
    pub padding: usize,
}

/// `dropout`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DropoutConfig {
    /// The probability that an element is dropped.
    #[serde(default = "half")]
    pub probability: f64,
}

/// `branches`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BranchesConfig {
    /// How the outputs become one.
    pub join: Join,
    /// The layers of each branch; `[]` hands on the input as it is.
    pub of: Vec<Vec<Choice<LayerConfig>>>,
}

/// `repeat`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RepeatConfig {
    /// How often.
    pub times: usize,
    /// The layers.
    pub layers: Vec<Choice<LayerConfig>>,
}

/// `stage`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StageConfig {
    /// Names the stage where memory is planned and logged; inside `repeat`, `.0`, `.1`, … follow.
    pub name: String,
    /// The layers.
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
