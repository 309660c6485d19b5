//! Layers on tensors.

use std::collections::BTreeMap;

use burn::tensor::Tensor;
use burn::tensor::activation::{relu, sigmoid};

use super::{Join, Layer, Op, Ops};
use crate::memory::measure::{again, ended};
use crate::memory::{
    Activation, Gradients, Pass, Purpose, Statistics, add_gradient, fault, module,
};
use crate::ops::{
    self, MatmulPrecision, avg_pool, bias_gradient, biased, convolution, convolution_gradients,
    global_pool, group_count, inner_product, linear, linear_gradients, max_pool,
};
use crate::parallel::Across;

/// Runs layers on tensors in a training step or an evaluation.
pub(super) struct TensorOps<'a> {
    values: BTreeMap<&'a str, &'a Tensor<1>>,
    matmul: MatmulPrecision,
    pass: &'a Pass,
    /// Where the statistics of the batch go.
    statistics: &'a mut Statistics,
    /// Where the gradients of parameters go.
    gradients: &'a mut Gradients,
    /// The parameters that were used, while layers are recorded.
    leaves: Option<Vec<(String, Tensor<1>)>>,
}

/// Recorded layers: autodiff's graph from their input and parameters to their output.
pub(super) struct Tape {
    input: Activation,
    /// Whether the gradient of the input is asked for.
    asked: bool,
    leaves: Vec<(String, Tensor<1>)>,
    output: Activation,
}

impl<'a> TensorOps<'a> {
    pub fn new(
        values: BTreeMap<&'a str, &'a Tensor<1>>,
        matmul: MatmulPrecision,
        pass: &'a Pass,
        statistics: &'a mut Statistics,
        gradients: &'a mut Gradients,
    ) -> Self {
        Self { values, matmul, pass, statistics, gradients, leaves: None }
    }

    /// A parameter; a leaf of autodiff while layers are recorded.
    fn parameter(&mut self, layer: &str, what: &str) -> Tensor<1> {
        let name = format!("{layer}.{what}");
        let value = self.values[name.as_str()].clone();
        match &mut self.leaves {
            Some(leaves) => {
                let leaf = value.autodiff().require_grad();
                leaves.push((name, leaf.clone()));
                leaf
            }
            None => value,
        }
    }

    /// The weight of a convolution or a linear layer.
    fn weight<const D: usize>(&mut self, layer: &Layer) -> Tensor<D> {
        let shape: Result<[usize; D], _> = layer.op.weight_shape().try_into();
        self.parameter(&layer.name, "weight")
            .reshape(shape.expect("the rank of the layer's weight"))
    }

    /// Adds the bias of a layer, where it has one.
    fn biased<const D: usize>(&mut self, value: Tensor<D>, layer: &str, bias: bool) -> Tensor<D> {
        if bias { biased(value, self.parameter(layer, "bias")) } else { value }
    }

    /// Lets the running statistic move towards that of the batch.
    fn report(&mut self, layer: &str, what: &str, value: Tensor<1>) {
        if self.pass.purpose() == Purpose::First {
            self.statistics.insert(format!("{layer}.{what}"), value.without_autodiff());
        }
    }

    /// BatchNorm, with ReLU behind it or not.
    fn normalised(&mut self, map: Activation, layer: &str, with_relu: bool) -> Activation {
        let map = map.into_map();
        let [weight, bias] = ["weight", "bias"].map(|what| self.parameter(layer, what));
        if !self.pass.trains() {
            let [mean, variance] = ["running_mean", "running_var"]
                .map(|what| self.values[format!("{layer}.{what}").as_str()].clone());
            let output = ops::batch_norm_evaluation(map, weight, bias, mean, variance);
            return Activation::Map(if with_relu { relu(output) } else { output });
        }
        let [batch, _, height, width] = map.dims();
        let across = self.pass.across(layer);
        let images = across.as_ref().map_or(batch, Across::images);
        let count = (images * height * width) as f64;
        let (output, [mean, variance]) = ops::batch_norm(map, weight, bias, across, with_relu);
        // PyTorch normalises by the biased variance and keeps the unbiased one.
        let unbiased = variance.mul_scalar(count / (count - 1.0).max(1.0));
        self.report(layer, "running_mean", mean);
        self.report(layer, "running_var", unbiased);
        Activation::Map(output)
    }

