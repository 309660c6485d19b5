//! A network from a list of layers.

mod config;
mod layers;
mod notes;
mod parts;
mod sizes;
mod stage;
mod stages;
mod unroll;

pub use config::*;
pub use sizes::{Layer, Size, SizedLayer};

use self::sizes::{Sizing, output};
use self::unroll::{Inside, Unrolled, unroll};
use super::{ArchitectureFault, Norm};

/// A network of layers in a row, with every size given.
#[derive(Debug, Clone, PartialEq)]
pub struct SequentialArchitecture {
    config: SequentialConfig,
    /// The stages, first to last.
    pub stages: Vec<SequentialStage>,
    /// Features that the heads see.
    pub features: usize,
}

/// Layers that are one stage of the chain.
#[derive(Debug, Clone, PartialEq)]
pub struct SequentialStage {
    /// As the user named it, or `layer` with the number of its first layer.
    pub name: String,
    /// The layers, first to last.
    pub layers: Vec<SizedLayer>,
    /// What it is run on.
    pub input: Size,
    /// Whether it is run on images, of which nobody asks for a gradient.
    pub first: bool,
}

impl SequentialStage {
    /// What it puts out.
    pub fn output(&self) -> Size {
        output(&self.layers, self.input)
    }
}

impl SequentialArchitecture {
    /// How activations are normalised, where they are.
    pub fn norm(&self) -> Norm {
        self.config.norm()
    }

    /// The configuration that resolves to this.
    pub fn to_config(&self) -> SequentialConfig {
        self.config.clone()
    }
}

fn fault(
    key: impl Into<String>,
    message: impl Into<String>,
    help: impl Into<String>,
) -> ArchitectureFault {
    ArchitectureFault { key: key.into(), message: message.into(), help: help.into() }
}

impl SequentialConfig {
    /// How activations are normalised: over the batch, if any are.
    pub fn norm(&self) -> Norm {
        if self.normalises_over_batch() { Norm::Batch } else { Norm::Group }
    }

    /// Every size of the network, for images of these channels, height and width.
    ///
    /// # Errors
    ///
    /// A layer that does not fit what it is run on, a number out of its range, or an end that heads
    /// cannot be put on.
    pub fn resolve(&self, image: [usize; 3]) -> Result<SequentialArchitecture, ArchitectureFault> {
        if self.layers.is_empty() {
            let help = "write one or more, such as `layers = [\"flatten\", { linear = { features \
                        = 10 } }]`";
            return Err(fault("layers", "`layers` is empty", help));
        }
        let unrolled = unroll(&self.layers, "layers", Inside::Chain)?;
        let image = Size::Map(image);
        let layers = Sizing { sites: 0 }.chain(&unrolled, image, "")?;
        let Size::Features(features) = output(&layers, image) else {
            let message =
                format!("the layers end in {}, and heads take features", output(&layers, image));
            let help = "put `\"flatten\"` or `\"global_pool\"` last";
            return Err(fault(format!("layers[{}]", self.layers.len() - 1), message, help));
        };
        let stages = stages(&unrolled, layers, image);
        Ok(SequentialArchitecture { config: self.clone(), stages, features })
    }
}

/// Layers as stages: those that the user put into one, else from each convolution, linear layer or
/// branches to the next, so that a stage begins where recomputing it starts to cost.
fn stages(unrolled: &[Unrolled], layers: Vec<SizedLayer>, image: Size) -> Vec<SequentialStage> {
    let costs = |layer: &Layer| {
        matches!(layer, Layer::Conv { .. } | Layer::Linear { .. } | Layer::Branches(..))
    };
    let mut stages: Vec<SequentialStage> = Vec::new();
    let mut previous: Option<&str> = None;
    for (at, layer) in unrolled.iter().zip(layers) {
        let named = at.stage.as_deref();
        let begun = stages.last().is_some_and(|stage| {
            let full = stage.layers.iter().any(|layer| costs(&layer.layer));
            previous == named && (named.is_some() || !(full && costs(&layer.layer)))
        });
        previous = named;
        match stages.last_mut() {
            Some(stage) if begun => stage.layers.push(layer),
            last => {
                let first = last.is_none();
                let input = last.map_or(image, |stage| stage.output());
                let name = named.map_or_else(|| format!("layer{}", layer.name), str::to_owned);
                stages.push(SequentialStage { name, layers: vec![layer], input, first });
            }
        }
    }
    stages
}

#[cfg(test)]
mod tests;
