//! The one form of a network: stages of named layers.
//!
//! DenseNet, ResNet, `[model.sequential]` and the heads are lists of [`Layer`]s with torchvision's
//! names. Everything else follows from such a list: the shapes and the parameters of each layer
//! ([`Op`]), the initial weights ([`ParameterSpec`]), the forward and the backward pass
//! ([`LayerStage`]), and what they cost, for which the same passes run on sizes alone.

mod dry;
mod op;
mod ops;
mod parameters;
mod segment;
mod size;
mod spec;
mod stage;
mod tensors;

pub use op::{Init, Join, Layer, Op};
pub use ops::Ops;
pub use parameters::ParameterSpec;
pub use size::Size;
pub use spec::LayerStageSpec;
pub use stage::LayerStage;

use crate::fault::Fault;

/// The layers of one stage, which is kept or recomputed as a whole.
#[derive(Debug, Clone, PartialEq)]
pub struct StageLayers {
    /// Names the stage; unique in the chain.
    pub name: String,
    /// The layers, first to last.
    pub layers: Vec<Layer>,
    /// What the first layer is run on.
    pub input: Size,
    /// Whether that is images, whose gradient nobody needs.
    pub first: bool,
}

impl StageLayers {
    /// What the last layer gives.
    pub fn output(&self) -> &Size {
        self.layers.last().map_or(&self.input, |last| &last.output)
    }

    /// The parameters and running statistics of all layers, in the order in which they run.
    pub fn parameters(&self) -> Vec<ParameterSpec> {
        all_layers(&self.layers).into_iter().flat_map(Layer::parameters).collect()
    }
}

/// What the last of `stages` gives, of which there is one at least.
pub(super) fn last_output(stages: &[StageLayers]) -> Size {
    stages.last().expect("there is a stage").output().clone()
}

/// Each of `layers`, those of branches included, in the order in which they run.
pub fn all_layers(layers: &[Layer]) -> Vec<&Layer> {
    let mut all = Vec::new();
    for layer in layers {
        all.push(layer);
        if let Op::Branches(_, rows) = &layer.op {
            all.extend(rows.iter().flat_map(|row| all_layers(row)));
        }
    }
    all
}

/// Puts layers one behind the other, each run on the output of the one before.
#[derive(Debug)]
pub struct Row {
    /// Stands before the names of the layers.
    prefix: String,
    input: Size,
    layers: Vec<Layer>,
}

impl Row {
    /// No layers yet, on an input of this size. `prefix` stands before the layers' names, such as
    /// `features.denseblock1.`.
    pub fn new(prefix: impl Into<String>, input: Size) -> Self {
        Self { prefix: prefix.into(), input, layers: Vec::new() }
    }

    /// What the last layer gives.
    pub fn output(&self) -> &Size {
        self.layers.last().map_or(&self.input, |last| &last.output)
    }

    /// Adds a layer, which is called `label` within the stage.
    ///
    /// # Errors
    ///
    /// When it does not fit what it is run on.
    pub fn push(&mut self, label: impl Into<String>, op: Op) -> Result<(), Fault> {
        let label = label.into();
        let output = op.output(self.output())?;
        self.layers.push(Layer { name: format!("{}{label}", self.prefix), label, op, output });
        Ok(())
    }

    /// The layers.
    pub fn layers(self) -> Vec<Layer> {
        self.layers
    }

    /// A stage of these layers; `first` where they are run on images.
    pub fn stage(self, name: impl Into<String>, first: bool) -> StageLayers {
        StageLayers { name: name.into(), layers: self.layers, input: self.input, first }
    }
}

#[cfg(test)]
mod tests;
