//! Convolutions and fully connected layers on every device: Burn's on the CPU, ours on CUDA, where
//! Burn's take a hundred times longer.

use std::cell::Cell;

use burn::tensor::module::conv2d;
use burn::tensor::ops::ConvOptions;
use burn::tensor::{DType, Tensor};

use super::product::Product;

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

/// What [`with_products`] asks for on this thread.
pub fn products() -> Products {
    PRODUCTS.get()
}

/// A square convolution without bias: `map` is `[batch, input, height, width]`, `weight`
/// `[output, input, kernel, kernel]`. It is computed in the map's numbers, to which the weight is
/// rounded; sums are 32-bit.
pub fn convolution(map: Tensor<4>, weight: Tensor<4>, stride: usize, padding: usize) -> Tensor<4> {
    convolution_with(products(), map, weight, stride, padding)
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
    let options = options(stride, padding);
    #[cfg(feature = "cpu")]
    if super::is_narrow(map.dtype()) {
        let widened = super::widened::Widened(options);
        return super::product::apply::<burn::backend::Flex, _>(widened, map, weight);
    }
    conv2d(map, weight, None, options)
}

/// The gradients of [`convolution`] with `products` with respect to its map, where that is `asked`
/// for, and to its weight, of the result's `gradient`; nothing is with autodiff.
pub fn convolution_gradients(
    products: Products,
    [map, weight]: [Tensor<4>; 2],
    [stride, padding]: [usize; 2],
    gradient: Tensor<4>,
    asked: bool,
) -> (Option<Tensor<4>>, Tensor<4>) {
    let (shapes, numbers) = ([map.dims(), weight.dims()], weight.dtype());
    let weight = asked.then(|| weight.cast(gradient.dtype()));
    let product = AnyProduct::of(&map, products, stride, padding);
    let [of_map, of_weight] = match product {
        #[cfg(feature = "cuda")]
        AnyProduct::Cuda(product) => product.backward(shapes, Some(map), weight, gradient),
        #[cfg(feature = "cpu")]
        AnyProduct::Cpu(product) => product.backward(shapes, Some(map), weight, gradient),
    };
    (of_map, of_weight.expect("the map is given").cast(numbers))
}

/// A convolution by the functions of its device.
enum AnyProduct {
    #[cfg(feature = "cuda")]
    Cuda(super::cuda::General),
    #[cfg(feature = "cpu")]
    Cpu(super::widened::Widened),
}

impl AnyProduct {
    fn of(
        #[cfg_attr(
            not(feature = "cuda"),
            expect(unused_variables, reason = "only a GPU is asked")
        )]
        map: &Tensor<4>,
        #[cfg_attr(
            not(feature = "cuda"),
            expect(unused_variables, reason = "only a GPU has a choice")
        )]
        products: Products,
        stride: usize,
        padding: usize,
    ) -> Self {
        #[cfg(feature = "cuda")]
        if let Some(general) = super::cuda::General::of(map, products, stride, padding) {
            return Self::Cuda(general);
        }
        #[cfg(feature = "cpu")]
        return Self::Cpu(super::widened::Widened(options(stride, padding)));
        #[cfg(not(feature = "cpu"))]
        unreachable!("the only backend that was built is CUDA");
    }
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

