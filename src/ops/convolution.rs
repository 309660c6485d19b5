//! Convolutions and fully connected layers on every device: Burn's on the CPU, ours on CUDA, where
//! Burn's take a hundred times longer.

use std::cell::Cell;

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

thread_local! {
    /// What [`with_products`] asks for.
    static PRODUCTS: Cell<Products> = const { Cell::new(Products::Full) };
}

/// What `run` returns, with every product that it computes on this thread, and the gradients of
/// these wherever they are computed, as `products` says.
pub fn with_products<T>(products: Products, run: impl FnOnce() -> T) -> T {
    /// Puts back what was asked for before, after a panic too.
    struct Before(Products);
    impl Drop for Before {
        fn drop(&mut self) {
            PRODUCTS.set(self.0);
        }
    }
    let _before = Before(PRODUCTS.replace(products));
    run()
}

/// A square convolution without bias: `map` is `[batch, input, height, width]`, `weight`
/// `[output, input, kernel, kernel]`. It is computed in the map's numbers, to which the weight is
/// rounded; sums are 32-bit.
pub fn convolution(map: Tensor<4>, weight: Tensor<4>, stride: usize, padding: usize) -> Tensor<4> {
    convolution_with(PRODUCTS.get(), map, weight, stride, padding)
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
        return super::product::apply::<burn::backend::Cube, _>(general, map, weight);
    }
    let options = ConvOptions::new([stride; 2], [padding; 2], [1, 1], 1);
    #[cfg(feature = "cpu")]
    if super::is_narrow(map.dtype()) {
        let widened = super::widened::Widened(options);
        return super::product::apply::<burn::backend::Flex, _>(widened, map, weight);
    }
    conv2d(map, weight, None, options)
}

/// `input·weightᵀ`: `input` is `[batch, input]`, `weight` `[output, input]`. It is computed in the
/// input's numbers, as [`convolution`] is.
pub fn linear(input: Tensor<2>, weight: Tensor<2>) -> Tensor<2> {
    if is_product(&input) {
        let ([batch, width], [output, _]) = (input.dims(), weight.dims());
        let map = input.reshape([batch, width, 1, 1]);
        let weight = weight.reshape([output, width, 1, 1]);
        return convolution(map, weight, 1, 0).reshape([batch, output]);
    }
    input.matmul(weight.transpose())
}

/// `values`, `[batch, channels, …]`, plus `bias`, `[channels]`; in the values' numbers, but added in
/// the bias's, so that its gradient is summed in them.
pub fn biased<const D: usize>(values: Tensor<D>, bias: Tensor<1>) -> Tensor<D> {
    let (numbers, mut shape) = (values.dtype(), [1; D]);
    shape[1] = bias.dims()[0];
    (values.cast(bias.dtype()) + bias.reshape(shape)).cast(numbers)
}

/// Whether products of `input` are ours: on a GPU, and of 16-bit numbers.
fn is_product(input: &Tensor<2>) -> bool {
    #[cfg(feature = "cuda")]
    if super::cuda::Gpu::of(&input.device()).is_some() {
        return true;
    }
    super::is_narrow(input.dtype())
}
