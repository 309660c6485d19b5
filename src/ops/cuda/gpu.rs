//! A GPU that kernels are launched on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use burn::backend::DispatchDevice;
use burn::tensor::{Device, Tensor};
use burn_cubecl::CubeDevice;
use burn_cubecl::cubecl::client::Client;
use burn_cubecl::cubecl::prelude::CubeCount;
use burn_cubecl::cubecl::server::{KernelArguments, MetadataBindingInfo};
use burn_cubecl::cubecl::{MemoryScope, MemoryUsage};
use cubecl_server::logging::{LaunchObservation, LaunchObserver};

use super::ahead::noted;
use super::{Buffer, Kernel, Storage};

/// An NVIDIA GPU: its memory and its stream of work.
#[derive(Clone)]
pub struct Gpu {
    device: CubeDevice,
    index: usize,
    client: Client,
}

impl PartialEq for Gpu {
    fn eq(&self, other: &Self) -> bool {
        self.device == other.device
    }
}

impl std::fmt::Debug for Gpu {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Gpu({:?})", self.device)
    }
}

impl Gpu {
    /// The GPU that `device` is; `None` for another device.
    pub fn of(device: &Device) -> Option<Self> {
        let device = device.clone().inner();
        match device.as_dispatch() {
            DispatchDevice::Cube(device @ CubeDevice::Cuda(card)) => {
                Some(Self { device: device.clone(), index: card.index, client: device.client() })
            }
            _ => None,
        }
    }

    /// What CubeCL's kernels are launched by.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Room for `length` elements, whose values are whatever was there before.
    pub fn empty(&self, length: usize, storage: Storage) -> Buffer {
        // A kernel may be given a buffer it has no use for; the allocator has no empty ones.
        let bytes = (length * storage.bytes()).max(16);
        let handle = self.client.empty(bytes);
        let behind = (bytes - length * storage.bytes()) as u64;
        Buffer::new(handle.offset_end(behind), storage, length)
    }

    /// Room for `length` 32-bit numbers.
    pub fn floats(&self, length: usize) -> Buffer {
        self.empty(length, Storage::F32)
    }

    /// A buffer with these values.
    pub fn upload(&self, values: &[f32]) -> Buffer {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
        Buffer::new(self.client.create_from_slice(&bytes), Storage::F32, values.len())
    }

    /// A buffer with these integers.
    pub fn upload_integers(&self, values: &[u32]) -> Buffer {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
        Buffer::new(self.client.create_from_slice(&bytes), Storage::U32, values.len())
    }

    fn usage(&self) -> MemoryUsage {
        self.client.memory_report(MemoryScope::Device).usage()
    }

    /// What CUDA calls it, counted from 0.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Bytes of its memory, where they are known.
    pub fn memory(&self) -> Option<u64> {
        self.client.properties().memory.max_memory()
    }

    /// Runs `work` and returns with its outcome the most bytes in use at any launch of a kernel in it,
    /// Burn's kernels included: what a kernel reads and writes is allocated then. `work` takes longer
    /// for it, and must not end before what it has asked for is launched.
    pub fn most_bytes_in<T>(&self, work: impl FnOnce() -> T) -> (T, u64) {
        let watcher = Arc::new(Watcher { gpu: self.clone(), most: AtomicU64::new(0) });
        let observation = LaunchObservation::new(watcher.clone());
        let outcome = work();
        drop(observation);
        (outcome, watcher.most.load(Ordering::Relaxed))
    }

    /// Gives memory that nothing uses back to the device.
    pub fn release_unused(&self) {
        let _ = self.client.memory_cleanup();
    }

    /// Its multiprocessors.
    pub fn multiprocessors(&self) -> usize {
        let hardware = &self.client.properties().hardware;
        hardware.num_streaming_multiprocessors.unwrap_or(1) as usize
    }

    /// A tensor of `shape` over the memory of `buffer`.
    pub fn tensor<const D: usize>(&self, buffer: &Buffer, shape: [usize; D]) -> Tensor<D> {
        buffer.to_tensor(&self.device, shape)
    }

