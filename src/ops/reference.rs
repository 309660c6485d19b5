//! The definition of every fused operation, in plain Burn operations and convolutions of any size.
//!
//! DenseNet's stages run these wherever nothing faster stands in for them, and PyTorch's numbers
//! hold those stages (`tests/parity.rs`), so that what is compared with these functions is compared
//! with PyTorch. How maps are normalised is an argument: BatchNorm with the batch's statistics, with
//! running ones, or over groups.

use burn::tensor::Tensor;
use burn::tensor::activation::relu;
use burn::tensor::module::{avg_pool2d, max_pool2d};
use burn::tensor::ops::{AvgPoolOptions, MaxPoolOptions};

pub use super::convolution;
use super::wide;
use crate::memory::module;

/// 7×7 convolution with stride 2, norm, ReLU, 3×3 max-pooling with stride 2; both round sizes up.
pub fn stem(
    images: Tensor<4>,
    weight: Tensor<4>,
    norm: impl FnOnce(Tensor<4>) -> Tensor<4>,
) -> Tensor<4> {
    let map = module("conv0", images, |images| convolution(images, weight, 2, 3));
    let map = module("relu0", module("norm0", map, norm), relu);
    let pool = MaxPoolOptions::new([3, 3]).with_stride([2, 2]).with_padding([1, 1]);
    module("pool0", map, |map| max_pool2d(map, pool))
}

/// The channels that a dense layer adds to `map`: norm, ReLU, 1×1 convolution to the bottleneck,
/// norm, ReLU, 3×3 convolution.
pub fn dense_layer(
    map: Tensor<4>,
    norms: [&dyn Fn(Tensor<4>) -> Tensor<4>; 2],
    weights: [Tensor<4>; 2],
) -> Tensor<4> {
    let [weight1, weight2] = weights;
    let map = module("relu1", module("norm1", map, norms[0]), relu);
    let bottleneck = module("conv1", map, |map| convolution(map, weight1, 1, 0));
    let bottleneck = module("relu2", module("norm2", bottleneck, norms[1]), relu);
    module("conv2", bottleneck, |map| convolution(map, weight2, 1, 1))
}

/// `map` and behind its channels those that each of `layers` layers adds to all before it.
pub fn dense_block(
    map: Tensor<4>,
    layers: usize,
    layer: impl Fn(usize, Tensor<4>) -> Tensor<4>,
) -> Tensor<4> {
    (0..layers).fold(map, |map, index| {
        let name = format_args!("denselayer{}", index + 1);
        let added = module(name, map.clone(), |map| layer(index, map));
        Tensor::cat(vec![map, added], 1)
    })
}

/// Norm, ReLU, 1×1 convolution to fewer channels, 2×2 average-pooling that rounds sizes down.
pub fn transition(
    map: Tensor<4>,
    norm: impl FnOnce(Tensor<4>) -> Tensor<4>,
    weight: Tensor<4>,
) -> Tensor<4> {
    let map = module("relu", module("norm", map, norm), relu);
    let map = module("conv", map, |map| convolution(map, weight, 1, 0));
    let pool = AvgPoolOptions::new([2, 2]).with_stride([2, 2]);
    module("pool", map, |map| avg_pool2d(map, pool))
}

/// Norm, ReLU, the mean over each feature map: `[batch, channels]`.
pub fn pool(map: Tensor<4>, norm: impl FnOnce(Tensor<4>) -> Tensor<4>) -> Tensor<2> {
    let map = module("relu", module("norm5", map, norm), relu);
    module("mean", map, mean)
}

/// The mean over windows of pixels, summed in 32 bits or more.
pub fn mean_pool(map: Tensor<4>, windows: AvgPoolOptions<2>) -> Tensor<4> {
    let numbers = map.dtype();
    avg_pool2d(map.cast(wide(numbers)), windows).cast(numbers)
}

/// The mean over each feature map, `[batch, channels]`, summed in 32 bits or more.
pub fn mean(map: Tensor<4>) -> Tensor<2> {
    let ([batch, channels, height, width], numbers) = (map.dims(), map.dtype());
    let flat = map.cast(wide(numbers)).reshape([batch, channels, height * width]);
    flat.mean_dim(2).reshape([batch, channels]).cast(numbers)
}
