//! Convolutions and linear layers, forward and back. Convolutions are ours: kernels on CUDA, where Burn's
//! take a hundred times longer, and products of matrices on the CPU, where Burn's take several times as long.
//! Linear layers on the CPU are Burn's. Nothing here is recorded by autodiff.

#[cfg(feature = "cpu")]
use burn::backend::Flex;
#[cfg(feature = "cpu")]
use burn::backend::ops::ModuleOps;
use burn::tensor::module::conv2d;
use burn::tensor::ops::ConvOptions;
use burn::tensor::{DType, Tensor};

use super::Window;
#[cfg(feature = "cpu")]
use super::convolve;
use super::device::is_gpu;
use super::dtype::accumulation_dtype;
#[cfg(feature = "cpu")]
use super::primitives::{primitive, tensor};

/// How 32-bit numbers are multiplied on a GPU. Numbers of 16 bits are multiplied as they are; sums are
/// always 32-bit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MatmulPrecision {
    /// Exact to about 2⁻²¹.
    #[default]
    Full,
    /// Rounded to TF32, which has 10 bits of mantissa.
    Tf32,
}

/// A square convolution without bias: `map` is `[batch, input, height, width]`, `weight`
/// `[output, input, kernel, kernel]`. It is computed in the map's dtype, to which the weight is
/// rounded; sums are 32-bit.
pub fn convolution(
    #[cfg_attr(not(feature = "cuda"), expect(unused_variables, reason = "for GPUs"))]
    precision: MatmulPrecision,
    map: Tensor<4>,
    weight: Tensor<4>,
    window: Window,
) -> Tensor<4> {
    let dtype = map.dtype();
    #[cfg(feature = "cuda")]
    if let Some(conv) = super::gpu::Conv2d::of(&map, precision, window) {
        return conv.forward_tensors(map, weight.cast(dtype));
    }
    // Burn adds up 16-bit products in 16 bits for some shapes; a GPU's tensor cores use 32.
    let computed = accumulation_dtype(dtype);
    let [map, weight] = [map, weight.cast(dtype)].map(|factor| factor.cast(computed));
    #[cfg(feature = "cpu")]
    if computed == DType::F32 {
        return convolve::convolution(map, weight, window).cast(dtype);
    }
    conv2d(map, weight, None, options(window)).cast(dtype)
}

/// The gradients of [`convolution`] with respect to its map, where that is `asked` for, and to its
/// weight, from that of its result. The weight's is in the weight's dtype.
pub fn convolution_gradients(
    #[cfg_attr(not(feature = "cuda"), expect(unused_variables, reason = "for GPUs"))]
    precision: MatmulPrecision,
    [map, weight]: [Tensor<4>; 2],
    window: Window,
    gradient: Tensor<4>,
    asked: bool,
) -> (Option<Tensor<4>>, Tensor<4>) {
    let (shapes, dtype) = ([map.dims(), weight.dims()], weight.dtype());
    let weight = asked.then(|| weight.cast(gradient.dtype()));
    #[cfg(feature = "cuda")]
    if let Some(conv) = super::gpu::Conv2d::of(&map, precision, window) {
        let (of_map, of_weight) = conv.backward_tensors(shapes, map, weight, gradient);
        return (of_map, of_weight.cast(dtype));
    }
    #[cfg(feature = "cpu")]
    {
        let (of_map, of_weight) = cpu_gradients(shapes, map, weight, window, gradient);
        (of_map, of_weight.cast(dtype))
    }
    #[cfg(not(feature = "cpu"))]
    unreachable!("the only backend that was built is CUDA")
}

