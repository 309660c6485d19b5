//! Heads over the pooled features: one tensor of outputs each.

use burn::module::Module;
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor};

use super::layer::{Dropout, Linear};
use super::{HeadConfig, Task};
use crate::memory::{
    Activation, ActivationShape, Footprint, Forward, Ledger, Noted, Pass, Stage, StageSpec, Target,
    Traced, module,
};
use crate::random;

/// Where the dropout sites of heads begin; those of the network are below.
const FIRST_SITE: u64 = 1_000_000;

impl HeadConfig {
    /// How many numbers the head puts out for an image.
    pub fn outputs(&self) -> usize {
        match self.task {
            Task::Binary => 1,
            Task::Multilabel | Task::Multiclass | Task::Regression => self.labels.len(),
        }
    }

    /// Widths from the features to the outputs, between which layers lie.
    fn widths(&self, features: usize) -> Vec<usize> {
        if self.direct {
            return vec![features];
        }
        std::iter::once(features)
            .chain(self.hidden.iter().copied())
            .chain([self.outputs()])
            .collect()
    }

    fn note(&self, ledger: &Ledger, features: Noted) -> Noted {
        if self.direct {
            return features;
        }
        let dropped = |value| ledger.dropout(value, self.dropout);
        let hidden = self.hidden.iter().fold(features, |value, width| {
            ledger.relu(ledger.linear(dropped(value), *width, true))
        });
        ledger.linear(dropped(hidden), self.outputs(), true)
    }
}

/// The last stage: all heads, over `features` pooled features.
pub struct HeadsSpec {
    /// The heads, in the order of the configuration.
    pub heads: Vec<HeadConfig>,
    /// The width of the pooled features.
    pub features: usize,
}

#[derive(Module, Debug)]
struct Heads {
    head: Vec<Head>,
}

/// Hidden layers with ReLU, each after dropout, then a linear layer; or nothing at all.
#[derive(Module, Debug)]
struct Head {
    hidden: Vec<Linear>,
    output: Option<Linear>,
    dropout: Vec<Dropout>,
    #[module(skip)]
    name: String,
}

impl StageSpec for HeadsSpec {
    fn name(&self) -> &str {
        "heads"
    }

    fn output(&self, input: &ActivationShape) -> ActivationShape {
        let ActivationShape::Features([batch, _]) = input else {
            panic!("heads were given {input:?}");
        };
        ActivationShape::Outputs(self.heads.iter().map(|head| [*batch, head.outputs()]).collect())
    }

    fn parameter_count(&self) -> usize {
        let widths = self.heads.iter().map(|head| head.widths(self.features));
        widths.map(|widths| widths.windows(2).map(|w| w[0] * w[1] + w[1]).sum::<usize>()).sum()
    }

    fn layers(&self) -> usize {
        self.heads.iter().map(|head| 1 + head.hidden.len()).sum()
    }

    fn footprint(&self, input: &ActivationShape, on: &Target) -> Footprint {
        Ledger::footprint(on, input, |ledger, features| {
            self.heads.iter().map(|head| head.note(ledger, features.clone())).collect()
        })
    }

    fn init(&self, device: &Device, seed: u64) -> Box<dyn Stage> {
        let heads = self.heads.iter().enumerate();
        let heads = Heads {
            head: heads
                .map(|(index, head)| init(head, index, self.features, device, seed))
                .collect(),
        };
        let renames: Vec<(String, String)> = (self.heads.iter().enumerate())
            .flat_map(|(index, head)| {
                let (from, to) =
                    (format!("head{}.", index + 1), format!("classifier.{}.", head.name));
                [(format!("{from}output."), to.clone()), (from, to)]
            })
            .collect();
        let renames: Vec<_> =
            renames.iter().map(|(from, to)| (from.as_str(), to.as_str())).collect();
        Box::new(Traced::new("heads", &renames, heads))
    }
}

fn init(head: &HeadConfig, index: usize, features: usize, device: &Device, seed: u64) -> Head {
    let mut random = random::stream(seed, &format!("init/classifier.{}", head.name), &[]);
    let widths = head.widths(features);
    let layers = widths.windows(2).map(|w| Linear::init(w[0], w[1], device, &mut random));
    let mut layers: Vec<Linear> = layers.collect();
    let site = |layer: usize| FIRST_SITE + (index * 1000 + layer) as u64;
    let dropout = (0..layers.len()).map(|layer| Dropout::new(head.dropout, site(layer)));
    let dropout = dropout.collect();
    let output = layers.pop();
    Head { hidden: layers, output, dropout, name: head.name.clone() }
}

impl Forward for Heads {
    fn forward(&self, input: Activation, pass: &Pass) -> Activation {
        let features = input.into_features();
        let outputs = self.head.iter().map(|head| {
            module(&head.name, features.clone(), |features| head.forward(features, pass))
        });
        Activation::Outputs(outputs.collect())
    }
}

impl Head {
    fn forward(&self, features: Tensor<2>, pass: &Pass) -> Tensor<2> {
        let hidden =
            self.hidden.iter().zip(&self.dropout).fold(features, |value, (layer, dropout)| {
                relu(layer.forward(dropout.forward(value, pass)))
            });
        match (&self.output, self.dropout.last()) {
            (Some(output), Some(dropout)) => output.forward(dropout.forward(hidden, pass)),
            _ => hidden,
        }
    }
}
