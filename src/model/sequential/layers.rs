//! The layers of a list, each checked against what it is run on.

use super::unroll::{Inside, Unrolled, unroll};
use super::{BranchesConfig, ConvConfig, LayerConfig, PoolConfig};
use crate::fault::{Fault, fault};
use crate::model::layers::{Init, Layer, Op, Row, Size};
use crate::ops::Window;

/// Far above what any memory holds, far below where products of sizes overflow.
const WIDEST: usize = 1 << 20;

/// `layers` on an input of size `input`. They are called as `torch.nn.Sequential` calls them, by their
/// places, after `prefix`: `3`, or `3.0.1` for layer 1 of branch 0 of layer 3.
///
/// # Errors
///
/// The first layer that does not fit what it is run on.
pub(super) fn layers(layers: &[Unrolled], input: Size, prefix: &str) -> Result<Vec<Layer>, Fault> {
    let mut row = Row::new(prefix, input);
    for (place, Unrolled { key, layer, .. }) in layers.iter().enumerate() {
        let op = op(layer, row.output(), key, &format!("{prefix}{place}"))?;
        row.push(place.to_string(), op).map_err(|fault| fault.below(key))?;
    }
    let mut layers = row.layers();
    // In a trace a number alone says little.
    layers.iter_mut().for_each(|layer| layer.label = format!("{}{}", layer.op.kind(), layer.name));
    Ok(layers)
}

/// What a layer called `name` does to an input of this size.
fn op(layer: &LayerConfig, input: &Size, key: &str, name: &str) -> Result<Op, Fault> {
    Ok(match layer {
        LayerConfig::Conv(config) => convolution(config, input.channels(), key)?,
        LayerConfig::Linear(config) => {
            within(config.features, key, "features")?;
            let features = [input.channels(), config.features];
            Op::Linear { features, bias: config.bias, init: Init::Uniform }
        }
        LayerConfig::Relu(_) => Op::Relu,
        LayerConfig::Sigmoid(_) => Op::Sigmoid,
        LayerConfig::BatchNorm(_) => Op::BatchNorm(input.channels()),
        LayerConfig::MaxPool(config) => Op::MaxPool(pooling(config, key)?),
        LayerConfig::MeanPool(config) => Op::AvgPool(pooling(config, key)?),
        LayerConfig::GlobalPool(_) => Op::GlobalPool,
        LayerConfig::Flatten(_) => Op::Flatten,
        LayerConfig::Dropout(config) => {
            // NaN is in no range.
            if !(0.0..1.0).contains(&config.probability) {
                let message = format!("`probability` is {}", config.probability);
                let help = "write a number from 0 up to but not including 1";
                return Err(fault(format!("{key}.probability"), message, help));
            }
            Op::Dropout(config.probability)
        }
        LayerConfig::Branches(config) => branches(config, input, key, name)?,
        LayerConfig::Repeat(_) | LayerConfig::Stage(_) => unreachable!("these are written out"),
    })
}

fn branches(config: &BranchesConfig, input: &Size, key: &str, name: &str) -> Result<Op, Fault> {
    if config.of.len() < 2 {
        let message = format!("`of` has {} branches", config.of.len());
        let help = "write two lists of layers or more; `[]` hands on the input as it is";
        return Err(fault(format!("{key}.of"), message, help));
    }
    let row = |(place, row): (usize, &Vec<_>)| {
        let unrolled = unroll(row, &format!("{key}.of[{place}]"), Inside::Branch)?;
        layers(&unrolled, input.clone(), &format!("{name}.{place}."))
    };
    let rows = config.of.iter().enumerate().map(row).collect::<Result<_, _>>()?;
    Ok(Op::Branches(config.join, rows))
}

fn within(number: usize, key: &str, name: &str) -> Result<(), Fault> {
    if (1..=WIDEST).contains(&number) {
        return Ok(());
    }
    let help = format!("write a number from 1 to {WIDEST}");
    Err(fault(format!("{key}.{name}"), format!("`{name}` is {number}"), help))
}

fn convolution(config: &ConvConfig, input: usize, key: &str) -> Result<Op, Fault> {
    let &ConvConfig { channels, kernel, stride, padding, bias } = config;
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

fn pooling(config: &PoolConfig, key: &str) -> Result<Window, Fault> {
    let &PoolConfig { kernel, padding, .. } = config;
    let stride = config.stride.unwrap_or(kernel);
    within(kernel, key, "kernel")?;
    within(stride, key, "stride")?;
    if padding > kernel / 2 {
        let message = format!("`padding` is {padding}, and the window {kernel}");
        return Err(fault(format!("{key}.padding"), message, "write at most half the window"));
    }
    Ok(Window { kernel, stride, padding })
}
