//! Convolutions and fully connected layers on every device: Burn's on the CPU, ours on CUDA, where
//! Burn's take a hundred times longer.

use burn::tensor::Tensor;
use burn::tensor::module::conv2d;
use burn::tensor::ops::ConvOptions;

/// How 32-bit numbers are multiplied on a GPU; numbers of 16 bits are multiplied as they are, and
/// sums are always 32-bit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Products {
    /// Exact to about 2⁻²¹.
    #[default]
    Full,
    /// Rounded to TF32, 10 bits of mantissa.
    Tf32,
}

/// A square convolution without bias: `map` is `[batch, input, height, width]`, `weight`
/// `[output, input, kernel, kernel]`.
pub fn convolution(map: Tensor<4>, weight: Tensor<4>, stride: usize, padding: usize) -> Tensor<4> {
    convolution_with(Products::Full, map, weight, stride, padding)
}

/// [`convolution`] with `products` where it runs on a GPU.
pub fn convolution_with(
    #[cfg_attr(
        not(feature = "cuda"),
        expect(unused_variables, reason = "only a GPU has a choice")
    )]
    products: Products,
    map: Tensor<4>,
    weight: Tensor<4>,
    stride: usize,
    padding: usize,
) -> Tensor<4> {
    #[cfg(feature = "cuda")]
    if let Some(general) = super::cuda::General::of(&map, products, stride, padding) {
        let weight = if weight.dtype() == map.dtype() { weight } else { weight.cast(map.dtype()) };
        return super::product::apply::<burn::backend::Cube, _>(general, map, weight);
    }
    conv2d(map, weight, None, ConvOptions::new([stride; 2], [padding; 2], [1, 1], 1))
}

/// `input·weightᵀ`: `input` is `[batch, input]`, `weight` `[output, input]`.
pub fn linear(input: Tensor<2>, weight: Tensor<2>) -> Tensor<2> {
    #[cfg(feature = "cuda")]
    if super::cuda::Gpu::of(&input.device()).is_some() {
        let ([batch, width], [output, _]) = (input.dims(), weight.dims());
        let map = input.reshape([batch, width, 1, 1]);
        let weight = weight.reshape([output, width, 1, 1]);
        return convolution(map, weight, 1, 0).reshape([batch, output]);
    }
    input.matmul(weight.transpose())
}
