//! Tensors of 32 bits on the CPU as slices, and back.

use burn::backend::Flex;
use burn::backend::tensor::FloatTensor;
use burn::tensor::{DType, Tensor, TensorData};
use trainer_cpu::Maps;

use super::device::is_gpu;
use super::primitives::{primitive, tensor};

/// Whether a tensor is of 32 bits and on the CPU.
pub(super) fn is_single_on_cpu<const D: usize>(tensor: &Tensor<D>) -> bool {
    tensor.dtype() == DType::F32 && !is_gpu(&tensor.device())
}

/// A tensor of these values.
pub(super) fn made(shape: [usize; 4], values: Vec<f32>) -> Tensor<4> {
    tensor::<Flex, 4>(FloatTensor::<Flex>::from_data(TensorData::new(values, shape)))
}

/// The values to write, where they are all that is held, in order, and nobody else has them.
pub(super) fn writable(values: &mut FloatTensor<Flex>) -> Option<&mut [f32]> {
    let all = Some((0, values.layout().num_elements()));
    let in_order = values.layout().contiguous_offsets() == all;
    values.try_storage_mut::<f32>().filter(|values| in_order && all == Some((0, values.len())))
}

/// Values that lie in order.
pub(super) struct Values(FloatTensor<Flex>);

impl Values {
    pub fn of<const D: usize>(tensor: Tensor<D>) -> Self {
        Self(primitive::<Flex, D>(tensor).to_contiguous())
    }

    pub fn all(&self) -> &[f32] {
        let layout = self.0.layout();
        &self.0.storage::<f32>()[layout.start_offset()..][..layout.num_elements()]
    }
}

/// Maps, the channels of whose images lie in order; some channels of other maps, too.
pub(super) struct Planes(FloatTensor<Flex>);

impl Planes {
    /// Of maps of 32 bits on the CPU, where autodiff does not record them.
    pub fn takes(tensor: &Tensor<4>) -> bool {
        is_single_on_cpu(tensor) && !tensor.is_autodiff()
    }

    pub fn of(tensor: Tensor<4>) -> Self {
        let [_, channels, height, width] = tensor.dims();
        let values = primitive::<Flex, 4>(tensor);
        let strides = [height * width, width, 1].map(usize::cast_signed);
        let sizes = [channels, height, width];
        // Where there is one of something, its stride says nothing.
        let fits =
            |((found, stride), size): ((&isize, isize), usize)| *found == stride || size == 1;
        let found = values.layout().strides();
        let in_order = found[0] >= 0 && found[1..].iter().zip(strides).zip(sizes).all(fits);
        Self(if in_order { values } else { values.to_contiguous() })
    }

    /// See [`writable`].
    pub fn writable(&mut self) -> Option<&mut [f32]> {
        writable(&mut self.0)
    }

    pub fn into_tensor(self) -> Tensor<4> {
        tensor::<Flex, 4>(self.0)
    }

    pub fn maps(&self) -> Maps<'_> {
        let layout = self.0.layout();
        let values = &self.0.storage::<f32>()[layout.start_offset()..];
        Maps::new(values, layout.strides()[0].unsigned_abs())
    }
}
