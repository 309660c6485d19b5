//! Layers with every size given.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Size;
use crate::fault::{Fault, fault};
use crate::ops::Window;

/// A layer with its name and what it gives.
#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    /// The path of its module as torchvision names it, such as `features.denseblock1.denselayer1.norm1`.
    /// Its parameters are called `<name>.weight`, `<name>.bias` and so on.
    pub name: String,
    /// What it is called within its stage or branch in a trace, such as `norm1`.
    pub label: String,
    /// What it does.
    pub op: Op,
    /// What it gives for one image.
    pub output: Size,
}

/// What a layer does.
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    /// `torch.nn.Conv2d` with a square window.
    Conv {
        /// Channels of the input and of the output.
        channels: [usize; 2],
        /// Kernel, stride and padding.
        window: Window,
        /// Whether it has a bias.
        bias: bool,
        /// How its weights are drawn.
        init: Init,
    },
    /// `torch.nn.Linear`.
    Linear {
        /// Features of the input and of the output.
        features: [usize; 2],
        /// Whether it has a bias.
        bias: bool,
        /// How its weights are drawn.
        init: Init,
    },
    /// `torch.nn.BatchNorm1d` or `2d`, of so many channels or features.
    BatchNorm(usize),
    /// `torch.nn.GroupNorm` of so many channels, in up to 32 groups.
    GroupNorm(usize),
    /// max(x, 0).
    Relu,
    /// 1 / (1 + exp(−x)).
    Sigmoid,
    /// The largest of each window.
    MaxPool(Window),
    /// The mean of each window; padding counts as zeros.
    AvgPool(Window),
    /// The mean of each channel: makes features of a map.
    GlobalPool,
    /// Makes features of a map, channel by channel.
    Flatten,
    /// Sets elements to zero with this probability in training and scales up the rest.
    Dropout(f64),
    /// So many channels of zeros behind those of a map (shortcuts without parameters, He et al.
    /// 2016, 4.2, option A).
    PadChannels(usize),
    /// Layers side by side on the same input, their outputs joined. A row without layers hands on
    /// the input as it is.
    Branches(Join, Vec<Vec<Layer>>),
}

/// How the outputs of branches become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Join {
    /// One output stands behind the other: channels of maps, or features.
    Concat,
    /// The outputs are summed.
    Add,
    /// Not joined: the outputs of the heads.
    #[serde(skip)]
    Heads,
}

/// How weights are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Init {
    /// PyTorch's default: weight and bias from U(−1/√fan, 1/√fan), where fan is the number of
    /// connections into an output.
    Uniform,
    /// The same with a bias of 0, as torchvision's DenseNet draws its classifier.
    UniformZeroBias,
    /// `kaiming_normal_` over the inputs, as torchvision's DenseNet draws its convolutions.
    KaimingFanIn,
    /// `kaiming_normal_` over the outputs, as torchvision's ResNet draws its convolutions.
    KaimingFanOut,
}