    /// GroupNorm, with ReLU behind it or not.
    fn grouped(
        &mut self,
        map: Activation,
        layer: &str,
        groups: usize,
        with_relu: bool,
    ) -> Activation {
        let [weight, bias] = ["weight", "bias"].map(|what| self.parameter(layer, what));
        Activation::Map(ops::group_norm(map.into_map(), weight, bias, groups, with_relu))
    }
}

impl Ops for TensorOps<'_> {
    type Value = Activation;
    type Tape = Tape;

    fn layer(
        &mut self,
        layer: &Layer,
        input: Activation,
        run: impl FnOnce(&mut Self, Activation) -> Activation,
    ) -> Activation {
        let given = self.pass.probe().map(|_| input.clone());
        let output = module(&layer.label, input, |input| run(self, input));
        let output = match fault::spoils(&layer.name) {
            true => each(output, |map| map * f32::NAN, |features| features * f32::NAN),
            false => output,
        };
        if let Some((probe, given)) = self.pass.probe().zip(given) {
            probe.look(&layer.name, &[given], &output);
        }
        output
    }

    fn joins_relu(&self) -> bool {
        self.pass.probe().is_none()
    }

    fn apply(&mut self, layer: &Layer, input: Activation, with_relu: bool) -> Activation {
        let name = layer.name.as_str();
        match &layer.op {
            Op::Conv { window, bias, .. } => {
                let weight = self.weight(layer);
                let map = convolution(self.matmul, input.into_map(), weight, *window);
                Activation::Map(self.biased(map, name, *bias))
            }
            Op::Linear { bias, .. } => {
                let weight = self.weight(layer);
                let features = linear(self.matmul, input.into_features(), weight);
                Activation::Features(self.biased(features, name, *bias))
            }
            Op::BatchNorm(_) => match input {
                Activation::Features(features) => {
                    let [batch, count] = features.dims();
                    let map = Activation::Map(features.reshape([batch, count, 1, 1]));
                    let map = self.normalised(map, name, with_relu).into_map();
                    Activation::Features(map.reshape([batch, count]))
                }
                map => self.normalised(map, name, with_relu),
            },
            Op::GroupNorm(channels) => self.grouped(input, name, group_count(*channels), with_relu),
            Op::Relu => each(input, relu, relu),
            Op::Sigmoid => each(input, sigmoid, sigmoid),
            Op::MaxPool(window) => Activation::Map(max_pool(input.into_map(), *window)),
            Op::AvgPool(window) => Activation::Map(avg_pool(input.into_map(), *window)),
            Op::GlobalPool => Activation::Features(global_pool(input.into_map())),
            Op::Flatten => {
                let map = input.into_map();
                let [batch, channels, height, width] = map.dims();
                Activation::Features(map.reshape([batch, channels * height * width]))
            }
            Op::Dropout(probability) => {
                if *probability == 0.0 || !self.pass.trains() {
                    return input;
                }
                let dropout = self.pass.dropout(name, *probability);
                each(
                    input,
                    |map| ops::dropout(map, dropout),
                    |values| ops::dropout(values, dropout),
                )
            }
            Op::PadChannels(more) => {
                let map = input.into_map();
                let [batch, _, height, width] = map.dims();
                let zeros =
                    Tensor::zeros([batch, *more, height, width], (&map.device(), map.dtype()));
                Activation::Map(ops::joined(vec![map, zeros]))
            }
            Op::Branches(..) => unreachable!("branches are a segment of their own"),
        }
    }

    fn join(&mut self, name: &str, join: Join, outputs: Vec<Activation>) -> Activation {
        let given = self.pass.probe().map(|_| outputs.clone());
        let output = joined(join, outputs);
        // Of finite numbers a sum alone can be more than the precision holds.
        if let Some((probe, given)) = self.pass.probe().zip(given).filter(|_| join == Join::Add) {
            probe.look(&format!("{}.sum", name.trim_end_matches('.')), &given, &output);
        }
        output
    }

    fn split(&mut self, join: Join, channels: &[usize], joined: &Activation) -> Vec<Activation> {
        match (join, joined) {
            (Join::Heads, Activation::Outputs(outputs)) => {
                outputs.iter().cloned().map(Activation::Features).collect()
            }
            (Join::Concat | Join::Heads, joined) => {
                let starts = channels.iter().scan(0, |start, channels| {
                    *start += channels;
                    Some(*start - channels)
                });
                let part = |(start, channels): (usize, &usize)| match joined {
                    Activation::Features(values) => {
                        Activation::Features(values.clone().narrow(1, start, *channels))
                    }
                    map => Activation::Map(map.clone().into_map().narrow(1, start, *channels)),
                };
                starts.zip(channels).map(part).collect()
            }
            (Join::Add, joined) => channels.iter().map(|_| joined.clone()).collect(),
        }
    }

    fn add(&mut self, left: Activation, right: Activation) -> Activation {
        joined(Join::Add, vec![left, right])
    }

    fn record(
        &mut self,
        input: Activation,
        asked: bool,
        layers: impl FnOnce(&mut Self, Activation) -> Activation,
    ) -> (Activation, Tape) {
        let input = input.into_autodiff(asked);
        self.leaves = Some(Vec::new());
        // The statistics of the batch were reported when it ran first.
        let output = again(|| layers(self, input.clone()));
        let leaves = self.leaves.take().unwrap_or_default();
        (output.clone().into_values(), Tape { input, asked, leaves, output })
    }

    fn back(&mut self, tape: Tape, gradient: Activation) -> Option<Activation> {
        let Tape { input, asked, leaves, output } = tape;
        let mut found = inner_product_of(output, gradient).backward();
        for (name, leaf) in leaves {
            if let Some(gradient) = leaf.grad_remove(&mut found) {
                add_gradient(self.gradients, &name, gradient);
            }
        }
        asked.then(|| input.gradient(&mut found))
    }

    fn matmul_back(
        &mut self,
        layer: &Layer,
        input: Activation,
        gradient: Activation,
        asked: bool,
    ) -> Option<Activation> {
        let [weight_name, bias_name] =
            ["weight", "bias"].map(|what| format!("{}.{what}", layer.name));
        // What numbers the bias is held in, where there is one.
        let dtype = |bias: bool| bias.then(|| self.values[bias_name.as_str()].dtype());
        let (of_input, of_weight, of_bias) = match &layer.op {
            Op::Conv { window, bias, .. } => {
                let gradient = gradient.into_map();
                let of_bias = dtype(*bias).map(|dtype| bias_gradient(gradient.clone(), dtype));
                let factors = [input.into_map(), self.weight(layer)];
                let (of_map, of_weight) =
                    convolution_gradients(self.matmul, factors, *window, gradient, asked);
                (of_map.map(Activation::Map), of_weight.reshape([-1]), of_bias)
            }
            Op::Linear { bias, .. } => {
                let gradient = gradient.into_features();
                let of_bias = dtype(*bias).map(|dtype| bias_gradient(gradient.clone(), dtype));
                let factors = [input.into_features(), self.weight(layer)];
                let (of_features, of_weight) =
                    linear_gradients(self.matmul, factors, gradient, asked);
                (of_features.map(Activation::Features), of_weight.reshape([-1]), of_bias)
            }
            other => unreachable!("{} is no matrix product", other.kind()),
        };
        add_gradient(self.gradients, &weight_name, of_weight);
        if let Some(of_bias) = of_bias {
            add_gradient(self.gradients, &bias_name, of_bias);
        }
        ended(&layer.label);
        of_input
    }
}

