//! Memory on the GPU.

use std::ops::Range;
use std::sync::Arc;

use burn::backend::Cube;
use burn::backend::fusion::stream::StreamId;
use burn::backend::fusion::{Client, NoOp, get_client};
use burn::backend::ir::{InitOperationIr, OperationIr};
use burn::tensor::{Shape, Tensor};
use burn_cubecl::cubecl::server::Handle;
use burn_cubecl::fusion::FusionCubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{CubeBackend, CubeDevice};

use super::Storage;

/// Kernels load up to this many bytes at once.
const ALIGNMENT: usize = 16;

/// Elements of one type, one after another; a part of an allocation that lives as long as a buffer
/// points to it.
#[derive(Debug, Clone)]
pub struct Buffer {
    handle: Handle,
    storage: Storage,
    length: usize,
    /// The same in all that this was copied or cut from.
    origin: Arc<()>,
}

/// Which elements a buffer has: equal where one buffer was copied or cut from the other, or both from
/// a third, and they are the same elements of it.
#[derive(Debug, Clone)]
pub struct Identity {
    origin: Arc<()>,
    place: [u64; 2],
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.origin, &other.origin) && self.place == other.place
    }
}

impl Buffer {
    pub(super) fn new(handle: Handle, storage: Storage, length: usize) -> Self {
        Self { handle, storage, length, origin: Arc::default() }
    }

    /// Which elements it has. Does not hold their memory.
    pub fn identity(&self) -> Identity {
        let begin = self.handle.offset_start.unwrap_or(0);
        let place = [begin, begin + self.handle.size_in_used()];
        Identity { origin: Arc::clone(&self.origin), place }
    }

    /// How many elements it has.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The type of its elements.
    pub fn storage(&self) -> Storage {
        self.storage
    }

    /// The elements from `start` on, in the same memory.
    pub fn from(&self, start: usize) -> Self {
        self.range(start..self.length)
    }

    /// The elements of `range`, in the same memory.
    ///
    /// # Panics
    ///
    /// When the range leaves the buffer or starts where a kernel cannot load 16 bytes at once.
    pub fn range(&self, range: Range<usize>) -> Self {
        assert!(
            range.start <= range.end && range.end <= self.length,
            "{range:?} of {}",
            self.length
        );
        let bytes = self.storage.bytes();
        let (before, after) = (range.start * bytes, (self.length - range.end) * bytes);
        assert!(before.is_multiple_of(ALIGNMENT), "{range:?} is not aligned to {ALIGNMENT} bytes");
        let handle = self.handle.clone().offset_start(before as u64).offset_end(after as u64);
        let (length, origin) = (range.len(), Arc::clone(&self.origin));
        Self { handle, storage: self.storage, length, origin }
    }

    /// Its memory, for kernels of CubeCL's.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// The elements of `tensor`, which must be on a GPU and without autodiff, in row-major order. Its
    /// memory is shared, not copied, where it is in that order already.
    ///
    /// What is queued to compute the tensor is enqueued first.
    pub fn of_tensor<const D: usize>(tensor: Tensor<D>) -> Self {
        let fused = tensor
            .try_into_primitive::<Cube>()
            .unwrap_or_else(|error| panic!("a kernel was given a tensor of elsewhere: {error:?}"));
        let client = fused.client.clone();
        let tensor = into_contiguous(client.resolve_tensor_float::<CubeBackend>(fused));
        let storage = Storage::of(tensor.dtype);
        let length = tensor.meta.shape().num_elements();
        // What lies behind the elements in their allocation is none of ours.
        let behind = tensor.handle.size_in_used() - (length * storage.bytes()) as u64;
        let handle = tensor.handle.offset_end(behind);
        Self::new(handle, storage, length)
    }

    /// A tensor of `shape` over the same memory.
    pub(super) fn to_tensor<const D: usize>(
        &self,
        device: &CubeDevice,
        shape: [usize; D],
    ) -> Tensor<D> {
        assert_eq!(shape.iter().product::<usize>(), self.length, "{shape:?}");
        let fusion: Client<FusionCubeRuntime> = get_client::<CubeBackend>(device);
        let (shape, dtype) = (Shape::from(shape), self.storage.dtype());
        let tensor = CubeTensor::new_contiguous(
            device.client(),
            device.clone(),
            shape.clone(),
            self.handle.clone(),
            dtype,
        );
        let id = fusion.register_tensor_handle(tensor.into());
        let init = InitOperationIr::create(shape, dtype, || id);
        let stream = StreamId::current();
        let mut outputs =
            fusion.register(stream, OperationIr::Init(init), NoOp::<CubeBackend>::new());
        Tensor::from_primitive::<Cube>(outputs.remove(0))
    }
}
