//! The stages of a sequential network.

use burn::tensor::Device;

use super::notes::footprint;
use super::sizes::{Size, SizedLayer};
use super::stage::LayeredStage;
use super::{SequentialArchitecture, SequentialStage};
use crate::memory::{ActivationShape, Footprint, Stage, StageSpec, Target};

impl SequentialArchitecture {
    /// The stages from images to features.
    pub fn stages(&self) -> Vec<Box<dyn StageSpec>> {
        let stages = self.stages.iter().cloned();
        stages.map(|stage| Box::new(stage) as Box<dyn StageSpec>).collect()
    }
}

impl Size {
    /// The shape of `batch` of it.
    fn of_batch(self, batch: usize) -> ActivationShape {
        match self {
            Self::Map([channels, height, width]) => {
                ActivationShape::Map([batch, channels, height, width])
            }
            Self::Features(count) => ActivationShape::Features([batch, count]),
        }
    }
}

impl StageSpec for SequentialStage {
    fn name(&self) -> &str {
        &self.name
    }

    fn output(&self, input: &ActivationShape) -> ActivationShape {
        let batch = match input {
            ActivationShape::Map([batch, ..]) | ActivationShape::Features([batch, _]) => *batch,
            ActivationShape::Outputs(_) => panic!("{} was given {input:?}", self.name),
        };
        assert_eq!(self.input.of_batch(batch), *input, "{} was planned for that", self.name);
        SequentialStage::output(self).of_batch(batch)
    }

    fn parameter_count(&self) -> usize {
        self.layers.iter().map(SizedLayer::parameter_count).sum()
    }

    fn layers(&self) -> usize {
        self.layers.len()
    }

    fn footprint(&self, input: &ActivationShape, on: &Target) -> Footprint {
        footprint(&self.layers, self.input, self.first, on, input)
    }

    fn init(&self, device: &Device, seed: u64) -> Box<dyn Stage> {
        let Self { name, layers, input, first } = self;
        Box::new(LayeredStage::init(name, layers, *input, *first, device, seed))
    }
}
