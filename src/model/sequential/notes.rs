//! What the layers of a stage do, noted in the order in which [`super::layers`] runs them.

use super::sizes::{Layer, SizedLayer};
use super::{Join, Norm};
use crate::memory::{Ledger, Noted};

/// Notes `layers` on `input`.
pub(super) fn note(layers: &[SizedLayer], ledger: &Ledger, input: Noted) -> Noted {
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
        Layer::Branches(join, branches) => {
            let outputs: Vec<Noted> =
                branches.iter().map(|layers| note(layers, ledger, value.clone())).collect();
            match join {
                Join::Concat => ledger.cat(outputs),
                Join::Add => outputs
                    .into_iter()
                    .reduce(|sum, output| ledger.add(sum, output))
                    .expect("two branches or more"),
            }
        }
    }
}
