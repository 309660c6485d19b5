//! Convolutions of tensors.

use burn::tensor::Tensor;

use crate::ops::gpu::{Buffer, Conv2d, Element, Gpu, Kernels, Nchw};
use crate::ops::{MatmulPrecision, Window};

impl Nchw {
    pub(super) fn of_tensor(tensor: Tensor<4>) -> Self {
        Self { shape: tensor.dims(), buffer: Buffer::of_tensor(tensor) }
    }

    pub(super) fn to_tensor(&self, gpu: &Gpu) -> Tensor<4> {
        gpu.tensor(&self.buffer, self.shape)
    }
}

impl Conv2d {
    /// That of maps like `map`; `None` where it is on another device than a GPU.
    pub fn of(map: &Tensor<4>, precision: MatmulPrecision, window: Window) -> Option<Self> {
        let gpu = Gpu::of(&map.device())?;
        let element = Element::of(map.dtype(), precision);
        Some(Self::new(Kernels::shared(gpu, element), window))
    }

    /// [`Conv2d::forward`] of tensors of the same dtype.
    pub fn forward_tensors(&self, map: Tensor<4>, weight: Tensor<4>) -> Tensor<4> {
        let [map, weight] = [map, weight].map(Nchw::of_tensor);
        self.forward(map, weight).to_tensor(self.gpu())
    }

    /// [`Conv2d::backward`] of tensors.
    pub fn backward_tensors(
        &self,
        shapes: [[usize; 4]; 2],
        map: Tensor<4>,
        weight: Option<Tensor<4>>,
        gradient: Tensor<4>,
    ) -> (Option<Tensor<4>>, Tensor<4>) {
        let [map, gradient] = [map, gradient].map(Nchw::of_tensor);
        let weight = weight.map(Nchw::of_tensor);
        let (of_map, of_weight) = self.backward(shapes, map, weight, gradient);
        let of_map = of_map.map(|found| found.to_tensor(self.gpu()));
        (of_map, of_weight.to_tensor(self.gpu()))
    }
}
