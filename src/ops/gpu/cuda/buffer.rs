//! Buffers in a device's memory, and tensors over them.

use std::sync::{Arc, Weak};

use burn::backend::Cube;
use burn::tensor::{DType, Shape, Tensor};
use burn_cubecl::CubeDevice;
use burn_cubecl::cubecl::client::Client;
use burn_cubecl::cubecl::server::{BufferBinding, Handle};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl_cuda::CudaRuntime;
use cubecl_server::runtime::Runtime;

use super::arena::Part;
use crate::ops::gpu::Buffer;
use crate::ops::gpu::buffer::Memory;

/// A part of an allocation of CubeCL's.
#[derive(Debug, Clone)]
pub(in crate::ops::gpu) struct DeviceMemory {
    /// The same in all that this was copied or cut from.
    origin: Arc<Origin>,
    /// Bytes of its memory in front of this and behind.
    around: [u64; 2],
}

#[derive(Debug)]
enum Origin {
    /// An allocation, or what a tensor has of one.
    Allocated(Handle),
    /// A part of an arena: of its memory, `around` counts from the ends of all.
    InArena(Part),
}

impl Origin {
    fn handle(&self) -> &Handle {
        match self {
            Self::Allocated(handle) => handle,
            Self::InArena(part) => part.memory(),
        }
    }

    fn binding(&self) -> BufferBinding {
        match self {
            Self::Allocated(handle) => handle.clone().binding(),
            Self::InArena(part) => part.binding(),
        }
    }
}

impl DeviceMemory {
    pub(in crate::ops::gpu) fn is_held_alone(&self) -> bool {
        let is_free = match &*self.origin {
            Origin::Allocated(handle) => handle.can_mut(),
            Origin::InArena(_) => true,
        };
        is_free && !self.is_shared()
    }

    pub(in crate::ops::gpu) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.origin) > 1
    }

    /// The same without so many bytes before and behind.
    pub(in crate::ops::gpu) fn without(&self, before: usize, behind: usize) -> Self {
        let [already_before, already_behind] = self.around;
        let around = [already_before + before as u64, already_behind + behind as u64];
        Self { origin: Arc::clone(&self.origin), around }
    }
}

/// Which elements a buffer has: equal where one buffer was copied or cut from the other, or both from
/// a third, and they are the same elements of it.
#[derive(Debug, Clone)]
pub struct Identity {
    origin: Weak<Origin>,
    around: [u64; 2],
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        Weak::ptr_eq(&self.origin, &other.origin) && self.around == other.around
    }
}

impl Buffer {
    pub(super) fn on_device(handle: Handle, storage: DType, length: usize) -> Self {
        Self::with_origin(Origin::Allocated(handle), [0; 2], storage, length)
    }

    /// One in an arena, of whose memory so many bytes are in front of it and behind.
    pub(super) fn in_arena(part: Part, around: [u64; 2], storage: DType, length: usize) -> Self {
        Self::with_origin(Origin::InArena(part), around, storage, length)
    }

    fn with_origin(origin: Origin, around: [u64; 2], storage: DType, length: usize) -> Self {
        let memory = DeviceMemory { origin: Arc::new(origin), around };
        Self::new(Memory::Device(memory), storage, length)
    }

    /// Whether it lies in an arena, so that its handle does not hold its memory.
    pub(super) fn lies_in_arena(&self) -> bool {
        matches!(*self.device_memory().origin, Origin::InArena(_))
    }

    fn device_memory(&self) -> &DeviceMemory {
        match &self.memory {
            Memory::Device(memory) => memory,
            Memory::Dry(_) => panic!("the buffers of a dry run have no memory"),
        }
    }

    /// Which elements it has. Does not hold their memory.
    pub fn identity(&self) -> Identity {
        let DeviceMemory { origin, around } = self.device_memory();
        Identity { origin: Arc::downgrade(origin), around: *around }
    }

    /// Its memory, for kernels of CubeCL's that are launched before it goes.
    pub fn handle(&self) -> Handle {
        let DeviceMemory { origin, around: [before, behind] } = self.device_memory();
        origin.handle().clone().offset_start(*before).offset_end(*behind)
    }

    /// Where it lies in its device's memory, for as long as it is held. Known when all launches before have been given to the driver.
    ///
    /// # Errors
    ///
    /// What has failed that was to make it.
    pub(super) fn address(&self, client: &Client) -> Result<u64, String> {
        let place = client.get_resource::<<CudaRuntime as Runtime>::Server>(self.handle());
        place.map(|place| place.resource().ptr).map_err(|error| error.to_string())
    }

    /// Bytes from where `other` lies to where it does, which are negative where it lies in front; `None` where they are of different allocations.
    pub(super) fn behind(&self, other: &Self) -> Option<i64> {
        let (own, other) = (self.device_memory(), other.device_memory());
        let same = Arc::ptr_eq(&own.origin, &other.origin);
        same.then(|| own.around[0] as i64 - other.around[0] as i64)
    }

    /// The same for a launch.
    pub(super) fn binding(&self) -> BufferBinding {
        let DeviceMemory { origin, around: [before, behind] } = self.device_memory();
        let whole = origin.binding();
        BufferBinding {
            offset_start: Some(whole.offset_start.unwrap_or(0) + before),
            offset_end: Some(whole.offset_end.unwrap_or(0) + behind),
            ..whole
        }
    }

    /// The elements of `tensor`, which must be on a GPU and without autodiff, in row-major order. Its
    /// memory is shared, not copied, where it is in that order already.
    pub fn of_tensor<const D: usize>(tensor: Tensor<D>) -> Self {
        let tensor = tensor
            .try_into_primitive::<Cube>()
            .unwrap_or_else(|error| panic!("a kernel was given a tensor of elsewhere: {error:?}"));
        let tensor = into_contiguous(tensor);
        let storage = tensor.dtype;
        let is_float = matches!(storage, DType::F32 | DType::BF16 | DType::F16);
        assert!(is_float, "kernels take floating-point tensors, not {storage:?}");
        let length = tensor.meta.shape().num_elements();
        // What lies behind the elements in their allocation is none of ours.
        let behind = tensor.handle.size_in_used() - (length * storage.size()) as u64;
        Self::on_device(tensor.handle.offset_end(behind), storage, length)
    }

    /// A tensor of `shape` over the same memory; over a copy where it lies in an arena.
    pub(super) fn to_tensor<const D: usize>(
        &self,
        device: &CubeDevice,
        shape: [usize; D],
    ) -> Tensor<D> {
        assert_eq!(shape.iter().product::<usize>(), self.len(), "{shape:?}");
        let (client, dtype) = (device.client(), self.storage());
        let (device, shape) = (device.clone(), Shape::from(shape));
        let tensor = CubeTensor::new_contiguous(client, device, shape, self.handle(), dtype);
        let tensor = Tensor::from_primitive::<Cube>(tensor);
        if self.lies_in_arena() { tensor.mul_scalar(1.0) } else { tensor }
    }
}