impl Op {
    /// As the configuration calls it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Conv { .. } => "conv",
            Self::Linear { .. } => "linear",
            Self::BatchNorm(_) => "batch_norm",
            Self::GroupNorm(_) => "group_norm",
            Self::Relu => "relu",
            Self::Sigmoid => "sigmoid",
            Self::MaxPool(_) => "max_pool",
            Self::AvgPool(_) => "mean_pool",
            Self::GlobalPool => "global_pool",
            Self::Flatten => "flatten",
            Self::Dropout(_) => "dropout",
            Self::PadChannels(_) => "pad_channels",
            Self::Branches(..) => "branches",
        }
    }

    /// Whether its work is a matrix product: a convolution or a linear layer.
    pub fn is_matmul(&self) -> bool {
        matches!(self, Self::Conv { .. } | Self::Linear { .. })
    }

    /// The shape of its weight as PyTorch has it, outputs first; of rank 0 where it has none to
    /// multiply by.
    pub fn weight_shape(&self) -> Vec<usize> {
        match self {
            Self::Conv { channels: [input, output], window, .. } => {
                vec![*output, *input, window.kernel, window.kernel]
            }
            Self::Linear { features: [input, output], .. } => vec![*output, *input],
            _ => Vec::new(),
        }
    }

    /// What it gives for an input of this size.
    ///
    /// # Errors
    ///
    /// When it does not fit that.
    pub fn output(&self, input: &Size) -> Result<Size, Fault> {
        Ok(match self {
            Self::Conv { channels: [_, output], window, .. } => {
                let [_, height, width] = map(input, "a convolution")?;
                windows(*window, input, [*output, height, width])?
            }
            Self::Linear { features: [_, output], .. } => {
                features(input)?;
                Size::Features(*output)
            }
            Self::MaxPool(window) | Self::AvgPool(window) => {
                windows(*window, input, map(input, "pooling")?)?
            }
            Self::GlobalPool => Size::Features(map(input, "`global_pool`")?[0]),
            Self::Flatten => Size::Features(map(input, "`flatten`")?.iter().product()),
            Self::PadChannels(more) => {
                let [channels, height, width] = map(input, "padding")?;
                Size::Map([channels + more, height, width])
            }
            Self::BatchNorm(_)
            | Self::GroupNorm(_)
            | Self::Relu
            | Self::Sigmoid
            | Self::Dropout(_) => input.clone(),
            Self::Branches(join, rows) => joined(*join, rows, input)?,
        })
    }
}

/// What branches give together.
fn joined(join: Join, rows: &[Vec<Layer>], input: &Size) -> Result<Size, Fault> {
    let outputs: Vec<&Size> =
        rows.iter().map(|row| row.last().map_or(input, |last| &last.output)).collect();
    if join == Join::Heads {
        return Ok(Size::Outputs(outputs.iter().map(|output| output.channels()).collect()));
    }
    let (first, rest) = outputs.split_first().expect("there are branches");
    let mut sum = (*first).clone();
    for (place, output) in rest.iter().enumerate() {
        sum = two_joined(join, &sum, output).ok_or_else(|| {
            let help = match join {
                Join::Add => "outputs that are summed have the same size",
                Join::Concat | Join::Heads => "maps that are joined have the same height and width",
            };
            let message = format!("this branch ends in {output}, the first in {first}");
            fault(format!("of[{}]", place + 1), message, help)
        })?;
    }
    Ok(sum)
}

/// The size of two outputs joined, where they fit.
fn two_joined(join: Join, first: &Size, second: &Size) -> Option<Size> {
    match (join, first, second) {
        (Join::Add, first, second) => (first == second).then(|| first.clone()),
        (Join::Concat, Size::Map(first), Size::Map(second)) => (first[1..] == second[1..])
            .then_some(Size::Map([first[0] + second[0], first[1], first[2]])),
        (Join::Concat, Size::Features(first), Size::Features(second)) => {
            Some(Size::Features(first + second))
        }
        _ => None,
    }
}

/// The input of `what`, which is to be a map.
fn map(input: &Size, what: &str) -> Result<[usize; 3], Fault> {
    match input {
        Size::Map(map) => Ok(*map),
        other => {
            let message = format!("{what} needs a map, and the input is {other}");
            Err(fault("", message, "put it before `\"flatten\"` or `\"global_pool\"`"))
        }
    }
}

fn features(input: &Size) -> Result<usize, Fault> {
    match input {
        Size::Features(count) => Ok(*count),
        other => {
            let message = format!("a linear layer needs features, and the input is {other}");
            Err(fault("", message, "put `\"flatten\"` or `\"global_pool\"` before it"))
        }
    }
}

/// A map of as many channels and pixels as windows fit into a map of this size.
fn windows(
    window: Window,
    input: &Size,
    [channels, height, width]: [usize; 3],
) -> Result<Size, Fault> {
    match [height, width].map(|side| window.fits(side)) {
        [true, true] => Ok(Size::Map([channels, window.output(height), window.output(width)])),
        _ => {
            let message =
                format!("a kernel of {} does not fit into the input, {input}", window.kernel);
            let help = "make it smaller, add `padding`, or shrink the map less before it";
            Err(fault("kernel", message, help))
        }
    }
}
