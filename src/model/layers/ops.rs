//! The operations that layers are made of.

use super::{Join, Layer, Op, Size};
use crate::ops::{Window, group_count};

/// A parameter that an operation uses: its layer, what it is of the layer (`weight`), its shape.
#[derive(Debug, Clone, Copy)]
pub struct ParameterOf<'a> {
    /// The layer's name.
    pub layer: &'a str,
    /// What it is of the layer, such as `weight`.
    pub what: &'static str,
    /// Its shape, as PyTorch has it.
    pub shape: &'a [usize],
}

/// Carries out layers: on tensors in a training step, on sizes alone where memory is estimated. Both
/// run the same code ([`Layer::run`] and the segments of a stage), so the estimate follows what a
/// step does.
///
/// Values are maps `[batch, channels, height, width]`, features `[batch, features]`, or the outputs
/// of heads.
pub trait Ops {
    /// What flows between layers, and gradients on their way back.
    type Value: Clone;
    /// What a run of cheap layers records for their backward pass.
    type Tape;

    /// Runs `run` on `input` as `layer`.
    fn layer(
        &mut self,
        layer: &Layer,
        input: Self::Value,
        run: impl FnOnce(&mut Self, Self::Value) -> Self::Value,
    ) -> Self::Value {
        let _ = layer;
        run(self, input)
    }

    /// Whether a norm and ReLU behind it may be computed together.
    fn joins_relu(&self) -> bool {
        true
    }

    /// Notes that the backward pass of the layer called `label` in a trace has ended.
    fn ended(&mut self, label: &str) {
        let _ = label;
    }

    /// The shape of a map or of features, with the batch.
    fn shape(&self, value: &Self::Value) -> Vec<usize>;

    /// The same numbers in another shape.
    fn reshape(&mut self, value: Self::Value, shape: &[usize]) -> Self::Value;

    /// A convolution without bias.
    fn convolution(
        &mut self,
        map: Self::Value,
        weight: ParameterOf<'_>,
        window: Window,
    ) -> Self::Value;

