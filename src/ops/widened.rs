//! Convolutions of 16-bit numbers on the CPU.

use burn::backend::Flex;
use burn::backend::ops::ModuleOps;
use burn::tensor::module::conv2d;
use burn::tensor::ops::ConvOptions;
use burn::tensor::{DType, Tensor};

use super::primitives::{primitive, tensor};
use super::product::Product;

/// A convolution computed in 32 bits, of numbers that are kept in 16.
///
/// Burn's own adds up 16-bit products in 16 bits, where its shape has a path of its own, and rounds
/// sums between parts of them elsewhere; a GPU's tensor cores add up in 32 bits.
#[derive(Debug, Clone)]
pub(super) struct Widened(pub(super) ConvOptions<2>);

impl Product for Widened {
    fn forward(&self, map: Tensor<4>, weight: Tensor<4>) -> Tensor<4> {
        let numbers = map.dtype();
        conv2d(map.cast(DType::F32), weight.cast(DType::F32), None, self.0.clone()).cast(numbers)
    }

    fn backward(
        &self,
        shapes: [[usize; 4]; 2],
        map: Option<Tensor<4>>,
        weight: Option<Tensor<4>>,
        gradient: Tensor<4>,
    ) -> [Option<Tensor<4>>; 2] {
        let (device, numbers) = (gradient.device(), gradient.dtype());
        let wide = |tensor: Tensor<4>| primitive::<Flex, 4>(tensor.cast(DType::F32));
        // Of the factor whose gradient is asked for, only the shape counts.
        let [any_map, any_weight] =
            shapes.map(|shape| primitive::<Flex, 4>(Tensor::zeros(shape, (&device, DType::F32))));
        let gradient = wide(gradient);
        let of_map = weight.map(|weight| {
            let options = self.0.clone();
            let found = Flex::conv2d_x_backward(any_map, wide(weight), gradient.clone(), options);
            tensor::<Flex, 4>(found).cast(numbers)
        });
        let of_weight = map.map(|map| {
            let options = self.0.clone();
            let found = Flex::conv2d_weight_backward(wide(map), any_weight, gradient, options);
            tensor::<Flex, 4>(found)
        });
        [of_map, of_weight]
    }
}
