//! Layers without branches, ready to run.

use burn::module::Module;
use burn::tensor::activation::{relu, sigmoid};
use burn::tensor::module::max_pool2d;
use burn::tensor::ops::{AvgPoolOptions, MaxPoolOptions};
use burn::tensor::{Device, Tensor};

use super::sizes::{Layer, SizedLayer};
use super::{Join, Norm};
use crate::memory::{Activation, Forward, Pass, Window, module};
use crate::model::layer::{Conv2d, Dropout, Linear, NormLayer};
use crate::ops::reference::{mean, mean_pool};
use crate::ops::{
    Products, bias_gradient, biased, convolution, convolution_gradients, linear_gradients,
};
use crate::random;

/// What has parameters, and how it is run: the steps say which of them they use.
#[derive(Module, Debug)]
pub(super) struct Layers {
    conv: Vec<Conv2d>,
    linear: Vec<Linear>,
    norm: Vec<NormLayer>,
    #[module(skip)]
    steps: Vec<NamedStep>,
}

/// A layer and what it is called, such as `conv3`.
#[derive(Debug, Clone)]
struct NamedStep {
    name: String,
    step: Step,
}

/// A layer; numbers without a name are places in the lists.
#[derive(Debug, Clone)]
enum Step {
    Conv { at: usize, stride: usize, padding: usize },
    Linear(usize),
    Relu,
    Sigmoid,
    BatchNorm(usize),
    MaxPool(Window),
    MeanPool(Window),
    GlobalPool,
    Flatten,
    Dropout(Dropout),
}

impl Step {
    /// As the configuration calls it.
    fn kind(&self) -> &'static str {
        match self {
            Self::Conv { .. } => "conv",
            Self::Linear(_) => "linear",
            Self::Relu => "relu",
            Self::Sigmoid => "sigmoid",
            Self::BatchNorm(_) => "batch_norm",
            Self::MaxPool(_) => "max_pool",
            Self::MeanPool(_) => "mean_pool",
            Self::GlobalPool => "global_pool",
            Self::Flatten => "flatten",
            Self::Dropout(_) => "dropout",
        }
    }
}

impl Layers {
    /// The layers with weights drawn from `seed`, and how each list's elements are called.
    pub fn init(
        layers: &[SizedLayer],
        device: &Device,
        seed: u64,
    ) -> (Self, Vec<(String, String)>) {
        let empty = Self { conv: vec![], linear: vec![], norm: vec![], steps: vec![] };
        let mut init = Init { device, seed, layers: empty, names: vec![] };
        init.layers.steps = init.steps(layers);
        (init.layers, init.names)
    }
}

struct Init<'a> {
    device: &'a Device,
    seed: u64,
    layers: Layers,
    names: Vec<(String, String)>,
}

impl Init<'_> {
    fn steps(&mut self, layers: &[SizedLayer]) -> Vec<NamedStep> {
        let named = |layer: &SizedLayer| {
            let step = self.step(layer);
            NamedStep { name: format!("{}{}", step.kind(), layer.name), step }
        };
        layers.iter().map(named).collect()
    }

    fn step(&mut self, SizedLayer { name, layer, .. }: &SizedLayer) -> Step {
        let mut random = random::stream(self.seed, &format!("init/sequential.{name}"), &[]);
        match layer {
            Layer::Conv { sizes, bias } => {
                let conv = sizes.init_default(*bias, self.device, &mut random);
                self.layers.conv.push(conv);
                let at = self.called("conv", self.layers.conv.len(), name);
                Step::Conv { at, stride: sizes.stride, padding: sizes.padding }
            }
            Layer::Linear { features, bias } => {
                let linear = Linear::init_default(*features, *bias, self.device, &mut random);
                self.layers.linear.push(linear);
                Step::Linear(self.called("linear", self.layers.linear.len(), name))
            }
            Layer::BatchNorm(channels) => {
                self.layers.norm.push(NormLayer::init(Norm::Batch, *channels, self.device));
                Step::BatchNorm(self.called("norm", self.layers.norm.len(), name))
            }
            Layer::Relu => Step::Relu,
            Layer::Sigmoid => Step::Sigmoid,
            Layer::MaxPool(window) => Step::MaxPool(*window),
            Layer::MeanPool(window) => Step::MeanPool(*window),
            Layer::GlobalPool => Step::GlobalPool,
            Layer::Flatten => Step::Flatten,
            Layer::Dropout(probability, site) => Step::Dropout(Dropout::new(*probability, *site)),
            Layer::Branches(..) => unreachable!("branches are a part of their own"),
        }
    }

    /// Notes that the list's last of `count` elements is called `name`; its place.
    fn called(&mut self, list: &str, count: usize, name: &str) -> usize {
        self.names.push((format!("{list}{count}."), format!("{name}.")));
        count - 1
    }
}

impl Forward for Layers {
    fn forward(&self, input: Activation, pass: &Pass) -> Activation {
        self.steps.iter().fold(input, |value, NamedStep { name, step }| {
            module(name, value, |value| self.step(step, value, pass))
        })
    }
}

impl Layers {
    /// What the first layer is called, such as `conv3`.
    pub fn first_name(&self) -> &str {
        &self.steps[0].name
    }

    /// Whether some of them have parameters.
    pub fn has_parameters(&self) -> bool {
        !(self.conv.is_empty() && self.linear.is_empty() && self.norm.is_empty())
    }

