//! Parameters before they exist: names, shapes and how their values are drawn.

use burn::tensor::{Device, Tensor, TensorData};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;

use super::op::{Init, Layer, Op};
use crate::memory::Parameter;
use crate::random;

/// A parameter or a running statistic of a layer.
#[derive(Debug, Clone, PartialEq)]
pub struct ParameterSpec {
    /// Its name, unique in the model, as torchvision has it: `features.norm0.weight`.
    pub name: String,
    /// Its shape, as PyTorch has it.
    pub shape: Vec<usize>,
    /// Whether the optimizer changes it; running statistics are not trained.
    pub trained: bool,
    values: Values,
}

/// Initial values.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Values {
    /// All the same.
    Constant(f32),
    /// From N(0, deviation²).
    Normal { deviation: f64 },
    /// From U(−bound, bound).
    Uniform { bound: f64 },
}

impl ParameterSpec {
    /// How many numbers it has.
    pub fn count(&self) -> usize {
        self.shape.iter().product()
    }

    /// The parameters on `device`. Their values follow from `seed` and their names alone, so they do not
    /// depend on the device, on other layers or on how layers are put into stages. They are drawn on all threads: a
    /// first step waits for it.
    pub fn init_all(all: &[Self], device: &Device, seed: u64) -> Vec<Parameter> {
        let drawn: Vec<Vec<f32>> = all.par_iter().map(|spec| spec.draw(seed)).collect();
        let parameter = |(spec, values): (&Self, Vec<f32>)| {
            let count = values.len();
            let value = Tensor::from_data(TensorData::new(values, [count]), device);
            let Self { name, shape, trained, .. } = spec.clone();
            Parameter { name, shape, trained, value }
        };
        all.iter().zip(drawn).map(parameter).collect()
    }

    fn draw(&self, seed: u64) -> Vec<f32> {
        let count = self.count();
        let mut random = random::stream(seed, &format!("init/{}", self.name), &[]);
        match self.values {
            Values::Constant(value) => vec![value; count],
            Values::Normal { deviation } => {
                (0..count).map(|_| normal(&mut random, deviation)).collect()
            }
            Values::Uniform { bound } => (0..count).map(|_| uniform(&mut random, bound)).collect(),
        }
    }
}

impl Layer {
    /// Its parameters and running statistics, in the order in which PyTorch lists them.
    pub fn parameters(&self) -> Vec<ParameterSpec> {
        let spec = |what: &str, shape: &[usize], trained: bool, values: Values| ParameterSpec {
            name: format!("{}.{what}", self.name),
            shape: shape.to_vec(),
            trained,
            values,
        };
        let trained = |what: &str, shape: &[usize], values| spec(what, shape, true, values);
        let statistic = |what: &str, shape: &[usize], values| spec(what, shape, false, values);
        let (zero, one) = (Values::Constant(0.0), Values::Constant(1.0));
        match &self.op {
            Op::Conv { bias, init, .. } | Op::Linear { bias, init, .. } => {
                let shape = self.op.weight_shape();
                let weight = trained("weight", &shape, init.weight(&shape));
                let bias = bias.then(|| trained("bias", &shape[..1], init.bias(&shape)));
                [weight].into_iter().chain(bias).collect()
            }
            Op::BatchNorm(channels) => vec![
                trained("weight", &[*channels], one),
                trained("bias", &[*channels], zero),
                statistic("running_mean", &[*channels], zero),
                statistic("running_var", &[*channels], one),
            ],
            Op::GroupNorm(channels) => {
                vec![trained("weight", &[*channels], one), trained("bias", &[*channels], zero)]
            }
            _ => Vec::new(),
        }
    }
}

impl Init {
    /// For a weight of this shape, outputs first.
    fn weight(self, shape: &[usize]) -> Values {
        let window: usize = shape[2..].iter().product();
        // kaiming_normal_ (He et al. 2015).
        let kaiming =
            |fan: usize| Values::Normal { deviation: (2.0 / (fan * window) as f64).sqrt() };
        match self {
            Self::KaimingFanIn => kaiming(shape[1]),
            Self::KaimingFanOut => kaiming(shape[0]),
            Self::Uniform | Self::UniformZeroBias => uniform_of(shape),
        }
    }

    /// For the bias of a weight of this shape.
    fn bias(self, shape: &[usize]) -> Values {
        match self {
            Self::Uniform => uniform_of(shape),
            Self::UniformZeroBias | Self::KaimingFanIn | Self::KaimingFanOut => {
                Values::Constant(0.0)
            }
        }
    }
}

/// U(−1/√fan, 1/√fan), where fan is the number of connections into an output.
fn uniform_of(shape: &[usize]) -> Values {
    Values::Uniform { bound: 1.0 / (shape[1..].iter().product::<usize>() as f64).sqrt() }
}

/// A draw from the normal distribution with mean 0 and this standard deviation (Box and Muller).
fn normal(random: &mut ChaCha8Rng, deviation: f64) -> f32 {
    let radius = (-2.0 * (1.0 - random.random::<f64>()).ln()).sqrt();
    let angle = std::f64::consts::TAU * random.random::<f64>();
    (deviation * radius * angle.cos()) as f32
}

/// A draw from the uniform distribution between −bound and bound.
fn uniform(random: &mut ChaCha8Rng, bound: f64) -> f32 {
    (bound * (2.0 * random.random::<f64>() - 1.0)) as f32
}
