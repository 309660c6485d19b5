//! Layers with every size given, each checked against what it is run on.

use std::fmt;

use super::unroll::{Inside, Unrolled, unroll};
use super::{BranchesConfig, ConvConfig, Join, LayerConfig, PoolConfig, fault};
use crate::memory::Window;
use crate::model::ArchitectureFault;
use crate::model::layer::Conv2dConfig;

/// Far above what any memory holds, far below where products of sizes overflow.
const WIDEST: usize = 1 << 20;

/// What flows between layers, of one image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// Channels, height and width.
    Map([usize; 3]),
    /// How many.
    Features(usize),
}

impl fmt::Display for Size {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Map([channels, height, width]) => {
                write!(formatter, "{channels} × {height} × {width}")
            }
            Self::Features(1) => formatter.write_str("1 feature"),
            Self::Features(count) => write!(formatter, "{count} features"),
        }
    }
}

/// A layer, its name and what it puts out.
#[derive(Debug, Clone, PartialEq)]
pub struct SizedLayer {
    /// As `torch.nn.Sequential` has it: `3`, or `3.0.1` for layer 1 of branch 0 of layer 3.
    pub name: String,
    /// The layer.
    pub layer: Layer,
    /// Its output.
    pub output: Size,
}

/// A layer with every size given.
#[derive(Debug, Clone, PartialEq)]
pub enum Layer {
    /// A convolution.
    Conv {
        /// Its sizes.
        sizes: Conv2dConfig,
        /// Whether it has a bias.
        bias: bool,
    },
    /// A fully connected layer.
    Linear {
        /// Features of the input and of the output.
        features: [usize; 2],
        /// Whether it has a bias.
        bias: bool,
    },
    /// max(x, 0).
    Relu,
    /// 1 / (1 + exp(−x)).
    Sigmoid,
    /// Over each of this many channels or features.
    BatchNorm(usize),
    /// The largest of each window.
    MaxPool(Window),
    /// The mean of each window.
    MeanPool(Window),
    /// The mean of each channel.
    GlobalPool,
    /// A map as features.
    Flatten,
    /// With this probability, at this site.
    Dropout(f64, u64),
    /// Layers side by side.
    Branches(Join, Vec<Vec<SizedLayer>>),
}

impl SizedLayer {
    /// Trained numbers.
    pub fn parameter_count(&self) -> usize {
        match &self.layer {
            Layer::Conv { sizes, bias } => {
                sizes.parameter_count() + if *bias { sizes.channels[1] } else { 0 }
            }
            Layer::Linear { features: [input, output], bias } => {
                input * output + if *bias { *output } else { 0 }
            }
            Layer::BatchNorm(channels) => 2 * channels,
            Layer::Branches(_, branches) => {
                branches.iter().flatten().map(SizedLayer::parameter_count).sum()
            }
            _ => 0,
        }
    }
}

/// The size that the layers put out.
pub(super) fn output(layers: &[SizedLayer], input: Size) -> Size {
    layers.last().map_or(input, |last| last.output)
}

/// Sizes one layer after the other; `sites` counts the dropout layers.
pub(super) struct Sizing {
    pub sites: u64,
}

impl Sizing {
    /// The sizes of `layers` on an input of size `input`, their names after `prefix`.
    ///
    /// # Errors
    ///
    /// The first layer that does not fit what it is run on.
    pub fn chain(
        &mut self,
        layers: &[Unrolled],
        input: Size,
        prefix: &str,
    ) -> Result<Vec<SizedLayer>, ArchitectureFault> {
        let mut sized = Vec::with_capacity(layers.len());
        for (place, unrolled) in layers.iter().enumerate() {
            let input = output(&sized, input);
            let name = format!("{prefix}{place}");
            let (layer, output) = self.layer(unrolled, input, &name)?;
            sized.push(SizedLayer { name, layer, output });
        }
        Ok(sized)
    }

    fn layer(
        &mut self,
        unrolled: &Unrolled,
        input: Size,
        name: &str,
    ) -> Result<(Layer, Size), ArchitectureFault> {
        let key = unrolled.key.as_str();
        Ok(match unrolled.layer {
            LayerConfig::Conv(config) => {
                let map = map(input, key, "a convolution")?;
                let sizes = convolution(config, map[0], key)?;
                let window = Window {
                    kernel: config.kernel,
                    stride: config.stride,
                    padding: config.padding,
                };
                let [height, width] = windows(window, map, key)?;
                let output = Size::Map([config.channels, height, width]);
                (Layer::Conv { sizes, bias: config.bias }, output)
            }
            LayerConfig::Linear(config) => {
                let input = features(input, key)?;
                within(config.features, key, "features")?;
                let features = [input, config.features];
                (Layer::Linear { features, bias: config.bias }, Size::Features(config.features))
            }
            LayerConfig::Relu(_) => (Layer::Relu, input),
            LayerConfig::Sigmoid(_) => (Layer::Sigmoid, input),
            LayerConfig::BatchNorm(_) => match input {
                Size::Map([count, ..]) | Size::Features(count) => (Layer::BatchNorm(count), input),
            },
            LayerConfig::MaxPool(config) => {
                let (window, output) = pooling(config, input, key)?;
                (Layer::MaxPool(window), output)
            }
            LayerConfig::MeanPool(config) => {
                let (window, output) = pooling(config, input, key)?;
                (Layer::MeanPool(window), output)
            }
            LayerConfig::GlobalPool(_) => {
                let [channels, ..] = map(input, key, "`global_pool`")?;
                (Layer::GlobalPool, Size::Features(channels))
            }
            LayerConfig::Flatten(_) => {
                let [channels, height, width] = map(input, key, "`flatten`")?;
                (Layer::Flatten, Size::Features(channels * height * width))
            }
            LayerConfig::Dropout(config) => {
                // NaN is in no range.
                if !(0.0..1.0).contains(&config.probability) {
                    let message = format!("`probability` is {}", config.probability);
                    let help = "write a number from 0 up to but not including 1";
                    return Err(fault(format!("{key}.probability"), message, help));
                }
                self.sites += 1;
                (Layer::Dropout(config.probability, self.sites - 1), input)
            }
            LayerConfig::Branches(config) => self.branches(config, input, key, name)?,
            LayerConfig::Repeat(_) | LayerConfig::Stage(_) => {
                unreachable!("these are written out")
            }
        })
    }

