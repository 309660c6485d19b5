//! What the user writes under `[model.sequential]`, and the operation that each layer is.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::layers::branches;
use crate::choice::{Choice, NoSettings, name_of};
use crate::fault::{Fault, fault};
use crate::model::layers::{Init, Join, Op, Size};
use crate::ops::Window;

/// Far above what any memory holds, far below where products of sizes overflow.
const WIDEST: usize = 1 << 20;

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

impl LayerConfig {
    /// As a configuration writes it, such as `batch_norm`.
    pub(super) fn name(&self) -> &'static str {
        name_of(self)
    }

    /// The operation of the layer called `name`, whose settings are at `key`, on an input of size
    /// `input`. `repeat` and `stage` are no layers themselves: they were written out before.
    ///
    /// # Errors
    ///
    /// A number out of its range, or branches whose layers do not fit what they are run on.
    pub(super) fn op(&self, input: &Size, key: &str, name: &str) -> Result<Op, Fault> {
        Ok(match self {
            Self::Conv(config) => config.op(input.channels(), key)?,
            Self::Linear(config) => {
                within(config.features, key, "features")?;
                let features = [input.channels(), config.features];
                Op::Linear { features, bias: config.bias, init: Init::Uniform }
            }
            Self::Relu(_) => Op::Relu,
            Self::Sigmoid(_) => Op::Sigmoid,
            Self::BatchNorm(_) => Op::BatchNorm(input.channels()),
            Self::MaxPool(config) => Op::MaxPool(config.window(key)?),
            Self::MeanPool(config) => Op::AvgPool(config.window(key)?),
            Self::GlobalPool(_) => Op::GlobalPool,
            Self::Flatten(_) => Op::Flatten,
            Self::Dropout(config) => config.op(key)?,
            Self::Branches(config) => branches(config, input, key, name)?,
            Self::Repeat(_) | Self::Stage(_) => unreachable!("these are written out"),
        })
    }
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

impl ConvConfig {
    fn op(&self, input: usize, key: &str) -> Result<Op, Fault> {
        let &Self { channels, kernel, stride, padding, bias } = self;
        within(channels, key, "channels")?;
        within(kernel, key, "kernel")?;
        within(stride, key, "stride")?;
        if padding >= kernel {
            let message = format!("`padding` is {padding}, as wide as the kernel");
            let help = "write less than `kernel`: beyond that only zeros are seen";
            return Err(fault(format!("{key}.padding"), message, help));
        }
        let window = Window { kernel, stride, padding };
        Ok(Op::Conv { channels: [input, channels], window, bias, init: Init::Uniform })
    }
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

impl PoolConfig {
    fn window(&self, key: &str) -> Result<Window, Fault> {
        let &Self { kernel, padding, .. } = self;
        let stride = self.stride.unwrap_or(kernel);
        within(kernel, key, "kernel")?;
        within(stride, key, "stride")?;
        if padding > kernel / 2 {
            let message = format!("`padding` is {padding}, and the window {kernel}");
            return Err(fault(format!("{key}.padding"), message, "write at most half the window"));
        }
        Ok(Window { kernel, stride, padding })
    }
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

impl DropoutConfig {
    fn op(&self, key: &str) -> Result<Op, Fault> {
        // NaN is in no range.
        if !(0.0..1.0).contains(&self.probability) {
            let message = format!("`probability` is {}", self.probability);
            let help = "write a number from 0 up to but not including 1";
            return Err(fault(format!("{key}.probability"), message, help));
        }
        Ok(Op::Dropout(self.probability))
    }
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

/// Refuses a setting that is 0 or far too great.
fn within(number: usize, key: &str, name: &str) -> Result<(), Fault> {
    if (1..=WIDEST).contains(&number) {
        return Ok(());
    }
    let help = format!("write a number from 1 to {WIDEST}");
    Err(fault(format!("{key}.{name}"), format!("`{name}` is {number}"), help))
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

/// Whether some layer normalises over the batch.
pub(super) fn normalises_over_batch(layers: &[Choice<LayerConfig>]) -> bool {
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
