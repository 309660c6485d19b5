//! Normalisation of 16-bit maps, with everything computed in 32 bits.

use std::fmt::{self, Debug, Formatter};
use std::marker::PhantomData;

use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::NoCheckpointing;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::{Autodiff, Backend, DispatchDevice, DispatchKindConversion, DispatchTensor};
use burn::tensor::{DType, Tensor};

use super::primitives::{primitive, tensor};

/// What mean and variance are taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// Each channel of all images.
    Batch,
    /// So many groups of channels, in each image on its own.
    Groups(usize),
}

/// `map`, `[batch, channels, height, width]`, less its mean, over its standard deviation, times
/// `weight`, plus `bias`, `[channels]` both; in the map's numbers. Beside it mean and biased variance
/// in 32 bits, without autodiff: `[channels]` over a batch, `[batch · groups]` over groups.
///
/// Sums, statistics and the arithmetic between are 32-bit, forward and backward; what is kept for
/// the backward pass is the map as it came.
pub fn narrow_norm(
    over: Over,
    epsilon: f64,
    map: Tensor<4>,
    weight: Tensor<1>,
    bias: Tensor<1>,
) -> (Tensor<4>, [Tensor<1>; 2]) {
    let norm = Norm { over, epsilon, numbers: map.dtype(), shape: map.dims() };
    if !map.is_autodiff() && !weight.is_autodiff() {
        let statistics = norm.statistics(map.clone());
        return (norm.apply(map, &statistics, weight, bias), statistics.flat());
    }
    match map.device().inner().as_dispatch() {
        #[cfg(feature = "cuda")]
        DispatchDevice::Cube(_) => record::<burn::backend::Cube>(norm, map, weight, bias),
        #[cfg(feature = "cpu")]
        DispatchDevice::Flex(_) => record::<burn::backend::Flex>(norm, map, weight, bias),
        other => unreachable!("no backend was built for {other:?}"),
    }
}

/// The arithmetic, on tensors without autodiff. In between, maps are `[batch, groups, channels of a
/// group, pixels]`; over a batch each channel is a group.
#[derive(Debug, Clone)]
struct Norm {
    over: Over,
    epsilon: f64,
    numbers: DType,
    /// Of the map.
    shape: [usize; 4],
}

/// Mean and biased variance, one for each group, as they broadcast over a map.
#[derive(Clone)]
struct Statistics {
    mean: Tensor<4>,
    variance: Tensor<4>,
}

impl Statistics {
    fn flat(self) -> [Tensor<1>; 2] {
        [self.mean.reshape([-1]), self.variance.reshape([-1])]
    }
}

impl Norm {
    fn grouped(&self, map: Tensor<4>) -> Tensor<4> {
        let [batch, channels, height, width] = self.shape;
        let groups = self.groups();
        map.cast(DType::F32).reshape([batch, groups, channels / groups, height * width])
    }

    fn groups(&self) -> usize {
        match self.over {
            Over::Batch => self.shape[1],
            Over::Groups(groups) => groups,
        }
    }

    /// `[channels]` as it broadcasts over a map.
    fn by_channel(&self, values: Tensor<1>) -> Tensor<4> {
        let groups = self.groups();
        values.cast(DType::F32).reshape([1, groups, self.shape[1] / groups, 1])
    }

    /// One number for each group. All parts that means are taken of are equally large.
    fn mean(&self, map: Tensor<4>) -> Tensor<4> {
        let mean = map.mean_dim(3).mean_dim(2);
        match self.over {
            Over::Batch => mean.mean_dim(0),
            Over::Groups(_) => mean,
        }
    }

    fn statistics(&self, map: Tensor<4>) -> Statistics {
        let map = self.grouped(map);
        let mean = self.mean(map.clone());
        let variance = self.mean((map - mean.clone()).square());
        Statistics { mean, variance }
    }

    /// Mean 0 and variance 1, and the factor that made it so.
    fn normalised(&self, map: Tensor<4>, statistics: &Statistics) -> [Tensor<4>; 2] {
        let Statistics { mean, variance } = statistics.clone();
        let factor = variance.add_scalar(self.epsilon).sqrt().recip();
        [(self.grouped(map) - mean) * factor.clone(), factor]
    }

