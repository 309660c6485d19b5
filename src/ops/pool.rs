//! The largest value of windows of pixels, and means over them, which are summed in 32 bits or more.

use burn::tensor::Tensor;
use burn::tensor::module::{avg_pool2d, max_pool2d};
use burn::tensor::ops::{AvgPoolOptions, MaxPoolOptions};

use super::Window;
use super::dtype::accumulation_dtype;

/// The largest value of each window.
pub fn max_pool(map: Tensor<4>, window: Window) -> Tensor<4> {
    #[cfg(feature = "cpu")]
    if super::host::is_single_on_cpu(&map) {
        return on_cpu::max_pool(map, window);
    }
    let Window { kernel, stride, padding } = window;
    let options =
        MaxPoolOptions::new([kernel; 2]).with_stride([stride; 2]).with_padding([padding; 2]);
    max_pool2d(map, options)
}

/// The mean over windows of pixels; padding counts as zeros.
pub fn avg_pool(map: Tensor<4>, window: Window) -> Tensor<4> {
    let Window { kernel, stride, padding } = window;
    let options =
        AvgPoolOptions::new([kernel; 2]).with_stride([stride; 2]).with_padding([padding; 2]);
    let dtype = map.dtype();
    avg_pool2d(map.cast(accumulation_dtype(dtype)), options).cast(dtype)
}

/// The mean over each map, `[batch, channels]`.
pub fn global_pool(map: Tensor<4>) -> Tensor<2> {
    let ([batch, channels, height, width], dtype) = (map.dims(), map.dtype());
    let flat = map.cast(accumulation_dtype(dtype)).reshape([batch, channels, height * width]);
    flat.mean_dim(2).reshape([batch, channels]).cast(dtype)
}

/// Of maps of 32 bits on the CPU. The backward pass looks for the largest values again, in the map that is kept.
#[cfg(feature = "cpu")]
mod on_cpu {
    use burn::tensor::Tensor;
    use trainer_cpu::Pool;

    use super::super::Window;
    use super::super::host::{Planes, made};
    use super::super::recorded::recorded;

    pub fn max_pool(map: Tensor<4>, window: Window) -> Tensor<4> {
        if !map.is_autodiff() {
            return largest(map, window);
        }
        let values = map.clone().without_autodiff();
        let output = largest(values.clone(), window);
        recorded([map.into_dispatch()], output, move |gradient| {
            let (shape, sizes) = (values.dims(), sizes(&values, window));
            let (map, gradient) = (Planes::of(values), Planes::of(gradient));
            [made(shape, sizes.of_max(map.maps(), gradient.maps())).into_dispatch()]
        })
    }

    fn sizes(map: &Tensor<4>, Window { kernel, stride, padding }: Window) -> Pool {
        let [batch, channels, height, width] = map.dims();
        Pool { batch, channels, size: [height, width], kernel, stride, padding }
    }

    fn largest(map: Tensor<4>, window: Window) -> Tensor<4> {
        let sizes = sizes(&map, window);
        let [height, width] = sizes.output();
        made([sizes.batch, sizes.channels, height, width], sizes.max(Planes::of(map).maps()))
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;

    /// On the CPU, Burn's own is the oracle.
    #[test]
    fn the_largest_values_and_their_gradients_are_those_of_burn() {
        let device = Device::flex();
        for (shape, window) in [
            ([3, 5, 12, 9], Window::same(3, 2)),
            ([2, 4, 7, 7], Window::same(3, 1)),
            ([2, 3, 8, 6], Window::HALF),
        ] {
            let map = || crate::wave::wave(shape, 0.7, &device).autodiff().require_grad();
            let Window { kernel, stride, padding } = window;
            let options = MaxPoolOptions::new([kernel; 2])
                .with_stride([stride; 2])
                .with_padding([padding; 2]);
            let found = |pool: &dyn Fn(Tensor<4>) -> Tensor<4>| {
                let map = map();
                // Some channels of maps, which lie apart.
                let some = map.clone().narrow(1, 1, shape[1] - 1);
                let output = pool(some);
                let by = crate::wave::wave(output.dims(), 1.3, &device).autodiff();
                let mut gradients = (output.clone() * by).sum().backward();
                let of_map = map.grad_remove(&mut gradients).expect("a gradient");
                [output.without_autodiff().into_data(), of_map.into_data()]
            };
            assert_eq!(
                found(&|map| max_pool(map, window)),
                found(&|map| max_pool2d(map, options.clone())),
            );
        }
    }
}