    fn branches(
        &mut self,
        config: &BranchesConfig,
        input: Size,
        key: &str,
        name: &str,
    ) -> Result<(Layer, Size), ArchitectureFault> {
        if config.of.len() < 2 {
            let message = format!("`of` has {} branches", config.of.len());
            let help = "write two lists of layers or more; `[]` hands on the input as it is";
            return Err(fault(format!("{key}.of"), message, help));
        }
        let mut branches = Vec::with_capacity(config.of.len());
        for (place, layers) in config.of.iter().enumerate() {
            let layers = unroll(layers, &format!("{key}.of[{place}]"), Inside::Branch)?;
            branches.push(self.chain(&layers, input, &format!("{name}.{place}."))?);
        }
        let mut joined = output(&branches[0], input);
        for (place, branch) in branches.iter().enumerate().skip(1) {
            let output = output(branch, input);
            joined = join(config.join, joined, output).ok_or_else(|| {
                let first = self::output(&branches[0], input);
                let help = match config.join {
                    Join::Concat => "maps that are joined have the same height and width",
                    Join::Add => "outputs that are summed have the same size",
                };
                let message = format!("this branch ends in {output}, the first in {first}");
                fault(format!("{key}.of[{place}]"), message, help)
            })?;
        }
        Ok((Layer::Branches(config.join, branches), joined))
    }
}

/// The size of two outputs joined, where they fit.
fn join(how: Join, first: Size, second: Size) -> Option<Size> {
    match (how, first, second) {
        (Join::Add, first, second) => (first == second).then_some(first),
        (Join::Concat, Size::Map(first), Size::Map(second)) => (first[1..] == second[1..])
            .then_some(Size::Map([first[0] + second[0], first[1], first[2]])),
        (Join::Concat, Size::Features(first), Size::Features(second)) => {
            Some(Size::Features(first + second))
        }
        _ => None,
    }
}

fn map(input: Size, key: &str, what: &str) -> Result<[usize; 3], ArchitectureFault> {
    match input {
        Size::Map(map) => Ok(map),
        Size::Features(_) => {
            let message = format!("{what} needs a map, and the input is {input}");
            Err(fault(key, message, "put it before `\"flatten\"` or `\"global_pool\"`"))
        }
    }
}

fn features(input: Size, key: &str) -> Result<usize, ArchitectureFault> {
    match input {
        Size::Features(count) => Ok(count),
        Size::Map(_) => {
            let message = format!("a linear layer needs features, and the input is {input}");
            Err(fault(key, message, "put `\"flatten\"` or `\"global_pool\"` before it"))
        }
    }
}

fn within(number: usize, key: &str, name: &str) -> Result<(), ArchitectureFault> {
    if (1..=WIDEST).contains(&number) {
        return Ok(());
    }
    let help = format!("write a number from 1 to {WIDEST}");
    Err(fault(format!("{key}.{name}"), format!("`{name}` is {number}"), help))
}

fn convolution(
    config: &ConvConfig,
    input: usize,
    key: &str,
) -> Result<Conv2dConfig, ArchitectureFault> {
    let &ConvConfig { channels, kernel, stride, padding, .. } = config;
    within(channels, key, "channels")?;
    within(kernel, key, "kernel")?;
    within(stride, key, "stride")?;
    if padding >= kernel {
        let message = format!("`padding` is {padding}, as wide as the kernel");
        let help = "write less than `kernel`: beyond that only zeros are seen";
        return Err(fault(format!("{key}.padding"), message, help));
    }
    Ok(Conv2dConfig { channels: [input, channels], kernel, stride, padding })
}

fn pooling(
    config: &PoolConfig,
    input: Size,
    key: &str,
) -> Result<(Window, Size), ArchitectureFault> {
    let &PoolConfig { kernel, padding, .. } = config;
    let stride = config.stride.unwrap_or(kernel);
    let map = map(input, key, "pooling")?;
    within(kernel, key, "kernel")?;
    within(stride, key, "stride")?;
    if padding > kernel / 2 {
        let message = format!("`padding` is {padding}, and the window {kernel}");
        return Err(fault(format!("{key}.padding"), message, "write at most half the window"));
    }
    let window = Window { kernel, stride, padding };
    let [height, width] = windows(window, map, key)?;
    Ok((window, Size::Map([map[0], height, width])))
}

/// How many windows fit into a map's height and width.
fn windows(
    window: Window,
    [channels, height, width]: [usize; 3],
    key: &str,
) -> Result<[usize; 2], ArchitectureFault> {
    let Window { kernel, stride, padding } = window;
    let sides = [height, width].map(|side| {
        let room = (side + 2 * padding).checked_sub(kernel)?;
        Some(room / stride + 1)
    });
    match sides {
        [Some(height), Some(width)] => Ok([height, width]),
        _ => {
            let input = Size::Map([channels, height, width]);
            let message = format!("a kernel of {kernel} does not fit into the input, {input}");
            let help = "make it smaller, add `padding`, or shrink the map less before it";
            Err(fault(format!("{key}.kernel"), message, help))
        }
    }
}
