//! Carries out layers on sizes.

use super::{DryOps, DryTape, DryTensor, DryValue};
use crate::model::layers::{Join, Layer, Op, Ops};
use crate::ops::group_count;

impl Ops for DryOps {
    type Value = DryValue;
    type Tape = DryTape;

    fn apply(&mut self, layer: &Layer, input: DryValue, with_relu: bool) -> DryValue {
        let input = input.one();
        DryValue::One(match &layer.op {
            Op::BatchNorm(_) | Op::GroupNorm(_) if with_relu => {
                let normal = self.apply(layer, DryValue::One(input), false).one();
                let in_place =
                    matches!(layer.op, Op::BatchNorm(_)) && self.arrays.computes_as_held();
                self.with_relu(normal, in_place || self.arrays.gpu.is_some())
            }
            Op::Conv { channels: [_, output], window, bias, .. } => {
                let map = self.convolve(input, *output, *window);
                self.biased(map, *bias)
            }
            Op::Linear { features: [_, output], bias, .. } => {
                let features = self.multiply_features(input, *output);
                self.biased(features, *bias)
            }
            Op::BatchNorm(_) => match input.shape[..] {
                [batch, features] => {
                    let map = self.reshaped(input, &[batch, features, 1, 1]);
                    self.reshaped(self.normalise_batch(map), &[batch, features])
                }
                _ => self.normalise_batch(input),
            },
            Op::GroupNorm(channels) => self.normalise_groups(input, group_count(*channels)),
            Op::Relu => self.activation(input, false),
            Op::Sigmoid => self.activation(input, true),
            Op::MaxPool(window) => self.max_pool2d(input, *window),
            Op::AvgPool(window) => self.avg_pool2d(input, *window),
            Op::GlobalPool => self.mean_of_maps(input),
            Op::Flatten => {
                let [batch, channels, height, width] = input.map();
                self.reshaped(input, &[batch, channels * height * width])
            }
            Op::Dropout(probability) => self.dropped(input, *probability),
            Op::PadChannels(more) => {
                let [batch, _, height, width] = input.map();
                let zeros = self.zeros(&[batch, *more, height, width]);
                self.cat(vec![input, zeros])
            }
            Op::Branches(..) => unreachable!("branches are a segment of their own"),
        })
    }

    fn join(&mut self, _name: &str, join: Join, outputs: Vec<DryValue>) -> DryValue {
        let outputs: Vec<DryTensor> = outputs.into_iter().map(DryValue::one).collect();
        match join {
            Join::Concat => DryValue::One(self.cat(outputs)),
            Join::Add => {
                let sum = outputs.into_iter().reduce(|sum, output| self.sum(sum, output));
                DryValue::One(sum.expect("two branches or more"))
            }
            Join::Heads => DryValue::Heads(outputs),
        }
    }

    fn split(&mut self, join: Join, channels: &[usize], joined: &DryValue) -> Vec<DryValue> {
        match (join, joined) {
            (Join::Heads, DryValue::Heads(outputs)) => {
                outputs.iter().cloned().map(DryValue::One).collect()
            }
            (Join::Add, joined) => channels.iter().map(|_| joined.clone()).collect(),
            (_, joined) => {
                let joined = joined.clone().one();
                let part = |channels: &usize| DryValue::One(self.channels(&joined, *channels));
                channels.iter().map(part).collect()
            }
        }
    }

    fn add(&mut self, left: DryValue, right: DryValue) -> DryValue {
        DryValue::One(self.sum(left.one(), right.one()))
    }

    fn record(
        &mut self,
        input: DryValue,
        asked: bool,
        layers: impl FnOnce(&mut Self, DryValue) -> DryValue,
    ) -> (DryValue, DryTape) {
        let layers = |ops: &mut Self, input| layers(ops, DryValue::One(input)).one();
        let (output, tape) = self.tape(input.one(), asked, layers);
        (DryValue::One(output), tape)
    }

    fn back(&mut self, tape: DryTape, gradient: DryValue) -> Option<DryValue> {
        self.tape_back(tape, gradient.one()).map(DryValue::One)
    }

    fn matmul_back(
        &mut self,
        layer: &Layer,
        input: DryValue,
        gradient: DryValue,
        asked: bool,
    ) -> Option<DryValue> {
        let (input, gradient) = (input.one(), gradient.one());
        let found = match &layer.op {
            Op::Conv { window, bias, .. } => {
                self.convolve_back(input, *window, *bias, gradient, asked)
            }
            Op::Linear { bias, .. } => self.multiply_features_back(input, *bias, gradient, asked),
            other => unreachable!("{} is no matrix product", other.kind()),
        };
        found.map(DryValue::One)
    }
}