/// The gradients of a convolution on the CPU: of its map, where the weight is given, and of its weight.
#[cfg(feature = "cpu")]
fn cpu_gradients(
    shapes: [[usize; 4]; 2],
    map: Tensor<4>,
    weight: Option<Tensor<4>>,
    window: Window,
    gradient: Tensor<4>,
) -> (Option<Tensor<4>>, Tensor<4>) {
    let (device, dtype) = (gradient.device(), gradient.dtype());
    let computed = accumulation_dtype(dtype);
    let gradient = gradient.cast(computed);
    if computed == DType::F32 {
        let [of_map, of_weight] = shapes;
        let of_map = weight.map(|weight| {
            let (weight, gradient) = (weight.cast(computed), gradient.clone());
            convolve::of_maps(of_map, weight, window, gradient).cast(dtype)
        });
        return (of_map, convolve::of_weight(of_weight, map.cast(computed), window, gradient));
    }
    let factor = |factor: Tensor<4>| primitive::<Flex, 4>(factor.cast(computed));
    // Of the factor whose gradient is computed, only the shape counts.
    let one = Tensor::<4>::zeros([1; 4], (&device, computed));
    let [any_map, any_weight] = shapes.map(|shape| primitive::<Flex, 4>(one.clone().expand(shape)));
    let gradient = factor(gradient);
    let of_map = weight.map(|weight| {
        let (weight, gradient) = (factor(weight), gradient.clone());
        let found = Flex::conv2d_x_backward(any_map, weight, gradient, options(window));
        tensor::<Flex, 4>(found).cast(dtype)
    });
    let of_weight =
        Flex::conv2d_weight_backward(factor(map), any_weight, gradient, options(window));
    (of_map, tensor::<Flex, 4>(of_weight))
}

fn options(window: Window) -> ConvOptions<2> {
    let Window { stride, padding, .. } = window;
    ConvOptions::new([stride; 2], [padding; 2], [1, 1], 1)
}

/// `input·weightᵀ`: `input` is `[batch, input]`, `weight` `[output, input]`. It is computed as
/// [`convolution`] is.
pub fn linear(precision: MatmulPrecision, input: Tensor<2>, weight: Tensor<2>) -> Tensor<2> {
    if runs_as_convolution(&input) {
        let ([batch, width], [output, _]) = (input.dims(), weight.dims());
        let map = input.reshape([batch, width, 1, 1]);
        let weight = weight.reshape([output, width, 1, 1]);
        return convolution(precision, map, weight, Window::PIXEL).reshape([batch, output]);
    }
    input.matmul(weight.transpose())
}

/// The gradients of [`linear`] with respect to its input, where that is `asked` for, and to its weight.
pub fn linear_gradients(
    precision: MatmulPrecision,
    [input, weight]: [Tensor<2>; 2],
    gradient: Tensor<2>,
    asked: bool,
) -> (Option<Tensor<2>>, Tensor<2>) {
    if runs_as_convolution(&input) {
        let ([batch, width], [output, _]) = (input.dims(), weight.dims());
        let factors = [input.reshape([batch, width, 1, 1]), weight.reshape([output, width, 1, 1])];
        let gradient = gradient.reshape([batch, output, 1, 1]);
        let (of_input, of_weight) =
            convolution_gradients(precision, factors, Window::PIXEL, gradient, asked);
        let of_input = of_input.map(|found| found.reshape([batch, width]));
        return (of_input, of_weight.reshape([output, width]));
    }
    let of_input = asked.then(|| gradient.clone().matmul(weight));
    (of_input, input.transpose().matmul(gradient).transpose())
}

/// `values`, `[batch, channels, …]`, plus `bias`, `[channels]`; in the values' dtype, but added in the
/// bias's.
pub fn biased<const D: usize>(values: Tensor<D>, bias: Tensor<1>) -> Tensor<D> {
    let (dtype, mut shape) = (values.dtype(), [1; D]);
    shape[1] = bias.dims()[0];
    (values.cast(bias.dtype()) + bias.reshape(shape)).cast(dtype)
}

/// The gradient of the bias of [`biased`], which has `dtype`, from that of the sum.
pub fn bias_gradient<const D: usize>(gradient: Tensor<D>, dtype: DType) -> Tensor<1> {
    let shape = gradient.dims();
    let (rows, channels) = (shape[0], shape[1]);
    let groups = row_groups(rows);
    let vectors = shape[2..].iter().all(|size| *size == 1);
    if vectors && groups > 1 && is_gpu(&gradient.device()) {
        let gradient = gradient.cast(dtype).reshape([groups, rows / groups, channels]);
        return gradient.sum_dim(1).sum_dim(0).reshape([channels]);
    }
    let others = (0..D).filter(|dimension| *dimension != 1);
    others.fold(gradient.cast(dtype), Tensor::sum_dim).reshape([channels])
}