    fn apply(
        &self,
        map: Tensor<4>,
        statistics: &Statistics,
        weight: Tensor<1>,
        bias: Tensor<1>,
    ) -> Tensor<4> {
        let [normal, _] = self.normalised(map, statistics);
        let output = normal * self.by_channel(weight) + self.by_channel(bias);
        output.reshape(self.shape).cast(self.numbers)
    }

    /// The gradients of map, weight and bias.
    fn backward(
        &self,
        map: Tensor<4>,
        statistics: &Statistics,
        weight: Tensor<1>,
        gradient: Tensor<4>,
    ) -> (Tensor<4>, [Tensor<1>; 2]) {
        let numbers = weight.dtype();
        let [normal, factor] = self.normalised(map, statistics);
        let gradient = self.grouped(gradient);
        let of_channels = |map: Tensor<4>| {
            let sum = map.sum_dim(3).sum_dim(0);
            sum.reshape([self.shape[1]]).cast(numbers)
        };
        let of_weight = of_channels(gradient.clone() * normal.clone());
        let of_bias = of_channels(gradient.clone());
        let gradient = gradient * self.by_channel(weight);
        let projected = normal.clone() * self.mean(gradient.clone() * normal);
        let centred = gradient.clone() - self.mean(gradient);
        let of_map = (centred - projected) * factor;
        (of_map.reshape(self.shape).cast(self.numbers), [of_weight, of_bias])
    }
}

fn record<B>(
    norm: Norm,
    map: Tensor<4>,
    weight: Tensor<1>,
    bias: Tensor<1>,
) -> (Tensor<4>, [Tensor<1>; 2])
where
    B: Backend,
    DispatchTensor: DispatchKindConversion<B> + DispatchKindConversion<Autodiff<B>>,
{
    let map = primitive::<Autodiff<B>, 4>(map.autodiff());
    let [weight, bias] =
        [weight, bias].map(|values| primitive::<Autodiff<B>, 1>(values.autodiff()));
    let parents = [map.node(), weight.node(), bias.node()];
    let values = tensor::<B, 4>(map.clone().into_primitive());
    let [scale, shift] =
        [&weight, &bias].map(|values| tensor::<B, 1>(values.clone().into_primitive()));
    let statistics = norm.statistics(values.clone());
    let told = statistics.clone().flat();
    let output = primitive::<B, 4>(norm.apply(values, &statistics, scale, shift));
    let step = Step::<B>(PhantomData).prepare::<NoCheckpointing>(parents);
    let output = match step.compute_bound().stateful() {
        OpsKind::Tracked(mut prep) => {
            let (map, weight) = (prep.checkpoint(&map), prep.checkpoint(&weight));
            prep.finish(State { norm, statistics, map, weight }, output)
        }
        OpsKind::UnTracked(prep) => prep.finish(output),
    };
    (tensor::<Autodiff<B>, 4>(output), told)
}

struct Step<B>(PhantomData<B>);

impl<B> Debug for Step<B> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("NarrowNorm")
    }
}

/// What the step needs: map and weight by where autodiff keeps them.
#[derive(Clone)]
struct State {
    norm: Norm,
    statistics: Statistics,
    map: NodeId,
    weight: NodeId,
}

impl Debug for State {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        self.norm.fmt(formatter)
    }
}

