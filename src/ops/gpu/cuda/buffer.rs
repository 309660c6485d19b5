//! Buffers in a device's memory, and tensors over them.

use std::sync::{Arc, Weak};

use burn::backend::Cube;
use burn::tensor::{DType, Shape, Tensor};
use burn_cubecl::CubeDevice;
use burn_cubecl::cubecl::server::Handle;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;

use super::arena::Part;
use crate::ops::gpu::buffer::Memory;
use crate::ops::gpu::{Buffer, Storage};

/// A part of an allocation of CubeCL's.
#[derive(Debug, Clone)]
pub(in crate::ops::gpu) struct DeviceMemory {
    handle: Handle,
    /// The same in all that this was copied or cut from: the part of an arena that it is, where it lies in one. The handle alone
    /// does not hold that.
    origin: Arc<Option<Part>>,
}

impl DeviceMemory {
    pub(in crate::ops::gpu) fn is_held_alone(&self) -> bool {
        match *self.origin {
            Some(_) => !self.is_shared(),
            None => self.handle.can_mut(),
        }
    }

    pub(in crate::ops::gpu) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.origin) > 1
    }

    /// The same without so many bytes before and behind.
    pub(in crate::ops::gpu) fn without(&self, before: usize, behind: usize) -> Self {
        let handle = self.handle.clone().offset_start(before as u64).offset_end(behind as u64);
        Self { handle, origin: Arc::clone(&self.origin) }
    }
}

/// Which elements a buffer has: equal where one buffer was copied or cut from the other, or both from
/// a third, and they are the same elements of it.
#[derive(Debug, Clone)]
pub struct Identity {
    origin: Weak<Option<Part>>,
    place: [u64; 2],
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        Weak::ptr_eq(&self.origin, &other.origin) && self.place == other.place
    }
}

impl Buffer {
    pub(super) fn on_device(handle: Handle, storage: Storage, length: usize) -> Self {
        Self::with_origin(handle, None, storage, length)
    }

    /// One in an arena.
    pub(super) fn in_arena(handle: Handle, part: Part, storage: Storage, length: usize) -> Self {
        Self::with_origin(handle, Some(part), storage, length)
    }

    fn with_origin(handle: Handle, part: Option<Part>, storage: Storage, length: usize) -> Self {
        let memory = DeviceMemory { handle, origin: Arc::new(part) };
        Self::new(Memory::Device(memory), storage, length)
    }

    /// Whether it lies in an arena, so that its handle does not hold its memory.
    pub(super) fn lies_in_arena(&self) -> bool {
        self.device_memory().origin.is_some()
    }

    fn device_memory(&self) -> &DeviceMemory {
        match &self.memory {
            Memory::Device(memory) => memory,
            Memory::Dry(_) => panic!("the buffers of a dry run have no memory"),
        }
    }

    /// Which elements it has. Does not hold their memory.
    pub fn identity(&self) -> Identity {
        let DeviceMemory { handle, origin } = self.device_memory();
        let begin = handle.offset_start.unwrap_or(0);
        let place = [begin, begin + handle.size_in_used()];
        Identity { origin: Arc::downgrade(origin), place }
    }

    /// Its memory, for kernels of CubeCL's that are launched before it goes.
    pub fn handle(&self) -> Handle {
        self.device_memory().handle.clone()
    }

    /// The elements of `tensor`, which must be on a GPU and without autodiff, in row-major order. Its
    /// memory is shared, not copied, where it is in that order already.
    pub fn of_tensor<const D: usize>(tensor: Tensor<D>) -> Self {
        let tensor = tensor
            .try_into_primitive::<Cube>()
            .unwrap_or_else(|error| panic!("a kernel was given a tensor of elsewhere: {error:?}"));
        let tensor = into_contiguous(tensor);
        let storage = storage(tensor.dtype);
        let length = tensor.meta.shape().num_elements();
        // What lies behind the elements in their allocation is none of ours.
        let behind = tensor.handle.size_in_used() - (length * storage.bytes()) as u64;
        Self::on_device(tensor.handle.offset_end(behind), storage, length)
    }

    /// A tensor of `shape` over the same memory; over a copy where it lies in an arena.
    pub(super) fn to_tensor<const D: usize>(
        &self,
        device: &CubeDevice,
        shape: [usize; D],
    ) -> Tensor<D> {
        assert_eq!(shape.iter().product::<usize>(), self.len(), "{shape:?}");
        let (client, dtype) = (device.client(), self.storage().dtype());
        let (device, shape) = (device.clone(), Shape::from(shape));
        let tensor = CubeTensor::new_contiguous(client, device, shape, self.handle(), dtype);
        let tensor = Tensor::from_primitive::<Cube>(tensor);
        if self.lies_in_arena() { tensor.mul_scalar(1.0) } else { tensor }
    }
}

/// How a kernel sees the elements of a tensor of `dtype`.
fn storage(dtype: DType) -> Storage {
    match dtype {
        DType::F32 => Storage::F32,
        DType::BF16 => Storage::Bf16,
        DType::F16 => Storage::F16,
        other => panic!("kernels take floating-point tensors, not {other:?}"),
    }
}
