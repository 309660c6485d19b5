//! Norms of tensors.

use burn::tensor::Tensor;

use crate::ops::MatmulPrecision;
use crate::ops::gpu::{Buffer, Element, Gpu, Moments, Nchw, Norm2d};

impl Norm2d {
    /// That of maps like `map`, over the batch or over so many groups of channels of each image, with ReLU
    /// behind it or not; `None` where the map is on another device than a GPU.
    pub fn of(map: &Tensor<4>, groups: Option<usize>, relu: bool) -> Option<Self> {
        let gpu = Gpu::of(&map.device())?;
        let element = Element::of(map.dtype(), MatmulPrecision::Full);
        Some(Self::shared(gpu, element, groups, relu))
    }

    /// [`Norm2d::forward`] of tensors; weight and bias are in 32 bits.
    pub fn forward_tensors(
        &self,
        map: Tensor<4>,
        weight: Tensor<1>,
        bias: Tensor<1>,
    ) -> (Tensor<4>, [Tensor<1>; 2]) {
        let (map, [weight, bias]) = (Nchw::of_tensor(map), [weight, bias].map(Buffer::of_tensor));
        let (output, Moments { mean, variance }) = self.forward(&map, &weight, &bias);
        let [mean, variance] = [mean, variance].map(|values| self.vector(&values));
        (output.to_tensor(self.gpu()), [mean, variance])
    }

    /// [`Norm2d::backward`] of tensors; `parameters`, weight and bias, are in 32 bits.
    pub fn backward_tensors(
        &self,
        map: Tensor<4>,
        statistics: [Tensor<1>; 2],
        parameters: [Tensor<1>; 2],
        gradient: Tensor<4>,
    ) -> (Tensor<4>, [Tensor<1>; 2]) {
        let [mean, variance] = statistics.map(Buffer::of_tensor);
        let (map, gradient) = (Nchw::of_tensor(map), Buffer::of_tensor(gradient));
        let [weight, bias] = parameters.map(Buffer::of_tensor);
        let moments = Moments { mean, variance };
        let (of_map, found) = self.backward(&map, &moments, [&weight, &bias], &gradient);
        (of_map.to_tensor(self.gpu()), found.map(|values| self.vector(&values)))
    }

    fn vector(&self, values: &Buffer) -> Tensor<1> {
        self.gpu().tensor(values, [values.len()])
    }
}
