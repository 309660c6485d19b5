//! A fully connected layer.

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use rand_chacha::ChaCha8Rng;

use super::{drawn, uniform};
use crate::ops::{biased, linear};

/// `torch.nn.Linear`: `weight` is `[output, input]`, `bias`, if any, `[output]`.
#[derive(Module, Debug)]
pub struct Linear {
    weight: Param<Tensor<2>>,
    bias: Option<Param<Tensor<1>>>,
}

impl Linear {
    /// Weights from U(−1/√input, 1/√input), PyTorch's default, and, as torchvision's DenseNet has
    /// it, a bias of 0.
    pub fn init(input: usize, output: usize, device: &Device, random: &mut ChaCha8Rng) -> Self {
        let bound = 1.0 / (input as f64).sqrt();
        let weight = drawn([output, input], device, random, |random| uniform(random, bound));
        Self { weight, bias: Some(Param::from_tensor(Tensor::zeros([output], device))) }
    }

    /// As PyTorch draws it by default: weights and bias from U(−1/√input, 1/√input).
    pub fn init_default(
        [input, output]: [usize; 2],
        bias: bool,
        device: &Device,
        random: &mut ChaCha8Rng,
    ) -> Self {
        let bound = 1.0 / (input as f64).sqrt();
        let weight = drawn([output, input], device, random, |random| uniform(random, bound));
        let bias = bias.then(|| drawn([output], device, random, |random| uniform(random, bound)));
        Self { weight, bias }
    }

    /// `[output, input]`.
    pub fn weight(&self) -> Tensor<2> {
        self.weight.val()
    }

    /// `[output]`.
    pub fn bias(&self) -> Option<Tensor<1>> {
        self.bias.as_ref().map(Param::val)
    }

    /// `[batch, input]` to `[batch, output]`, in the input's numbers.
    pub fn forward(&self, input: Tensor<2>) -> Tensor<2> {
        let product = linear(input, self.weight.val());
        match &self.bias {
            Some(bias) => biased(product, bias.val()),
            None => product,
        }
    }
}
