//! A network from a list of layers.

mod config;
mod layers;
mod unroll;

pub use config::*;

use self::layers::layers;
use self::unroll::{Inside, Unrolled, unroll};
use super::Norm;
use super::layers::{Layer, Op, Size, StageLayers};
use crate::fault::{Fault, fault};

impl SequentialConfig {
    /// How activations are normalised: over the batch, if any are.
    pub fn norm(&self) -> Norm {
        if config::normalises_over_batch(&self.layers) { Norm::Batch } else { Norm::Group }
    }

    /// The layers in stages, for images of these channels, height and width.
    ///
    /// # Errors
    ///
    /// A layer that does not fit what it is run on, a number out of its range, or an end that heads
    /// cannot be put on.
    pub fn resolve(&self, image: [usize; 3]) -> Result<Vec<StageLayers>, Fault> {
        if self.layers.is_empty() {
            let help = "write one or more, such as `layers = [\"flatten\", { linear = { features \
                        = 10 } }]`";
            return Err(fault("layers", "`layers` is empty", help));
        }
        let unrolled = unroll(&self.layers, "layers", Inside::Chain)?;
        let image = Size::Map(image);
        let layers = layers(&unrolled, image.clone(), "")?;
        match layers.last().map(|last| &last.output) {
            Some(Size::Features(_)) => Ok(stages(&unrolled, layers, image)),
            other => {
                let size = other.unwrap_or(&image);
                let message = format!("the layers end in {size}, and heads take features");
                let help = "put `\"flatten\"` or `\"global_pool\"` last";
                Err(fault(format!("layers[{}]", self.layers.len() - 1), message, help))
            }
        }
    }
}

/// Layers as stages: those that the user put into one, else from each convolution, linear layer or
/// branches to the next, so that a stage begins where recomputing it starts to cost.
fn stages(unrolled: &[Unrolled], layers: Vec<Layer>, image: Size) -> Vec<StageLayers> {
    let costs = |layer: &Layer| layer.op.is_matmul() || matches!(layer.op, Op::Branches(..));
    let mut stages: Vec<StageLayers> = Vec::new();
    let mut previous: Option<&str> = None;
    for (at, layer) in unrolled.iter().zip(layers) {
        let named = at.stage.as_deref();
        let begun = stages.last().is_some_and(|stage| {
            let full = stage.layers.iter().any(costs);
            previous == named && (named.is_some() || !(full && costs(&layer)))
        });
        previous = named;
        match stages.last_mut() {
            Some(stage) if begun => stage.layers.push(layer),
            last => {
                let first = last.is_none();
                let input = last.map_or(image.clone(), |stage| stage.output().clone());
                let name = named.map_or_else(|| format!("layer{}", layer.name), str::to_owned);
                stages.push(StageLayers { name, layers: vec![layer], input, first });
            }
        }
    }
    stages
}

#[cfg(test)]
mod tests;
