//! Two-dimensional convolution without bias.

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use rand_chacha::ChaCha8Rng;

use super::{drawn, normal};
use crate::memory::{Ledger, Noted, Window};

/// The sizes of a [`Conv2d`].
#[derive(Debug, Clone, Copy)]
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

/// The weight of `torch.nn.Conv2d(bias=False)`: `weight` is `[output, input, kernel, kernel]`.
#[derive(Module, Debug)]
pub struct Conv2d {
    weight: Param<Tensor<4>>,
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
    /// Trained numbers.
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
        ledger.conv2d(map, channels[1], Window { kernel, stride, padding })
    }

    /// The layer with weights drawn by `kaiming_normal_`, that is, from N(0, 2 / fan) (He et al.
    /// 2015).
    pub fn init(&self, fan: Fan, device: &Device, random: &mut ChaCha8Rng) -> Conv2d {
        let [input, output] = self.channels;
        let fan = match fan {
            Fan::In => input,
            Fan::Out => output,
        };
        let deviation = (2.0 / (fan * self.kernel * self.kernel) as f64).sqrt();
        let shape = [output, input, self.kernel, self.kernel];
        let weight = drawn(shape, device, random, |random| normal(random, deviation));
        Conv2d { weight }
    }
}

impl Conv2d {
    /// `[output, input, kernel, kernel]`.
    pub fn weight(&self) -> Tensor<4> {
        self.weight.val()
    }
}