    /// Whether it is ReLU alone.
    pub fn is_relu(&self) -> bool {
        matches!(self.steps[..], [NamedStep { step: Step::Relu, .. }])
    }

    /// Of a single convolution or fully connected layer: the gradient of its `input`, where that is
    /// `asked` for, and those of its weight and, where it has one, its bias, flattened.
    pub fn product_back(
        &self,
        products: Products,
        input: Activation,
        gradient: Activation,
        asked: bool,
    ) -> (Option<Activation>, Vec<Tensor<1>>) {
        match self.steps[0].step {
            Step::Conv { at, stride, padding } => {
                let (layer, gradient) = (&self.conv[at], gradient.into_map());
                let of_bias =
                    layer.bias().map(|bias| bias_gradient(gradient.clone(), bias.dtype()));
                let factors = [input.into_map(), layer.weight()];
                let window = [stride, padding];
                let (of_input, of_weight) =
                    convolution_gradients(products, factors, window, gradient, asked);
                let found = [of_weight.reshape([-1])].into_iter().chain(of_bias).collect();
                (of_input.map(Activation::Map), found)
            }
            Step::Linear(at) => {
                let (layer, gradient) = (&self.linear[at], gradient.into_features());
                let of_bias =
                    layer.bias().map(|bias| bias_gradient(gradient.clone(), bias.dtype()));
                let (input, weight) = (input.into_features(), layer.weight());
                let (of_input, of_weight) =
                    linear_gradients(products, input, weight, gradient, asked);
                let found = [of_weight.reshape([-1])].into_iter().chain(of_bias).collect();
                (of_input.map(Activation::Features), found)
            }
            ref other => unreachable!("{} is no product", other.kind()),
        }
    }

    fn step(&self, step: &Step, input: Activation, pass: &Pass) -> Activation {
        match step {
            Step::Conv { at, stride, padding } => {
                let conv = &self.conv[*at];
                let map = convolution(input.into_map(), conv.weight(), *stride, *padding);
                Activation::Map(match conv.bias() {
                    Some(bias) => biased(map, bias),
                    None => map,
                })
            }
            Step::Linear(at) => {
                Activation::Features(self.linear[*at].forward(input.into_features()))
            }
            Step::Relu => each(input, relu, relu),
            Step::Sigmoid => each(input, sigmoid, sigmoid),
            Step::BatchNorm(at) => {
                let norm = &self.norm[*at];
                let of_features = |features: Tensor<2>| {
                    let [batch, count] = features.dims();
                    let map = features.reshape([batch, count, 1, 1]);
                    norm.forward(map, pass).reshape([batch, count])
                };
                each(input, |map| norm.forward(map, pass), of_features)
            }
            Step::MaxPool(Window { kernel, stride, padding }) => {
                let options = MaxPoolOptions::new([*kernel; 2])
                    .with_stride([*stride; 2])
                    .with_padding([*padding; 2]);
                Activation::Map(max_pool2d(input.into_map(), options))
            }
            Step::MeanPool(Window { kernel, stride, padding }) => {
                let options = AvgPoolOptions::new([*kernel; 2])
                    .with_stride([*stride; 2])
                    .with_padding([*padding; 2]);
                Activation::Map(mean_pool(input.into_map(), options))
            }
            Step::GlobalPool => Activation::Features(mean(input.into_map())),
            Step::Flatten => {
                let map = input.into_map();
                let [batch, channels, height, width] = map.dims();
                Activation::Features(map.reshape([batch, channels * height * width]))
            }
            Step::Dropout(dropout) => {
                each(input, |map| dropout.forward(map, pass), |one| dropout.forward(one, pass))
            }
        }
    }
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

/// The outputs of branches as one.
pub(super) fn joined(how: Join, outputs: Vec<Activation>) -> Activation {
    let features = matches!(outputs.first(), Some(Activation::Features(_)));
    if features {
        let outputs = outputs.into_iter().map(Activation::into_features).collect();
        return Activation::Features(joined_tensors(how, outputs));
    }
    Activation::Map(joined_tensors(how, outputs.into_iter().map(Activation::into_map).collect()))
}

fn joined_tensors<const D: usize>(how: Join, outputs: Vec<Tensor<D>>) -> Tensor<D> {
    match how {
        Join::Concat => Tensor::cat(outputs, 1),
        Join::Add => {
            outputs.into_iter().reduce(|sum, output| sum + output).expect("two branches or more")
        }
    }
}

/// The gradient of each branch's output, which has so many channels or features, from that of all
/// joined.
pub(super) fn split(how: Join, channels: &[usize], gradient: Activation) -> Vec<Activation> {
    if how == Join::Add {
        return channels.iter().map(|_| gradient.clone()).collect();
    }
    let starts = channels.iter().scan(0, |start, channels| {
        *start += channels;
        Some(*start - channels)
    });
    let part = |(start, channels): (usize, &usize)| match &gradient {
        Activation::Features(gradient) => {
            Activation::Features(gradient.clone().narrow(1, start, *channels))
        }
        gradient => Activation::Map(gradient.clone().into_map().narrow(1, start, *channels)),
    };
    starts.zip(channels).map(part).collect()
}

/// The sum of two gradients of one value.
pub(super) fn sum(left: Activation, right: Activation) -> Activation {
    joined(Join::Add, vec![left, right])
}
