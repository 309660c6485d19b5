//! The layers of a list, each checked against what it is run on.

use super::BranchesConfig;
use super::unroll::{Inside, Unrolled, unroll};
use crate::fault::{Fault, fault};
use crate::model::layers::{Layer, Op, Row, Size};

/// `layers` on an input of size `input`. They are called as `torch.nn.Sequential` calls them, by their
/// places, after `prefix`: `3`, or `3.0.1` for layer 1 of branch 0 of layer 3.
///
/// # Errors
///
/// The first layer that does not fit what it is run on.
pub(super) fn layers(layers: &[Unrolled], input: Size, prefix: &str) -> Result<Vec<Layer>, Fault> {
    let mut row = Row::new(prefix, input);
    for (place, Unrolled { key, layer, .. }) in layers.iter().enumerate() {
        let op = layer.op(row.output(), key, &format!("{prefix}{place}"))?;
        row.push(place.to_string(), op).map_err(|fault| fault.below(key))?;
    }
    let mut layers = row.layers();
    // In a trace a number alone says little.
    layers.iter_mut().for_each(|layer| layer.label = format!("{}{}", layer.op.kind(), layer.name));
    Ok(layers)
}

/// The branches of the layer called `name`, whose settings are at `key`, on an input of size `input`.
pub(super) fn branches(
    config: &BranchesConfig,
    input: &Size,
    key: &str,
    name: &str,
) -> Result<Op, Fault> {
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
