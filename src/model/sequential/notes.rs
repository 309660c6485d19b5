//! What the layers of a stage do, noted in the order in which [`super::stage`] runs them.

use super::parts::{Joint, parts, trains};
use super::sizes::{Layer, Size, SizedLayer};
use super::{Join, Norm};
use crate::memory::layered::{self, Kept, Machine};
use crate::memory::{ActivationShape, Footprint, Ledger, Noted, Tape, Target, Window};

/// What `layers` cost; nobody asks for the gradient of the input of the chain's first ones.
pub(super) fn footprint(
    layers: &[SizedLayer],
    size: Size,
    first: bool,
    on: &Target,
    input: &ActivationShape,
) -> Footprint {
    let parts = parts(layers, size);
    let forward = |ledger: &Ledger, input: Noted, keep: bool| {
        let mut notes = Notes(ledger);
        let needed = keep && layered::needs_input(&notes, &parts);
        let given = needed.then(|| input.clone());
        let (output, kept) = layered::forward(&mut notes, &parts, input, keep);
        (output, (given, kept))
    };
    let backward =
        |ledger: &Ledger, (given, kept): (Option<Noted>, Kept<Noted>), gradient: Noted| {
            layered::backward(&mut Notes(ledger), &parts, kept, given, gradient, !first)
        };
    Ledger::footprint_by_hand(on, input, forward, backward)
}

/// Runs layers on a ledger.
struct Notes<'a>(&'a Ledger);

impl<'a> Machine for Notes<'a> {
    type Product = &'a [SizedLayer];
    type Between = &'a [SizedLayer];
    type Joint = Joint;
    type Value = Noted;
    type Tape = Tape;

    fn product(&mut self, product: &Self::Product, input: Noted) -> Noted {
        note(product, self.0, input)
    }

    fn between(&mut self, layers: &Self::Between, input: Noted) -> Noted {
        note(layers, self.0, input)
    }

    fn again(&mut self, layers: &Self::Between, input: Noted, asked: bool) -> (Noted, Tape) {
        self.0.record(input, asked, |ledger, input| note(layers, ledger, input))
    }

    fn between_back(
        &mut self,
        _layers: &Self::Between,
        tape: Tape,
        gradient: Noted,
    ) -> Option<Noted> {
        self.0.back(tape, gradient)
    }

    fn product_back(
        &mut self,
        product: &Self::Product,
        input: Noted,
        gradient: Noted,
        asked: bool,
    ) -> Option<Noted> {
        match &product[0].layer {
            Layer::Conv { sizes, bias } => {
                let (kernel, stride, padding) = (sizes.kernel, sizes.stride, sizes.padding);
                let window = Window { kernel, stride, padding };
                self.0.convolution_back(input, window, *bias, gradient, asked)
            }
            Layer::Linear { bias, .. } => self.0.linear_back(input, *bias, gradient, asked),
            other => unreachable!("{other:?} is no product"),
        }
    }

    fn trains(&self, layers: &Self::Between) -> bool {
        trains(layers)
    }

    fn repeats(&self, layers: &Self::Between) -> bool {
        matches!(layers, [SizedLayer { layer: Layer::Relu, .. }])
    }

    fn join(&mut self, joint: &Joint, outputs: Vec<Noted>) -> Noted {
        match joint.how {
            Join::Concat => self.0.cat(outputs),
            Join::Add => {
                let sum = outputs.into_iter().reduce(|sum, output| self.0.add(sum, output));
                sum.expect("two branches or more")
            }
        }
    }

    fn split(&mut self, joint: &Joint, gradient: Noted) -> Vec<Noted> {
        match joint.how {
            Join::Concat => {
                let part = |channels: &usize| self.0.channels(&gradient, *channels);
                joint.channels.iter().map(part).collect()
            }
            Join::Add => joint.channels.iter().map(|_| gradient.clone()).collect(),
        }
    }

    fn add(&mut self, left: Noted, right: Noted) -> Noted {
        self.0.add(left, right)
    }
}

/// Notes `layers`, without branches, on `input`.
fn note(layers: &[SizedLayer], ledger: &Ledger, input: Noted) -> Noted {
    layers.iter().fold(input, |value, layer| note_layer(&layer.layer, ledger, value))
}

fn note_layer(layer: &Layer, ledger: &Ledger, value: Noted) -> Noted {
    match layer {
        Layer::Conv { sizes, bias } => {
            let map = sizes.note(ledger, value);
            match bias {
                true => ledger.add(map, ledger.parameter(&[1, sizes.channels[1], 1, 1])),
                false => map,
            }
        }
        Layer::Linear { features: [_, output], bias } => ledger.linear(value, *output, *bias),
        Layer::Relu => ledger.relu(value),
        Layer::Sigmoid => ledger.sigmoid(value),
        Layer::BatchNorm(_) => match *value.shape() {
            [batch, count] => {
                let map = ledger.reshape(value, &[batch, count, 1, 1]);
                ledger.reshape(Norm::Batch.note(ledger, map), &[batch, count])
            }
            _ => Norm::Batch.note(ledger, value),
        },
        Layer::MaxPool(window) => ledger.max_pool2d(value, *window),
        Layer::MeanPool(window) => ledger.avg_pool2d(value, *window),
        Layer::GlobalPool => ledger.mean_of_maps(value),
        Layer::Flatten => {
            let [batch, channels, height, width] = value.map();
            ledger.reshape(value, &[batch, channels * height * width])
        }
        Layer::Dropout(probability, _) => ledger.dropout(value, *probability),
        Layer::Branches(..) => unreachable!("branches are a part of their own"),
    }
}
