//! Convolutions, norms and dropout masks on a GPU: the program of kernels that runs on a device, on sizes.

use std::sync::Arc;

use burn::tensor::DType;

use super::array::Array;
use crate::memory::Pass;
use crate::memory::{DryAllocator, DryBuffer, Target};
use crate::ops::Window;
use crate::ops::gpu::{
    Buffer, Conv2d, DryGpu, Element, Gpu, Kernel, Kernels, Nchw, Norm2d, NormStatistics,
    dropout_mask,
};

/// The kernels of a GPU on sizes.
#[derive(Debug)]
pub(super) struct Convolver {
    dry: Arc<DryGpu>,
    kernels: Kernels,
    /// Of activations.
    storage: DType,
    /// Whether weights are held in 32 bits and rounded for each product.
    rounds_weights: bool,
}

impl Convolver {
    /// Those that run on this target, with memory counted by `allocator`.
    pub fn new(on: &Target, allocator: &DryAllocator) -> Self {
        let precision = on.precision;
        let (dry, element) = (DryGpu::new(allocator.clone(), on.hopper), precision.element());
        let kernels = Kernels::new(Gpu::dry(&dry), element);
        let rounds_weights = precision.activations() != precision.parameters();
        Self { dry, kernels, storage: element.storage(), rounds_weights }
    }

    /// Memory of at least so many bytes.
    pub fn take(&self, bytes: u64) -> DryBuffer {
        self.dry.take(bytes)
    }

    /// The kernels launched so far.
    pub fn launched(&self) -> Vec<Kernel> {
        self.dry.kernels()
    }

    /// Bytes read and written since this was last asked.
    pub fn traffic(&self) -> f64 {
        self.dry.take_work().traffic
    }

    fn nchw(&self, array: Array, shape: [usize; 4]) -> Nchw {
        let buffer = Buffer::dry(array.buffer, self.storage, array.elements);
        Nchw { buffer, shape }
    }

    /// A weight in the activations' precision.
    fn weight(&self, weight: Array, shape: [usize; 4]) -> Nchw {
        let rounded =
            self.rounds_weights.then(|| self.kernels.gpu().empty(weight.elements, self.storage));
        match rounded {
            Some(buffer) => Nchw { buffer, shape },
            None => self.nchw(weight, shape),
        }
    }

    /// A convolution of a map and a weight of these shapes.
    pub fn forward(&self, [map, weight]: [(Array, [usize; 4]); 2], window: Window) -> Array {
        let weight = self.weight(weight.0, weight.1);
        let map = self.nchw(map.0, map.1);
        array(&Conv2d::new(self.kernels.clone(), window).forward(map, weight).buffer)
    }

    /// The gradients of a map, where that is asked for, and of a weight of these shapes.
    pub fn backward(
        &self,
        [map, weight]: [(Array, [usize; 4]); 2],
        window: Window,
        (gradient, shape): (Array, [usize; 4]),
        asked: bool,
    ) -> (Option<Array>, Array) {
        let shapes = [map.1, weight.1];
        let weight = asked.then(|| self.weight(weight.0, weight.1));
        let (map, gradient) = (self.nchw(map.0, map.1), self.nchw(gradient, shape));
        let conv = Conv2d::new(self.kernels.clone(), window);
        let (of_map, of_weight) = conv.backward(shapes, map, weight, gradient);
        (of_map.map(|found| array(&found.buffer)), array(&of_weight.buffer))
    }

    fn norm(&self, groups: Option<usize>) -> Norm2d {
        // With ReLU behind it or not, it takes the same.
        Norm2d::new(self.kernels.clone(), groups, false)
    }

    /// The norm of a map of this shape, over the batch or over so many groups of channels of each image, and
    /// its statistics.
    pub fn normalise(
        &self,
        (map, shape): (Array, [usize; 4]),
        groups: Option<usize>,
    ) -> (Array, NormStatistics) {
        let map = self.nchw(map, shape);
        let parameter = self.no_memory(shape[1]);
        let (out, moments) = self.norm(groups).forward(&map, &parameter, &parameter);
        (array(&out.buffer), moments)
    }

    /// The gradients of the map, weight and bias of [`Convolver::normalise`].
    pub fn normalise_back(
        &self,
        (map, shape): (Array, [usize; 4]),
        groups: Option<usize>,
        moments: &NormStatistics,
        gradient: Array,
    ) -> [Array; 3] {
        let (map, gradient) = (self.nchw(map, shape), self.nchw(gradient, shape).buffer);
        let (parameter, norm) = (self.no_memory(shape[1]), self.norm(groups));
        let (of_map, found) = norm.backward(&map, moments, [&parameter; 2], &gradient);
        let [of_weight, of_bias] = found.each_ref().map(array);
        [array(&of_map.buffer), of_weight, of_bias]
    }

    /// A parameter, whose memory is counted elsewhere.
    fn no_memory(&self, length: usize) -> Buffer {
        Buffer::dry(DryAllocator::default().take(0), DType::F32, length)
    }

    /// A dropout mask as it is made: in 32 bits.
    pub fn mask(&self, images: usize, elements: usize) -> Buffer {
        let kernels = Kernels::new(self.kernels.gpu().clone(), Element::F32);
        dropout_mask(&kernels, [images, elements], Pass::evaluation().dropout("", 0.0))
    }
}

fn array(buffer: &Buffer) -> Array {
    Array { buffer: buffer.counted().clone(), elements: buffer.len(), dense: true, pitched: false }
}