/// The outputs of branches as one.
fn joined(join: Join, outputs: Vec<Activation>) -> Activation {
    if join == Join::Heads {
        let outputs = outputs.into_iter().map(Activation::into_features).collect();
        return Activation::Outputs(outputs);
    }
    if matches!(outputs.first(), Some(Activation::Features(_))) {
        let outputs = outputs.into_iter().map(Activation::into_features);
        return Activation::Features(match join {
            Join::Add => outputs.reduce(Tensor::add).expect("two branches or more"),
            _ => Tensor::cat(outputs.collect(), 1),
        });
    }
    let outputs = outputs.into_iter().map(Activation::into_map);
    Activation::Map(match join {
        Join::Add => outputs.reduce(ops::added).expect("two branches or more"),
        _ => ops::joined(outputs.collect()),
    })
}

/// Applies what works on maps and on features alike.
fn each(
    input: Activation,
    to_map: impl FnOnce(Tensor<4>) -> Tensor<4>,
    to_features: impl FnOnce(Tensor<2>) -> Tensor<2>,
) -> Activation {
    match input {
        Activation::Features(features) => Activation::Features(to_features(features)),
        map => Activation::Map(to_map(map.into_map())),
    }
}

/// `[1]`: what has the derivative of Σ value·gradient.
fn inner_product_of(value: Activation, gradient: Activation) -> Tensor<1> {
    match (value, gradient) {
        (Activation::Features(value), Activation::Features(gradient)) => {
            inner_product(value, gradient)
        }
        (value, gradient) => inner_product(value.into_map(), gradient.into_map()),
    }
}