    /// `features·weightᵀ`.
    fn linear(&mut self, features: Self::Value, weight: ParameterOf<'_>) -> Self::Value;

    /// A number added to each channel or feature.
    fn bias(&mut self, value: Self::Value, bias: ParameterOf<'_>) -> Self::Value;

    /// BatchNorm of a map, with the parameters and running statistics of `layer`.
    fn batch_norm(&mut self, map: Self::Value, layer: &str, channels: usize) -> Self::Value;

    /// [`Ops::batch_norm`] with [`Ops::relu`] behind it.
    fn batch_norm_relu(&mut self, map: Self::Value, layer: &str, channels: usize) -> Self::Value {
        let map = self.batch_norm(map, layer, channels);
        self.relu(map)
    }

    /// GroupNorm of a map, with the parameters of `layer`.
    fn group_norm(
        &mut self,
        map: Self::Value,
        layer: &str,
        channels: usize,
        groups: usize,
    ) -> Self::Value;

    /// [`Ops::group_norm`] with [`Ops::relu`] behind it.
    fn group_norm_relu(
        &mut self,
        map: Self::Value,
        layer: &str,
        channels: usize,
        groups: usize,
    ) -> Self::Value {
        let map = self.group_norm(map, layer, channels, groups);
        self.relu(map)
    }

    /// max(x, 0).
    fn relu(&mut self, value: Self::Value) -> Self::Value;

    /// 1 / (1 + exp(−x)).
    fn sigmoid(&mut self, value: Self::Value) -> Self::Value;

    /// The largest of each window.
    fn max_pool(&mut self, map: Self::Value, window: Window) -> Self::Value;

    /// The mean of each window; padding counts as zeros.
    fn avg_pool(&mut self, map: Self::Value, window: Window) -> Self::Value;

    /// The mean of each map, `[batch, channels]`.
    fn global_pool(&mut self, map: Self::Value) -> Self::Value;

    /// Dropout; the mask follows from the layer's name, the step and each image's place in the
    /// batch.
    fn dropout(&mut self, value: Self::Value, layer: &str, probability: f64) -> Self::Value;

    /// So many channels of zeros behind those of a map.
    fn pad_channels(&mut self, map: Self::Value, channels: usize) -> Self::Value;

    /// The outputs of the branches called `name` as one.
    fn join(&mut self, name: &str, join: Join, outputs: Vec<Self::Value>) -> Self::Value;

    /// What belongs to each of the values that `join` put together, which had so many channels or
    /// features. What was put one behind the other is shared, not copied.
    fn split(&mut self, join: Join, channels: &[usize], joined: &Self::Value) -> Vec<Self::Value>;

    /// The sum of two gradients of one value.
    fn add(&mut self, left: Self::Value, right: Self::Value) -> Self::Value;

    /// Runs cheap layers and records them for [`Ops::back`]. `asked` says whether that must give the
    /// gradient of the input.
    fn record(
        &mut self,
        input: Self::Value,
        asked: bool,
        layers: impl FnOnce(&mut Self, Self::Value) -> Self::Value,
    ) -> (Self::Value, Self::Tape);

    /// The backward pass of what was recorded, from the gradient of its output. Returns the gradient
    /// of its input, where that was asked for. The implementation itself collects the gradients of
    /// parameters.
    fn back(&mut self, tape: Self::Tape, gradient: Self::Value) -> Option<Self::Value>;

    /// The gradient of a convolution's map, where it is `asked` for. Those of its weight and, where it
    /// has one, of its bias are added up elsewhere.
    fn convolution_back(
        &mut self,
        map: Self::Value,
        weight: ParameterOf<'_>,
        window: Window,
        bias: bool,
        gradient: Self::Value,
        asked: bool,
    ) -> Option<Self::Value>;

    /// The same of a linear layer.
    fn linear_back(
        &mut self,
        features: Self::Value,
        weight: ParameterOf<'_>,
        bias: bool,
        gradient: Self::Value,
        asked: bool,
    ) -> Option<Self::Value>;
}

/// Runs `layers`, which have no branches, one after the other: a norm of a map and ReLU behind it together.
pub(super) fn run_row<O: Ops>(ops: &mut O, layers: &[Layer], input: O::Value) -> O::Value {
    match layers {
        [] => input,
        [norm, relu, rest @ ..]
            if ops.joins_relu()
                && let (Op::BatchNorm(_) | Op::GroupNorm(_), Size::Map(_), Op::Relu) =
                    (&norm.op, &norm.output, &relu.op) =>
        {
            let value = ops.layer(norm, input, |ops, input| match norm.op {
                Op::GroupNorm(channels) => {
                    ops.group_norm_relu(input, &norm.name, channels, group_count(channels))
                }
                _ => ops.batch_norm_relu(input, &norm.name, norm.output.channels()),
            });
            let value = ops.layer(relu, value, |_, value| value);
            run_row(ops, rest, value)
        }
        [layer, rest @ ..] => {
            let value = layer.run(ops, input);
            run_row(ops, rest, value)
        }
    }
}

impl Layer {
    /// Runs the layer, which has no branches.
    pub(super) fn run<O: Ops>(&self, ops: &mut O, input: O::Value) -> O::Value {
        ops.layer(self, input, |ops, input| self.apply(ops, input))
    }

    fn apply<O: Ops>(&self, ops: &mut O, input: O::Value) -> O::Value {
        let name = self.name.as_str();
        let shape = self.op.weight_shape();
        let weight = ParameterOf { layer: name, what: "weight", shape: &shape };
        let bias = |ops: &mut O, value, count: usize| {
            ops.bias(value, ParameterOf { layer: name, what: "bias", shape: &[count] })
        };
        match &self.op {
            Op::Conv { channels: [_, output], window, bias: biased, .. } => {
                let map = ops.convolution(input, weight, *window);
                if *biased { bias(ops, map, *output) } else { map }
            }
            Op::Linear { features: [_, output], bias: biased, .. } => {
                let value = ops.linear(input, weight);
                if *biased { bias(ops, value, *output) } else { value }
            }
            Op::BatchNorm(channels) => match ops.shape(&input)[..] {
                [batch, features] => {
                    let map = ops.reshape(input, &[batch, features, 1, 1]);
                    let map = ops.batch_norm(map, name, *channels);
                    ops.reshape(map, &[batch, features])
                }
                _ => ops.batch_norm(input, name, *channels),
            },
            Op::GroupNorm(channels) => {
                ops.group_norm(input, name, *channels, group_count(*channels))
            }
            Op::Relu => ops.relu(input),
            Op::Sigmoid => ops.sigmoid(input),
            Op::MaxPool(window) => ops.max_pool(input, *window),
            Op::AvgPool(window) => ops.avg_pool(input, *window),
            Op::GlobalPool => ops.global_pool(input),
            Op::Flatten => {
                let shape = ops.shape(&input);
                ops.reshape(input, &[shape[0], shape[1..].iter().product()])
            }
            Op::Dropout(probability) => ops.dropout(input, name, *probability),
            Op::PadChannels(channels) => ops.pad_channels(input, *channels),
            Op::Branches(..) => unreachable!("branches are a segment of their own"),
        }
    }

    /// The gradient of a convolution's or a linear layer's input, where it is `asked` for. Those of
    /// the parameters are added up elsewhere.
    pub(super) fn matmul_back<O: Ops>(
        &self,
        ops: &mut O,
        input: O::Value,
        gradient: O::Value,
        asked: bool,
    ) -> Option<O::Value> {
        let shape = self.op.weight_shape();
        let weight = ParameterOf { layer: &self.name, what: "weight", shape: &shape };
        let of_input = match &self.op {
            Op::Conv { window, bias, .. } => {
                ops.convolution_back(input, weight, *window, *bias, gradient, asked)
            }
            Op::Linear { bias, .. } => ops.linear_back(input, weight, *bias, gradient, asked),
            other => unreachable!("{} is no matrix product", other.kind()),
        };
        ops.ended(&self.label);
        of_input
    }
}
