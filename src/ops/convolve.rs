//! Convolutions of 32-bit maps on the CPU: Burn's tensors and the products of `trainer_cpu`.

use burn::tensor::Tensor;
use trainer_cpu::Convolution;

use super::Window;
use super::host::{Planes, Values, made};

/// The sizes of a convolution of maps by a weight of these shapes.
fn sizes(
    [batch, input, height, width]: [usize; 4],
    channels: usize,
    Window { kernel, stride, padding }: Window,
) -> Convolution {
    let channels = [input, channels];
    Convolution { batch, channels, size: [height, width], kernel, stride, padding }
}

/// A convolution without bias.
pub(super) fn convolution(map: Tensor<4>, weight: Tensor<4>, window: Window) -> Tensor<4> {
    let sizes = sizes(map.dims(), weight.dims()[0], window);
    let ([height, width], [_, output]) = (sizes.output(), sizes.channels);
    let (map, weight) = (Planes::of(map), Values::of(weight));
    made([sizes.batch, output, height, width], sizes.forward(map.maps(), weight.all()))
}

/// The gradient of a convolution's maps, of this shape, from that of its result.
pub(super) fn of_maps(
    shape: [usize; 4],
    weight: Tensor<4>,
    window: Window,
    gradient: Tensor<4>,
) -> Tensor<4> {
    let sizes = sizes(shape, weight.dims()[0], window);
    let (weight, gradient) = (Values::of(weight), Planes::of(gradient));
    made(shape, sizes.of_maps(weight.all(), gradient.maps()))
}

/// The gradient of a convolution's weight, of this shape, from that of its result.
pub(super) fn of_weight(
    shape: [usize; 4],
    map: Tensor<4>,
    window: Window,
    gradient: Tensor<4>,
) -> Tensor<4> {
    let sizes = sizes(map.dims(), shape[0], window);
    let (map, gradient) = (Planes::of(map), Planes::of(gradient));
    made(shape, sizes.of_weight(map.maps(), gradient.maps()))
}
