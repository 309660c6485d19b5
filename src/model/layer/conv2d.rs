//! Two-dimensional convolution.

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use rand_chacha::ChaCha8Rng;

use super::{drawn, normal, uniform};
use crate::memory::{Ledger, Noted, Window};

/// The sizes of a [`Conv2d`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conv2dConfig {
    /// Channels of the input and of the output.
    pub channels: [usize; 2],
    /// Height and width of the kernel.
    pub kernel: usize,
    /// Step in both directions.
    pub stride: usize,
    /// Zeros added on every side.
    pub padding: usize,
}

/// `torch.nn.Conv2d`: `weight` is `[output, input, kernel, kernel]`, `bias`, if any, `[output]`.
#[derive(Module, Debug)]
pub struct Conv2d {
    weight: Param<Tensor<4>>,
    bias: Option<Param<Tensor<1>>>,
}

/// The connections whose number decides how large weights are drawn.
#[derive(Debug, Clone, Copy)]
pub enum Fan {
    /// Into an output; torchvision's DenseNet.
    In,
    /// Out of an input; torchvision's ResNet.
    Out,
}

impl Conv2dConfig {
    /// Trained numbers, but for a bias.
    pub fn parameter_count(&self) -> usize {
        self.channels[0] * self.channels[1] * self.kernel * self.kernel
    }

    /// Height or width of the output for that of the input.
    pub fn output_size(&self, size: usize) -> usize {
        (size + 2 * self.padding - self.kernel) / self.stride + 1
    }

    /// Notes what the layer does to `map`.
    pub fn note(&self, ledger: &Ledger, map: Noted) -> Noted {
        let Self { channels, kernel, stride, padding } = *self;
        ledger.convolution(map, channels[1], Window { kernel, stride, padding })
    }

    /// The layer without bias, its weights drawn by `kaiming_normal_`, that is, from N(0, 2 / fan)
    /// (He et al. 2015).
    pub fn init(&self, fan: Fan, device: &Device, random: &mut ChaCha8Rng) -> Conv2d {
        let [input, output] = self.channels;
        let fan = match fan {
            Fan::In => input,
            Fan::Out => output,
        };
        let deviation = (2.0 / (fan * self.kernel * self.kernel) as f64).sqrt();
        let shape = [output, input, self.kernel, self.kernel];
        let weight = drawn(shape, device, random, |random| normal(random, deviation));
        Conv2d { weight, bias: None }
    }

    /// The layer as PyTorch draws it by default: all from U(−1/√fan, 1/√fan), where fan is the
    /// number of connections into an output.
    pub fn init_default(&self, bias: bool, device: &Device, random: &mut ChaCha8Rng) -> Conv2d {
        let [input, output] = self.channels;
        let bound = 1.0 / ((input * self.kernel * self.kernel) as f64).sqrt();
        let shape = [output, input, self.kernel, self.kernel];
        let weight = drawn(shape, device, random, |random| uniform(random, bound));
        let bias = bias.then(|| drawn([output], device, random, |random| uniform(random, bound)));
        Conv2d { weight, bias }
    }
}

impl Conv2d {
    /// `[output, input, kernel, kernel]`.
    pub fn weight(&self) -> Tensor<4> {
        self.weight.val()
    }

    /// `[output]`.
    pub fn bias(&self) -> Option<Tensor<1>> {
        self.bias.as_ref().map(Param::val)
    }
}