    /// Launches `kernel` on a grid of blocks: its arguments are a pointer to each of `buffers`, then
    /// `sizes` as one structure by value.
    ///
    /// Returns at once. A kernel that cannot be compiled or launched leaves its failure on the
    /// buffers, where reading them reports it.
    pub fn launch(&self, kernel: &Kernel, grid: [usize; 3], buffers: &[&Buffer], sizes: &Sizes) {
        if noted(kernel) {
            return;
        }
        let [x, y, z] = grid.map(|count| u32::try_from(count).expect("a grid fits in 32 bits"));
        let uses = kernel.uses().iter().copied().map(Some).chain(std::iter::repeat(None));
        let arguments = KernelArguments::new();
        let arguments = buffers.iter().zip(uses).fold(arguments, |arguments, (buffer, used)| {
            let binding = buffer.handle().binding();
            match used {
                Some(used) => arguments.with_buffer_io(binding, used),
                None => arguments.with_buffer(binding),
            }
        });
        let words = sizes.words();
        let count = words.len();
        let arguments = arguments.with_info(MetadataBindingInfo::new(words, count));
        self.client.launch(kernel.launchable(), CubeCount::Static(x, y, z), arguments);
    }

    /// Whether the memory of `buffers` could be had and everything that fills it was launched. Does
    /// not wait for the device.
    ///
    /// # Errors
    ///
    /// What has failed, such as an allocation: [`OutOfMemory::in_text`] knows it.
    ///
    /// [`OutOfMemory::in_text`]: crate::memory::OutOfMemory::in_text
    pub fn check(&self, buffers: &[Buffer]) -> Result<(), String> {
        let handles: Vec<_> = buffers.iter().map(Buffer::handle).collect();
        self.client.check(&handles).map_err(|error| error.to_string())
    }

    /// Waits until everything launched so far has run.
    ///
    /// # Errors
    ///
    /// When the device has failed.
    pub fn wait(&self) -> Result<(), String> {
        burn_cubecl::cubecl::future::block_on(self.client.sync()).map_err(|error| error.to_string())
    }
}

/// Asks the allocator at every launch.
struct Watcher {
    gpu: Gpu,
    most: AtomicU64,
}

impl LaunchObserver for Watcher {
    // The thread of the allocator does what it is told in turn, so it answers as of this launch.
    fn launched(&self, _kernel: &'static str) {
        self.most.fetch_max(self.gpu.usage().bytes_in_use, Ordering::Relaxed);
    }
}

/// The last argument of a kernel: a structure of 32-bit fields.
#[derive(Debug, Clone, Default)]
pub struct Sizes(Vec<u32>);

impl Sizes {
    /// No fields yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// With an integer field.
    ///
    /// # Panics
    ///
    /// When the number is above 2³¹ − 1.
    pub fn int(mut self, value: usize) -> Self {
        let value = i32::try_from(value).expect("a size fits in 31 bits");
        self.0.push(value as u32);
        self
    }

    /// With a field of 32 bits.
    pub fn bits(mut self, value: u32) -> Self {
        self.0.push(value);
        self
    }

    /// With a floating-point field.
    pub fn float(mut self, value: f32) -> Self {
        self.0.push(value.to_bits());
        self
    }

    /// The fields two to a word, as they lie in the structure; structures have an even number of
    /// fields, and what is missing is 0.
    fn words(&self) -> Vec<u64> {
        let word = |pair: &[u32]| {
            let high = pair.get(1).copied().unwrap_or(0);
            u64::from(pair[0]) | u64::from(high) << 32
        };
        self.0.chunks(2).map(word).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_lie_in_order_and_fill_whole_words() {
        let sizes = Sizes::new().int(1).int(2).float(1.0);
        assert_eq!(sizes.words(), [0x2_0000_0001, 0x3f80_0000]);
    }
}