/// The gradients of [`linear`] with `products` with respect to its input, where that is `asked` for,
/// and to its weight; nothing is with autodiff.
pub fn linear_gradients(
    products: Products,
    input: Tensor<2>,
    weight: Tensor<2>,
    gradient: Tensor<2>,
    asked: bool,
) -> (Option<Tensor<2>>, Tensor<2>) {
    if is_product(&input) {
        let ([batch, width], [output, _]) = (input.dims(), weight.dims());
        let factors = [input.reshape([batch, width, 1, 1]), weight.reshape([output, width, 1, 1])];
        let gradient = gradient.reshape([batch, output, 1, 1]);
        let (of_input, of_weight) =
            convolution_gradients(products, factors, [1, 0], gradient, asked);
        let of_input = of_input.map(|found| found.reshape([batch, width]));
        return (of_input, of_weight.reshape([output, width]));
    }
    let of_input = asked.then(|| gradient.clone().matmul(weight));
    (of_input, input.transpose().matmul(gradient).transpose())
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

/// The gradient of the bias of [`biased`], which has `numbers`, from that of the sum.
pub fn bias_gradient<const D: usize>(gradient: Tensor<D>, numbers: DType) -> Tensor<1> {
    let channels = gradient.dims()[1];
    let others = (0..D).filter(|dimension| *dimension != 1);
    others.fold(gradient.cast(numbers), Tensor::sum_dim).reshape([channels])
}

fn options(stride: usize, padding: usize) -> ConvOptions<2> {
    ConvOptions::new([stride; 2], [padding; 2], [1, 1], 1)
}

#[cfg(all(test, feature = "cpu"))]
mod tests {
    use burn::tensor::{Device, TensorData};

    use super::super::seed;
    use super::*;

    fn wave<const D: usize>(shape: [usize; D], speed: f64, numbers: DType) -> Tensor<D> {
        let values: Vec<f32> =
            (0..shape.iter().product()).map(|i: usize| (i as f64 * speed).sin() as f32).collect();
        let values: Tensor<D> = Tensor::from_data(TensorData::new(values, shape), &Device::flex());
        values.cast(numbers)
    }

    fn leaf<const D: usize>(values: &Tensor<D>) -> Tensor<D> {
        values.clone().autodiff().require_grad()
    }

    fn data<const D: usize>(values: Tensor<D>) -> (DType, Vec<f64>) {
        (values.dtype(), values.into_data().iter().collect())
    }

    const NUMBERS: [[DType; 2]; 5] = [
        [DType::F32, DType::F32],
        [DType::F64, DType::F64],
        [DType::BF16, DType::F32],
        [DType::F16, DType::F32],
        [DType::F16, DType::F16],
    ];

    #[test]
    fn gradients_of_convolutions_by_hand_are_those_of_autodiff_bit_for_bit() {
        for [numbers, weights] in NUMBERS {
            for (stride, padding, kernel) in [(1, 1, 3), (2, 3, 7), (1, 0, 1), (3, 2, 4)] {
                let map = wave([2, 3, 19, 16], 0.7, numbers);
                let weight = wave([4, 3, kernel, kernel], 1.3, weights);
                let (map_leaf, weight_leaf) = (leaf(&map), leaf(&weight));
                let output = convolution(map_leaf.clone(), weight_leaf.clone(), stride, padding);
                let gradient = wave(output.dims(), 0.9, numbers);
                let found = seed(output, gradient.clone()).backward();
                for asked in [true, false] {
                    let factors = [map.clone(), weight.clone()];
                    let window = [stride, padding];
                    let (of_map, of_weight) =
                        convolution_gradients(products(), factors, window, gradient.clone(), asked);
                    let expected = weight_leaf.grad(&found).expect("a gradient");
                    assert_eq!(data(of_weight), data(expected), "{numbers:?} {kernel}");
                    let expected = asked.then(|| map_leaf.grad(&found).expect("a gradient"));
                    assert_eq!(of_map.map(data), expected.map(data), "{numbers:?} {kernel}");
                }
            }
        }
    }

    #[test]
    fn gradients_of_linear_layers_by_hand_are_those_of_autodiff() {
        for [numbers, weights] in NUMBERS {
            let (input, weight) = (wave([5, 7], 0.7, numbers), wave([6, 7], 1.3, weights));
            let bias = wave([6], 0.3, weights);
            let (input_leaf, weight_leaf, bias_leaf) = (leaf(&input), leaf(&weight), leaf(&bias));
            let product = linear(input_leaf.clone(), weight_leaf.clone());
            let gradient = wave([5, 6], 0.9, numbers);
            let found = seed(biased(product, bias_leaf.clone()), gradient.clone()).backward();
            let (of_input, of_weight) =
                linear_gradients(products(), input, weight, gradient.clone(), true);
            let expected = input_leaf.grad(&found).expect("a gradient");
            assert_eq!(data(of_input.expect("was asked for")), data(expected), "{numbers:?}");
            let expected = weight_leaf.grad(&found).expect("a gradient");
            assert_eq!(data(of_weight), data(expected), "{numbers:?}");
            let expected = bias_leaf.grad(&found).expect("a gradient");
            assert_eq!(data(bias_gradient(gradient, weights)), data(expected), "{numbers:?}");
        }
    }
}
