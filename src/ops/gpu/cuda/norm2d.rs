//! Norms of tensors.

use burn::tensor::Tensor;

use crate::ops::MatmulPrecision;
use crate::ops::gpu::{Buffer, Element, Gpu, Kernels, Nchw, Norm2d};

impl Norm2d {
    /// That of maps like `map`, over the batch or over so many groups of channels of each image, with ReLU
    /// behind it or not; `None` where the map is on another device than a GPU.
    pub fn of(map: &Tensor<4>, groups: Option<usize>, relu: bool) -> Option<Self> {
        let gpu = Gpu::of(&map.device())?;
        let element = Element::of(map.dtype(), MatmulPrecision::Full);
        Some(Self::new(Kernels::shared(gpu, element), groups, relu))
    }

    /// [`Norm2d::forward`] of tensors, by the statistics that `of_all` makes of those of this map; weight and bias
    /// are in 32 bits.
    pub fn forward_tensors(
        &self,
        map: Tensor<4>,
        parameters: [Tensor<1>; 2],
        of_all: impl FnOnce(&dyn Fn() -> [Tensor<1>; 2]) -> [Tensor<1>; 2],
    ) -> (Tensor<4>, [Tensor<1>; 2]) {
        let (map, parameters) = (Nchw::of_tensor(map), parameters.map(Buffer::of_tensor));
        let all = of_all(&|| self.statistics(&map).map(|values| self.vector(&values)));
        let statistics = all.clone().map(Buffer::of_tensor);
        let output = self.apply(&map, &statistics, parameters.each_ref());
        (output.to_tensor(self.gpu()), all)
    }

    /// [`Norm2d::backward`] of tensors, with the means that `of_all` makes of those of this map; `parameters`,
    /// weight and bias, are in 32 bits.
    pub fn backward_tensors(
        &self,
        map: Tensor<4>,
        statistics: [Tensor<1>; 2],
        parameters: [Tensor<1>; 2],
        gradient: Tensor<4>,
        of_all: impl FnOnce(Tensor<1>) -> Tensor<1>,
    ) -> (Tensor<4>, [Tensor<1>; 2]) {
        let [statistics, parameters] =
            [statistics, parameters].map(|both| both.map(Buffer::of_tensor));
        let (map, gradient) = (Nchw::of_tensor(map), Buffer::of_tensor(gradient));
        let given = parameters.each_ref();
        let (means, found) = self.backward_means(&map, &statistics, given, &gradient);
        let means = Buffer::of_tensor(of_all(self.vector(&means)));
        let of_map = self.backward_apply(&map, &statistics, given, &gradient, &means);
        (of_map.to_tensor(self.gpu()), found.map(|values| self.vector(&values)))
    }

    fn vector(&self, values: &Buffer) -> Tensor<1> {
        self.gpu().tensor(values, [values.len()])
    }
}