/// Into how many groups the rows of a batch are put, of which the sums are added up: a GPU has work for more than one
/// thread a column then. One, where there are few rows or no equal groups of a fitting size.
pub fn row_groups(rows: usize) -> usize {
    let fits = |groups: &usize| rows.is_multiple_of(*groups) && rows / groups <= 16 * groups;
    let root = rows.isqrt();
    if rows < 1024 { 1 } else { (2..=root).rev().find(fits).unwrap_or(1) }
}

/// Whether a linear layer of `input` runs as a convolution of maps of one pixel: on a GPU, whose
/// kernels are ours, and for 16-bit numbers, which are to be added up in 32 bits.
fn runs_as_convolution(input: &Tensor<2>) -> bool {
    is_gpu(&input.device()) || super::is_16bit(input.dtype())
}

#[cfg(all(test, feature = "cpu"))]
mod tests {
    use burn::tensor::Device;

    use super::super::inner_product;
    use super::*;

    #[test]
    fn rows_are_put_in_equal_groups_of_about_the_square_root() {
        for (rows, groups) in [(1, 1), (1000, 1), (1024, 32), (59_392, 232), (1031, 1), (2062, 1)] {
            assert_eq!(row_groups(rows), groups, "{rows} rows");
        }
    }

    const FULL: MatmulPrecision = MatmulPrecision::Full;

    /// Values that are the same numbers in every dtype: those of bfloat16 have all bits of fp16's.
    fn wave<const D: usize>(shape: [usize; D], speed: f64, dtype: DType) -> Tensor<D> {
        crate::wave::wave(shape, speed, &Device::flex()).cast(DType::BF16).cast(dtype)
    }

    fn leaf<const D: usize>(values: &Tensor<D>) -> Tensor<D> {
        values.clone().autodiff().require_grad()
    }

    fn data<const D: usize>(values: Tensor<D>) -> (DType, Vec<f64>) {
        (values.dtype(), values.into_data().iter().collect())
    }

    const WINDOWS: [Window; 4] = [
        Window::same(3, 1),
        Window::same(7, 2),
        Window::PIXEL,
        Window { kernel: 4, stride: 3, padding: 2 },
    ];

    #[test]
    fn convolutions_of_64_bits_and_their_gradients_are_burns_with_autodiff_bit_for_bit() {
        let dtype = DType::F64;
        for window in WINDOWS {
            let map = wave([2, 3, 19, 16], 0.7, dtype);
            let weight = wave([4, 3, window.kernel, window.kernel], 1.3, dtype);
            let (map_leaf, weight_leaf) = (leaf(&map), leaf(&weight));
            let expected = conv2d(map_leaf.clone(), weight_leaf.clone(), None, options(window));
            let output = convolution(FULL, map.clone(), weight.clone(), window);
            assert_eq!(data(output.clone()), data(expected.clone().without_autodiff()));
            let gradient = wave(output.dims(), 0.9, dtype);
            let found = inner_product(expected, gradient.clone()).backward();
            for asked in [true, false] {
                let factors = [map.clone(), weight.clone()];
                let (of_map, of_weight) =
                    convolution_gradients(FULL, factors, window, gradient.clone(), asked);
                let expected = weight_leaf.grad(&found).expect("a gradient");
                assert_eq!(data(of_weight), data(expected), "{dtype:?} {window:?}");
                let expected = asked.then(|| map_leaf.grad(&found).expect("a gradient"));
                assert_eq!(of_map.map(data), expected.map(data), "{dtype:?} {window:?}");
            }
        }
    }

