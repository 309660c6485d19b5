//! A fully connected layer.

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use rand_chacha::ChaCha8Rng;

use super::{drawn, uniform};
use crate::ops::linear;

/// `torch.nn.Linear`: `weight` is `[output, input]`, `bias` `[output]`.
#[derive(Module, Debug)]
pub struct Linear {
    weight: Param<Tensor<2>>,
    bias: Param<Tensor<1>>,
}

impl Linear {
    /// Weights from U(−1/√input, 1/√input), PyTorch's default, and, as torchvision's DenseNet has
    /// it, a bias of 0.
    pub fn init(input: usize, output: usize, device: &Device, random: &mut ChaCha8Rng) -> Self {
        let bound = 1.0 / (input as f64).sqrt();
        let weight = drawn([output, input], device, random, |random| uniform(random, bound));
        Self { weight, bias: Param::from_tensor(Tensor::zeros([output], device)) }
    }

    /// `[batch, input]` to `[batch, output]`, in the input's numbers; the bias is added in its own, so
    /// that its gradient is summed in them.
    pub fn forward(&self, input: Tensor<2>) -> Tensor<2> {
        let (numbers, bias) = (input.dtype(), self.bias.val());
        let product = linear(input, self.weight.val()).cast(bias.dtype());
        (product + bias.unsqueeze()).cast(numbers)
    }
}
