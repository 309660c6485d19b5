//! Convolutions and linear layers on sizes, forward and back.

use trainer_cpu::Convolution;

use super::array::{Array, Arrays};
use super::{DryOps, DryTensor};
use crate::ops::{Window, row_groups};

/// The sizes of a square convolution.
#[derive(Debug, Clone, Copy)]
struct ConvolutionSizes {
    batch: usize,
    input: usize,
    channels: usize,
    /// Height and width of the input.
    size: [usize; 2],
    window: Window,
}

impl ConvolutionSizes {
    fn new([batch, input, height, width]: [usize; 4], channels: usize, window: Window) -> Self {
        Self { batch, input, channels, size: [height, width], window }
    }

    /// Height and width of the output.
    fn out(&self) -> [usize; 2] {
        self.size.map(|size| self.window.output(size))
    }

    fn output(&self) -> Vec<usize> {
        let [height, width] = self.out();
        vec![self.batch, self.channels, height, width]
    }

    /// The map's shape.
    fn map(&self) -> [usize; 4] {
        [self.batch, self.input, self.size[0], self.size[1]]
    }

    /// The weight's shape.
    fn weight(&self) -> [usize; 4] {
        [self.channels, self.input, self.window.kernel, self.window.kernel]
    }

    fn taps(&self) -> usize {
        self.window.kernel * self.window.kernel
    }

    fn on_cpu(&self) -> Convolution {
        let Window { kernel, stride, padding } = self.window;
        let (batch, channels) = (self.batch, [self.input, self.channels]);
        Convolution { batch, channels, size: self.size, kernel, stride, padding }
    }

    fn flops(&self) -> f64 {
        let elements: usize = self.output().iter().product();
        2.0 * (elements * self.input * self.taps()) as f64
    }

    fn forward(&self, arrays: &Arrays, map: Array, weight: Array) -> Array {
        let elements = self.output().iter().product();
        arrays.convolve([map, weight], elements, self.on_cpu().forward_workspace())
    }

    fn gradient_of_map(&self, arrays: &Arrays, weight: Array, gradient: Array) -> Array {
        let elements = self.map().iter().product();
        arrays.convolve([weight, gradient], elements, self.on_cpu().of_maps_workspace())
    }

    fn gradient_of_weight(&self, arrays: &Arrays, map: Array, gradient: Array) -> Array {
        let elements = self.weight().iter().product();
        arrays.convolve([map, gradient], elements, self.on_cpu().of_weight_workspace())
    }
}

impl DryOps {
    /// A convolution of a map to `channels` channels, without bias.
    pub(super) fn convolve(&self, map: DryTensor, channels: usize, window: Window) -> DryTensor {
        let sizes = ConvolutionSizes::new(map.map(), channels, window);
        let weight = self.parameter(&sizes.weight());
        let flops = sizes.flops();
        self.work(flops, 2.0 * flops);
        let array = match &self.arrays.gpu {
            Some(gpu) => {
                let map = (self.arrays.dense(map.array), sizes.map());
                let array = gpu.forward([map, (weight.array, sizes.weight())], window);
                self.arrays.moved(gpu.traffic());
                array
            }
            None => sizes.forward(&self.arrays, map.array, weight.array),
        };
        DryTensor { shape: sizes.output(), array, node: None }
    }

    /// The gradient of a convolution's map, where it is `asked` for.
    pub(super) fn convolve_back(
        &self,
        map: DryTensor,
        window: Window,
        bias: bool,
        gradient: DryTensor,
        asked: bool,
    ) -> Option<DryTensor> {
        let (shape, channels) = (map.map(), gradient.map()[1]);
        let sizes = ConvolutionSizes::new(shape, channels, window);
        if bias {
            self.collect(self.bias_gradient(&gradient, channels));
        }
        let elements = sizes.weight().iter().product();
        let weight = Array { elements, ..self.weights.clone() };
        let (of_map, of_weight) = match &self.arrays.gpu {
            Some(gpu) => {
                let [map, gradient] =
                    [map.array, gradient.array].map(|array| self.arrays.dense(array));
                let factors = [(map, sizes.map()), (weight, sizes.weight())];
                let out: [usize; 4] = sizes.output().try_into().expect("is a map");
                let found = gpu.backward(factors, window, (gradient, out), asked);
                self.arrays.moved(gpu.traffic());
                found
            }
            None => {
                let of_map = asked
                    .then(|| sizes.gradient_of_map(&self.arrays, weight, gradient.array.clone()));
                (of_map, sizes.gradient_of_weight(&self.arrays, map.array, gradient.array))
            }
        };
        self.collect(of_weight);
        of_map.map(|array| DryTensor { shape: shape.to_vec(), array, node: None })
    }

    /// The gradient of a bias from that of the sum.
    fn bias_gradient(&self, gradient: &DryTensor, channels: usize) -> Array {
        let [batch, _, height, width] = gradient.map();
        let groups = match height * width {
            1 if self.arrays.gpu.is_some() => row_groups(batch),
            _ => 1,
        };
        let array = gradient.array.clone();
        match groups {
            1 => self.arrays.reduce(array, channels),
            _ => self.arrays.reduce(self.arrays.reduce(array, groups * channels), channels),
        }
    }

    /// `features·weightᵀ` to `output` features.
    pub(super) fn multiply_features(&self, value: DryTensor, output: usize) -> DryTensor {
        let [batch, input] = value.features();
        if self.arrays.gpu.is_some() {
            let map = DryTensor { shape: vec![batch, input, 1, 1], ..value };
            let out = self.convolve(map, output, Window::PIXEL);
            return DryTensor { shape: vec![batch, output], ..out };
        }
        self.parameter(&[output, input]);
        let flops = 2.0 * (batch * input * output) as f64;
        self.work(flops, 2.0 * flops);
        let array = self.arrays.array(batch * output);
        DryTensor { shape: vec![batch, output], array, node: None }
    }

    /// The gradient of a linear layer's features, where it is `asked` for.
    pub(super) fn multiply_features_back(
        &self,
        value: DryTensor,
        bias: bool,
        gradient: DryTensor,
        asked: bool,
    ) -> Option<DryTensor> {
        let ([batch, input], [_, output]) = (value.features(), gradient.features());
        if self.arrays.gpu.is_some() {
            let map = DryTensor { shape: vec![batch, input, 1, 1], ..value };
            let gradient = DryTensor { shape: vec![batch, output, 1, 1], ..gradient };
            let found = self.convolve_back(map, Window::PIXEL, bias, gradient, asked);
            return found.map(|found| DryTensor { shape: vec![batch, input], ..found });
        }
        if bias {
            self.collect(self.arrays.reduce(gradient.array.clone(), output));
        }
        let of_value = asked.then(|| self.arrays.array(batch * input));
        let of_weight = self.arrays.array(output * input);
        drop((value, gradient));
        // It is made transposed.
        self.collect(Array { dense: output == 1 || input == 1, ..of_weight });
        of_value.map(|array| DryTensor { shape: vec![batch, input], array, node: None })
    }
}