    #[test]
    fn linear_layers_and_their_gradients_are_burns_with_autodiff_bit_for_bit() {
        for dtype in [DType::F32, DType::F64] {
            let (input, weight) = (wave([5, 7], 0.7, dtype), wave([6, 7], 1.3, dtype));
            let bias = wave([6], 0.3, dtype);
            let (input_leaf, weight_leaf, bias_leaf) = (leaf(&input), leaf(&weight), leaf(&bias));
            let product = input_leaf.clone().matmul(weight_leaf.clone().transpose());
            let expected = biased(product, bias_leaf.clone());
            let output = biased(linear(FULL, input.clone(), weight.clone()), bias);
            assert_eq!(data(output), data(expected.clone().without_autodiff()));
            let gradient = wave([5, 6], 0.9, dtype);
            let found = inner_product(expected, gradient.clone()).backward();
            let (of_input, of_weight) =
                linear_gradients(FULL, [input, weight], gradient.clone(), true);
            let expected = input_leaf.grad(&found).expect("a gradient");
            assert_eq!(data(of_input.expect("was asked for")), data(expected), "{dtype:?}");
            let expected = weight_leaf.grad(&found).expect("a gradient");
            assert_eq!(data(of_weight), data(expected), "{dtype:?}");
            let expected = bias_leaf.grad(&found).expect("a gradient");
            assert_eq!(data(bias_gradient(gradient, dtype)), data(expected), "{dtype:?}");
        }
    }

    /// Output, gradient of the input and gradient of the weight.
    type Found = [Vec<f64>; 3];

    /// Holds what 32 and 16 bits give to what 64 give, which Burn computes on the CPU: rounded once, and the gradient of a 32-bit weight not at
    /// all.
    fn rounded_once(run: impl Fn(DType, DType) -> Found) {
        let exact = run(DType::F64, DType::F64);
        let units = [(DType::F32, 0.0), (DType::BF16, 1.0 / 256.0), (DType::F16, 1.0 / 2048.0)];
        for (dtype, unit) in units {
            for weights in [DType::F32, dtype] {
                let ours = run(dtype, weights);
                for (place, (ours, exact)) in ours.iter().zip(&exact).enumerate() {
                    let largest = exact.iter().fold(0.0f64, |most, value| most.max(value.abs()));
                    let unit = if place == 2 && weights == DType::F32 { 0.0 } else { unit };
                    for (ours, exact) in ours.iter().zip(exact) {
                        let most = unit * exact.abs() + 1e-5 * largest;
                        assert!((ours - exact).abs() <= most, "{dtype:?} {place}: {ours} {exact}");
                    }
                }
            }
        }
    }

    #[test]
    fn convolutions_of_32_and_16_bits_are_those_of_64_rounded_once() {
        // With fewer channels in the result than in the map, ours go another way.
        let few = WINDOWS.map(|window| (3, window));
        let others = [(1, WINDOWS[1]), (12, WINDOWS[0]), (12, WINDOWS[2]), (12, WINDOWS[3])];
        for (input, window) in few.into_iter().chain(others) {
            rounded_once(|dtype, weights| {
                let map = wave([2, input, 21, 18], 0.7, dtype);
                let weight = wave([5, input, window.kernel, window.kernel], 1.3, weights);
                let output = convolution(FULL, map.clone(), weight.clone(), window);
                let gradient = wave(output.dims(), 0.9, dtype);
                let (of_map, of_weight) =
                    convolution_gradients(FULL, [map, weight], window, gradient, true);
                let of_map = of_map.expect("was asked for");
                assert_eq!(
                    [output.dtype(), of_map.dtype(), of_weight.dtype()],
                    [dtype, dtype, weights]
                );
                [output, of_map, of_weight].map(|found| data(found).1)
            });
        }
    }

    #[test]
    fn linear_layers_of_32_and_16_bits_are_those_of_64_rounded_once() {
        rounded_once(|dtype, weights| {
            let (input, weight) = (wave([4, 33], 0.7, dtype), wave([6, 33], 1.3, weights));
            let output = linear(FULL, input.clone(), weight.clone());
            let gradient = wave([4, 6], 0.9, dtype);
            let (of_input, of_weight) = linear_gradients(FULL, [input, weight], gradient, true);
            [output, of_input.expect("was asked for"), of_weight].map(|found| data(found).1)
        });
    }
}
