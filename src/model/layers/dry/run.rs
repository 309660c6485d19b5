//! Carries out layers on sizes.

use super::{DryOps, DryTape, DryTensor, DryValue};
use crate::model::layers::ops::ParameterOf;
use crate::model::layers::{Join, Ops};
use crate::ops::Window;

impl Ops for DryOps {
    type Value = DryValue;
    type Tape = DryTape;

    fn shape(&self, value: &DryValue) -> Vec<usize> {
        value.clone().one().shape
    }

    fn reshape(&mut self, value: DryValue, shape: &[usize]) -> DryValue {
        DryValue::One(DryOps::reshaped(self, value.one(), shape))
    }

    fn convolution(&mut self, map: DryValue, weight: ParameterOf<'_>, window: Window) -> DryValue {
        DryValue::One(self.convolve(map.one(), weight.shape[0], window))
    }

    fn linear(&mut self, features: DryValue, weight: ParameterOf<'_>) -> DryValue {
        DryValue::One(self.multiply_features(features.one(), weight.shape[0]))
    }

    fn bias(&mut self, value: DryValue, bias: ParameterOf<'_>) -> DryValue {
        let value = value.one();
        let mut shape = vec![1; value.shape.len()];
        shape[1] = bias.shape[0];
        let bias = self.parameter(&shape);
        DryValue::One(self.sum(value, bias))
    }

    fn batch_norm(&mut self, map: DryValue, _layer: &str, _channels: usize) -> DryValue {
        DryValue::One(self.normalise_batch(map.one()))
    }

    fn batch_norm_relu(&mut self, map: DryValue, _layer: &str, _channels: usize) -> DryValue {
        let normal = self.normalise_batch(map.one());
        let together = self.arrays.computes_as_held() || self.arrays.gpu.is_some();
        DryValue::One(self.with_relu(normal, together))
    }

    fn group_norm(
        &mut self,
        map: DryValue,
        _layer: &str,
        _channels: usize,
        groups: usize,
    ) -> DryValue {
        DryValue::One(self.normalise_groups(map.one(), groups))
    }

    fn group_norm_relu(
        &mut self,
        map: DryValue,
        _layer: &str,
        _channels: usize,
        groups: usize,
    ) -> DryValue {
        let normal = self.normalise_groups(map.one(), groups);
        DryValue::One(self.with_relu(normal, self.arrays.gpu.is_some()))
    }

    fn relu(&mut self, value: DryValue) -> DryValue {
        DryValue::One(self.activation(value.one(), false))
    }

    fn sigmoid(&mut self, value: DryValue) -> DryValue {
        DryValue::One(self.activation(value.one(), true))
    }

    fn max_pool(&mut self, map: DryValue, window: Window) -> DryValue {
        DryValue::One(self.max_pool2d(map.one(), window))
    }

    fn avg_pool(&mut self, map: DryValue, window: Window) -> DryValue {
        DryValue::One(self.avg_pool2d(map.one(), window))
    }

    fn global_pool(&mut self, map: DryValue) -> DryValue {
        DryValue::One(self.mean_of_maps(map.one()))
    }

    fn dropout(&mut self, value: DryValue, _layer: &str, probability: f64) -> DryValue {
        DryValue::One(self.dropped(value.one(), probability))
    }

    fn pad_channels(&mut self, map: DryValue, channels: usize) -> DryValue {
        let map = map.one();
        let [batch, _, height, width] = map.map();
        let zeros = self.zeros(&[batch, channels, height, width]);
        DryValue::One(self.cat(vec![map, zeros]))
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

    fn convolution_back(
        &mut self,
        map: DryValue,
        _weight: ParameterOf<'_>,
        window: Window,
        bias: bool,
        gradient: DryValue,
        asked: bool,
    ) -> Option<DryValue> {
        let found = self.convolve_back(map.one(), window, bias, gradient.one(), asked);
        found.map(DryValue::One)
    }

    fn linear_back(
        &mut self,
        features: DryValue,
        _weight: ParameterOf<'_>,
        bias: bool,
        gradient: DryValue,
        asked: bool,
    ) -> Option<DryValue> {
        let found = self.multiply_features_back(features.one(), bias, gradient.one(), asked);
        found.map(DryValue::One)
    }
}
