//! What can be moved, and the forms it takes on the way.

use burn::tensor::{Bytes, DType, Tensor, TensorData};

use super::OffloadError;

#[cfg(feature = "cuda")]
use crate::ops::gpu::{Buffer, Gpu};

/// A part of what is put aside that is worth moving off the device. Nothing writes to it from when it
/// is put aside. While it is away next to nothing is in its place.
#[derive(Debug)]
pub enum OffloadTensor<'a> {
    /// Numbers in a row.
    Flat(&'a mut Tensor<1>),
    /// Features or outputs.
    Features(&'a mut Tensor<2>),
    /// Feature maps.
    Map(&'a mut Tensor<4>),
    /// What kernels of our own read, and the GPU it is on.
    #[cfg(feature = "cuda")]
    Buffer(Gpu, &'a mut Buffer),
}

/// The values of a tensor.
#[derive(Debug, Clone)]
pub(super) enum Values {
    /// On the host.
    Data(TensorData),
    /// On a GPU.
    #[cfg(feature = "cuda")]
    Buffer(Gpu, Buffer),
}

/// What the bytes of a tensor mean.
#[derive(Debug, Clone)]
pub(super) enum Form {
    /// A tensor that is on the host.
    Data(Vec<usize>, DType),
    /// Elements on a GPU.
    #[cfg(feature = "cuda")]
    Buffer(Gpu, DType, usize),
}

impl OffloadTensor<'_> {
    /// Takes the values out.
    pub(super) fn take(self) -> Values {
        match self {
            Self::Flat(tensor) => take(tensor),
            Self::Features(tensor) => take(tensor),
            Self::Map(tensor) => take(tensor),
            #[cfg(feature = "cuda")]
            Self::Buffer(gpu, buffer) => {
                let place = gpu.empty(0, buffer.storage());
                let buffer = std::mem::replace(buffer, place);
                Values::Buffer(gpu, buffer)
            }
        }
    }

    /// Puts values back that were taken out of the same tensor.
    pub(super) fn put(self, values: Values) {
        match (self, values) {
            #[cfg(feature = "cuda")]
            (Self::Buffer(_, buffer), Values::Buffer(_, values)) => *buffer = values,
            #[cfg(feature = "cuda")]
            (Self::Buffer(..), Values::Data(_)) => unreachable!("a buffer was taken out"),
            (Self::Flat(tensor), values) => put(tensor, values),
            (Self::Features(tensor), values) => put(tensor, values),
            (Self::Map(tensor), values) => put(tensor, values),
        }
    }
}

/// The shape stays with the tensor: on the GPU the values are flat.
fn take<const D: usize>(tensor: &mut Tensor<D>) -> Values {
    let (device, dtype, shape) = (tensor.device(), tensor.dtype(), tensor.dims());
    // As many axes with as much room, and no memory but for the first element.
    let one = Tensor::<D>::empty([1; D], (&device, dtype));
    let values = std::mem::replace(tensor, one.expand(shape));
    #[cfg(feature = "cuda")]
    if let Some(gpu) = Gpu::of(&device) {
        return Values::Buffer(gpu, Buffer::of_tensor(values));
    }
    Values::Data(values.into_data())
}

fn put<const D: usize>(tensor: &mut Tensor<D>, values: Values) {
    *tensor = match values {
        Values::Data(data) => {
            let dtype = data.dtype();
            Tensor::from_data(data, (&tensor.device(), dtype))
        }
        #[cfg(feature = "cuda")]
        Values::Buffer(gpu, buffer) => gpu.tensor(&buffer, tensor.dims()),
    };
}

impl Values {
    /// The values whose bytes these are.
    pub(super) fn of_bytes(bytes: Bytes, form: &Form) -> Result<Self, OffloadError> {
        match form {
            Form::Data(shape, dtype) => {
                Ok(Self::Data(TensorData::from_bytes(bytes, shape.clone(), *dtype)))
            }
            #[cfg(feature = "cuda")]
            Form::Buffer(..) => unreachable!("buffers are uploaded"),
        }
    }
}

impl Form {
    /// That of a tensor on the host.
    pub(super) fn of_data(data: &TensorData) -> Self {
        Self::Data(data.shape().to_vec(), data.dtype())
    }

    /// The elements in a row.
    pub(super) fn data(&self, bytes: Bytes) -> TensorData {
        let (length, dtype) = match self {
            Self::Data(shape, dtype) => (shape.iter().product::<usize>(), *dtype),
            #[cfg(feature = "cuda")]
            Self::Buffer(_, storage, length) => (*length, *storage),
        };
        TensorData::from_bytes(bytes, [length], dtype)
    }

    /// Room for the bytes on the host, aligned as their elements are.
    pub(super) fn room(&self) -> Bytes {
        let (count, size) = match self {
            Self::Data(shape, dtype) => (shape.iter().product(), dtype.size()),
            #[cfg(feature = "cuda")]
            Self::Buffer(_, storage, length) => (*length, storage.size()),
        };
        match size {
            8 => Bytes::from_elems(vec![0_u64; count]),
            4 => Bytes::from_elems(vec![0_u32; count]),
            2 => Bytes::from_elems(vec![0_u16; count]),
            _ => Bytes::from_elems(vec![0_u8; count * size]),
        }
    }
}
