//! The stages of a sequential network.

use burn::tensor::Device;

use super::layers::Layers;
use super::sizes::{Layer, Size, SizedLayer};
use super::{Join, SequentialArchitecture, SequentialStage};
use crate::memory::{
    ActivationShape, Footprint, Ledger, Noted, Stage, StageSpec, Target, Traced, Window,
};

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
        Ledger::footprint(on, input, |ledger, value| vec![note(&self.layers, ledger, value)])
    }

    fn init(&self, device: &Device, seed: u64) -> Box<dyn Stage> {
        let (layers, names) = Layers::init(&self.layers, device, seed);
        let names: Vec<(&str, &str)> =
            names.iter().map(|(from, to)| (from.as_str(), to.as_str())).collect();
        Box::new(Traced::new(&self.name, &names, layers))
    }
}

/// Notes what the layers do to `value`.
fn note(layers: &[SizedLayer], ledger: &Ledger, value: Noted) -> Noted {
    layers.iter().fold(value, |value, layer| note_layer(layer, ledger, value))
}

fn note_layer(SizedLayer { layer, output, .. }: &SizedLayer, ledger: &Ledger, value: Noted) -> Noted {
    let window = |w: &super::sizes::Window| Window {
        kernel: w.kernel,
        stride: w.stride,
        padding: w.padding,
    };
    let batch = value.shape()[0];
    match layer {
        Layer::Conv { sizes, bias } => {
            let map = sizes.note(ledger, value);
            match bias {
                true => ledger.add(map, ledger.parameter(&[1, sizes.channels[1], 1, 1])),
                false => map,
            }
        }
        Layer::Linear { features: [_, output], .. } => ledger.linear(value, *output),
        Layer::Relu | Layer::Sigmoid => ledger.relu(value),
        Layer::BatchNorm(_) => match value.shape() {
            [batch, count] => {
                let (batch, count) = (*batch, *count);
                let map = ledger.reshape(value, &[batch, count, 1, 1]);
                ledger.reshape(ledger.batch_norm(map), &[batch, count])
            }
            _ => ledger.batch_norm(value),
        },
        Layer::MaxPool(of) => ledger.max_pool2d(value, window(of)),
        Layer::MeanPool(of) => ledger.avg_pool2d(value, window(of)),
        Layer::GlobalPool => ledger.mean_of_maps(value),
        Layer::Flatten => match output {
            Size::Features(count) => ledger.reshape(value, &[batch, *count]),
            Size::Map(_) => value,
        },
        Layer::Dropout(probability, _) => ledger.dropout(value, *probability),
        Layer::Branches(how, branches) => {
            let outputs = branches.iter().map(|layers| note(layers, ledger, value.clone()));
            match how {
                Join::Add => outputs.reduce(|sum, one| ledger.add(sum, one)).unwrap_or(value),
                Join::Concat => {
                    let maps = outputs.map(|output| match output.shape() {
                        [batch, count] => {
                            let (batch, count) = (*batch, *count);
                            ledger.reshape(output, &[batch, count, 1, 1])
                        }
                        _ => output,
                    });
                    let joined = ledger.cat(maps.collect());
                    match output {
                        Size::Features(count) => ledger.reshape(joined, &[batch, *count]),
                        Size::Map(_) => joined,
                    }
                }
            }
        }
    }
}