impl<B> Backward<B, 3> for Step<B>
where
    B: Backend,
    DispatchTensor: DispatchKindConversion<B>,
{
    type State = State;

    fn backward(
        self,
        ops: Ops<Self::State, 3>,
        gradients: &mut Gradients,
        checkpointer: &mut Checkpointer,
    ) {
        let gradient = tensor::<B, 4>(gradients.consume::<B>(&ops.node));
        let State { norm, statistics, map, weight } = ops.state;
        let map = tensor::<B, 4>(checkpointer.retrieve_node_output(map));
        let weight = tensor::<B, 1>(checkpointer.retrieve_node_output(weight));
        let (of_map, [of_weight, of_bias]) = norm.backward(map, &statistics, weight, gradient);
        let [map, weight, bias] = ops.parents;
        if let Some(map) = map {
            gradients.register::<B>(map.id, primitive::<B, 4>(of_map));
        }
        for (parent, gradient) in [(weight, of_weight), (bias, of_bias)] {
            if let Some(parent) = parent {
                gradients.register::<B>(parent.id, primitive::<B, 1>(gradient));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::module::batch_norm_train;
    use burn::tensor::{Device, TensorData};

    use super::*;

    const SHAPE: [usize; 4] = [3, 6, 5, 7];
    const EPSILON: f64 = 1e-5;

    /// Values that are the same numbers in every type: those of bfloat16, of which fp16 has all bits.
    fn wave<const D: usize>(shape: [usize; D], speed: f64, offset: f64) -> Tensor<D> {
        let count = shape.iter().product();
        let values: Vec<f32> =
            (0..count).map(|i: usize| ((i as f64 * speed).sin() + offset) as f32).collect();
        let values: Tensor<D> = Tensor::from_data(TensorData::new(values, shape), &Device::flex());
        values.cast(DType::BF16).cast(DType::F32)
    }

    fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
        tensor.into_data().iter().collect()
    }

    /// Output, gradients of map, weight and bias, mean and variance.
    fn run(
        numbers: DType,
        norm: impl Fn(Tensor<4>, Tensor<1>, Tensor<1>) -> (Tensor<4>, [Tensor<1>; 2]),
    ) -> [Vec<f64>; 6] {
        let map = wave(SHAPE, 0.7, 0.3).cast(numbers).autodiff().require_grad();
        let parameters = if numbers == DType::F64 { DType::F64 } else { DType::F32 };
        let [weight, bias] = [(1.3, 1.5), (2.1, 0.0)].map(|(speed, offset)| {
            wave([SHAPE[1]], speed, offset).cast(parameters).autodiff().require_grad()
        });
        let (output, [mean, variance]) = norm(map.clone(), weight.clone(), bias.clone());
        assert_eq!(output.dtype(), numbers);
        let direction = wave(SHAPE, 0.9, 0.1).cast(numbers);
        let found = super::super::seed(output.clone(), direction).backward();
        let [of_weight, of_bias] =
            [weight, bias].map(|leaf| values(leaf.grad(&found).expect("a gradient")));
        let of_map = values(map.grad(&found).expect("a gradient"));
        [values(output), of_map, of_weight, of_bias, values(mean), values(variance)]
    }

    /// Output and the map's gradient are rounded once, everything else is 32-bit.
    fn agrees(numbers: DType, unit: f64, ours: &[Vec<f64>; 6], exact: &[Vec<f64>; 6]) {
        for (place, (ours, exact)) in ours.iter().zip(exact).enumerate() {
            let largest = exact.iter().fold(0.0f64, |most, value| most.max(value.abs()));
            let unit = if place < 2 { unit } else { 0.0 };
            for (ours, exact) in ours.iter().zip(exact) {
                let most = unit * exact.abs() + 1e-5 * largest;
                assert!((ours - exact).abs() <= most, "{numbers:?} {place}: {ours} {exact}");
            }
        }
    }

    const NARROW: [(DType, f64); 2] = [(DType::BF16, 1.0 / 256.0), (DType::F16, 1.0 / 2048.0)];

    #[test]
    fn over_a_batch_it_is_burns_in_64_bits_rounded_once() {
        let exact = run(DType::F64, |map, weight, bias| {
            let found = batch_norm_train(map, weight, bias, EPSILON);
            (found.output, [found.mean, found.variance].map(Tensor::without_autodiff))
        });
        for (numbers, unit) in NARROW {
            let ours = run(numbers, |map, weight, bias| {
                narrow_norm(Over::Batch, EPSILON, map, weight, bias)
            });
            agrees(numbers, unit, &ours, &exact);
        }
    }

    #[test]
    fn over_groups_it_is_what_autodiff_makes_of_64_bits_rounded_once() {
        let exact = run(DType::F64, |map, weight, bias| {
            let [batch, channels, height, width] = SHAPE;
            let grouped = map.reshape([batch, 2, channels / 2 * height * width]);
            let mean = grouped.clone().mean_dim(2);
            let centred = grouped - mean.clone();
            let variance = centred.clone().square().mean_dim(2);
            let normal = centred / variance.clone().add_scalar(EPSILON).sqrt();
            let [weight, bias] = [weight, bias].map(|values| values.reshape([1, channels, 1, 1]));
            let output = normal.reshape(SHAPE) * weight + bias;
            let statistics = [mean, variance];
            (output, statistics.map(|values| values.without_autodiff().reshape([-1])))
        });
        for (numbers, unit) in NARROW {
            let ours = run(numbers, |map, weight, bias| {
                narrow_norm(Over::Groups(2), EPSILON, map, weight, bias)
            });
            agrees(numbers, unit, &ours, &exact);
        }
    }
}
