//! Convolutions on the CPU whose sums have 32 bits or more.

use burn::backend::Flex;
use burn::backend::ops::ModuleOps;
use burn::tensor::Tensor;
use burn::tensor::module::conv2d;
use burn::tensor::ops::ConvOptions;

use super::primitives::{primitive, tensor};
use super::product::Product;
use super::wide;

/// A convolution computed in 32 bits, of numbers that may be kept in 16; in 64 of those of 64.
///
/// Burn's own adds up 16-bit products in 16 bits, where its shape has a path of its own, and rounds
/// sums between parts of them elsewhere; a GPU's tensor cores add up in 32 bits.
#[derive(Debug, Clone)]
pub(super) struct Widened(pub(super) ConvOptions<2>);

impl Product for Widened {
    fn forward(&self, map: Tensor<4>, weight: Tensor<4>) -> Tensor<4> {
        let numbers = map.dtype();
        let [map, weight] = [map, weight].map(|factor| factor.cast(wide(numbers)));
        conv2d(map, weight, None, self.0.clone()).cast(numbers)
    }

    fn backward(
        &self,
        shapes: [[usize; 4]; 2],
        map: Option<Tensor<4>>,
        weight: Option<Tensor<4>>,
        gradient: Tensor<4>,
    ) -> [Option<Tensor<4>>; 2] {
        let (device, numbers) = (gradient.device(), gradient.dtype());
        let computed = wide(numbers);
        let wide = |tensor: Tensor<4>| primitive::<Flex, 4>(tensor.cast(computed));
        // Of the factor whose gradient is asked for, only the shape counts.
        let one = Tensor::<4>::zeros([1; 4], (&device, computed));
        let [any_map, any_weight] =
            shapes.map(|shape| primitive::<Flex, 4>(one.clone().expand(shape)));
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

#[cfg(test)]
mod tests {
    use burn::tensor::{DType, Device, TensorData};

    use super::super::{convolution, linear, seed};
    use super::*;

    /// Values that are the same numbers in every type: those of bfloat16, of which fp16 has all bits.
    fn wave(shape: [usize; 4], speed: f64) -> Tensor<4> {
        let values: Vec<f32> =
            (0..shape.iter().product()).map(|i: usize| (i as f64 * speed).sin() as f32).collect();
        let values: Tensor<4> = Tensor::from_data(TensorData::new(values, shape), &Device::flex());
        values.cast(DType::BF16).cast(DType::F32)
    }

    fn values(tensor: Tensor<4>) -> Vec<f64> {
        tensor.into_data().iter().collect()
    }

    /// Output, and the gradients of map and weight.
    fn run(
        numbers: DType,
        weights: DType,
        shapes: [[usize; 4]; 2],
        product: impl Fn(Tensor<4>, Tensor<4>) -> Tensor<4>,
    ) -> [Vec<f64>; 3] {
        let map = wave(shapes[0], 0.7).cast(numbers).autodiff().require_grad();
        let weight = wave(shapes[1], 1.3).cast(weights).autodiff().require_grad();
        let output = product(map.clone(), weight.clone());
        assert_eq!(output.dtype(), numbers);
        let found = seed(output.clone(), wave(output.dims(), 0.9).cast(numbers)).backward();
        let [of_map, of_weight] = [map, weight].map(|leaf| leaf.grad(&found).expect("a gradient"));
        assert_eq!((of_map.dtype(), of_weight.dtype()), (numbers, weights));
        [values(output), values(of_map), values(of_weight)]
    }

    fn rounded_once(shapes: [[usize; 4]; 2], product: impl Fn(Tensor<4>, Tensor<4>) -> Tensor<4>) {
        let exact = run(DType::F64, DType::F64, shapes, &product);
        for (numbers, unit) in [(DType::BF16, 1.0 / 256.0), (DType::F16, 1.0 / 2048.0)] {
            for weights in [DType::F32, numbers] {
                let ours = run(numbers, weights, shapes, &product);
                for (place, (ours, exact)) in ours.iter().zip(&exact).enumerate() {
                    let largest = exact.iter().fold(0.0f64, |most, value| most.max(value.abs()));
                    // The gradient of a 32-bit weight is not rounded at all.
                    let unit = if place == 2 && weights == DType::F32 { 0.0 } else { unit };
                    for (ours, exact) in ours.iter().zip(exact) {
                        let most = unit * exact.abs() + 1e-5 * largest;
                        assert!(
                            (ours - exact).abs() <= most,
                            "{numbers:?} {place}: {ours} {exact}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn convolutions_of_16_bits_are_those_of_64_rounded_once() {
        // Of one and of few input channels Burn's own go other ways.
        for (input, kernel, stride, padding) in [(1, 7, 2, 3), (3, 3, 1, 1), (12, 1, 1, 0)] {
            let shapes = [[2, input, 21, 18], [5, input, kernel, kernel]];
            rounded_once(shapes, |map, weight| convolution(map, weight, stride, padding));
        }
    }

    #[test]
    fn fully_connected_layers_of_16_bits_are_those_of_64_rounded_once() {
        rounded_once([[4, 33, 1, 1], [6, 33, 1, 1]], |map, weight| {
            linear(map.reshape([4, 33]), weight.reshape([6, 33])).reshape([4, 6, 1, 1])
        });
    }
}
