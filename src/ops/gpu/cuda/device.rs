//! An NVIDIA GPU, reached through CubeCL and so on Burn's stream, with its allocator and its cache of
//! compiled kernels.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use burn::backend::DispatchDevice;
use burn::tensor::{DType, Device, Tensor};
use burn_cubecl::CubeDevice;
use burn_cubecl::cubecl::MemoryScope;
use burn_cubecl::cubecl::client::Client;
use burn_cubecl::cubecl::prelude::CubeCount;
use burn_cubecl::cubecl::server::{KernelArguments, KernelResource, MetadataBindingInfo};
use cubecl_server::logging::{LaunchObservation, LaunchObserver};
use cudarc::driver::CudaContext;

use super::ahead::Compiler;
use crate::memory::Pages;
use crate::ops::gpu::gpu::{Argument, Backend};
use crate::ops::gpu::{Buffer, Gpu, Kernel, Sizes};

/// A card that CubeCL has opened.
#[derive(Clone)]
pub(in crate::ops::gpu) struct Cuda {
    device: CubeDevice,
    pub(super) index: usize,
    client: Client,
}

impl PartialEq for Cuda {
    fn eq(&self, other: &Self) -> bool {
        self.device == other.device
    }
}

impl std::fmt::Debug for Cuda {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{:?}", self.device)
    }
}

impl Cuda {
    /// See [`Gpu::empty`]: `bytes` for `length` elements.
    pub(in crate::ops::gpu) fn empty(&self, bytes: usize, length: usize, storage: DType) -> Buffer {
        let behind = (bytes - length * storage.size()) as u64;
        Buffer::on_device(self.client.empty(bytes).offset_end(behind), storage, length)
    }

    /// A buffer with these bytes.
    pub(in crate::ops::gpu) fn upload(
        &self,
        bytes: &[u8],
        storage: DType,
        length: usize,
    ) -> Buffer {
        Buffer::on_device(self.client.create_from_slice(bytes), storage, length)
    }

    /// See [`Gpu::copied`].
    pub(in crate::ops::gpu) fn copied(&self, buffer: &Buffer, length: usize) -> Buffer {
        let values: Tensor<1> = buffer.to_tensor(&self.device, [buffer.len()]);
        Buffer::of_tensor(match length - buffer.len() {
            0 => values.mul_scalar(1.0),
            room => {
                let zeros = Tensor::zeros([room], &values.device());
                Tensor::cat(vec![values, zeros], 0)
            }
        })
    }

    /// See [`Gpu::multiprocessors`].
    pub(in crate::ops::gpu) fn multiprocessors(&self) -> usize {
        let hardware = &self.client.properties().hardware;
        hardware.num_streaming_multiprocessors.unwrap_or(1) as usize
    }

    /// See [`Gpu::is_hopper`].
    pub(in crate::ops::gpu) fn is_hopper(&self) -> bool {
        let compiler = self.compiler();
        compiler.is_some_and(|compiler| compiler.is_for_hopper() && compiler.is_heard())
    }

    fn compiler(&self) -> Option<Compiler> {
        Compiler::new(&Gpu(Backend::Cuda(self.clone())))
    }

    /// See [`Gpu::launch`].
    pub(in crate::ops::gpu) fn launch(
        &self,
        kernel: &Kernel,
        [x, y, z]: [u32; 3],
        arguments: &[&dyn Argument],
        sizes: &Sizes,
    ) {
        if kernel.shared() > 0 {
            self.make_ready(kernel);
        }
        let words = sizes.words();
        let count = words.len();
        let bound = KernelArguments {
            resources: arguments
                .iter()
                .map(|argument| KernelResource::Buffer(argument.memory().binding()))
                .collect(),
            declared_io: kernel.uses().iter().take(arguments.len()).copied().collect(),
            info: MetadataBindingInfo::new(words, count),
        };
        self.client.launch(kernel.launchable(), CubeCount::Static(x, y, z), bound);
    }

    /// Puts the machine code of `kernel` where CubeCL finds it together with its shared memory: what
    /// CubeCL compiles itself from text is launched with none.
    fn make_ready(&self, kernel: &Kernel) {
        if kernel.0.ready.get().is_none()
            && let Some(compiler) = self.compiler()
        {
            compiler.compile(std::slice::from_ref(kernel), |_, _| {});
        }
    }
}

impl Gpu {
    /// The GPU that `device` is; `None` for another device.
    pub fn of(device: &Device) -> Option<Self> {
        let device = device.clone().inner();
        match device.as_dispatch() {
            DispatchDevice::Cube(device @ CubeDevice::Cuda(card)) => {
                let (client, index) = (device.client(), card.index);
                Some(Self(Backend::Cuda(Cuda { device: device.clone(), index, client })))
            }
            _ => None,
        }
    }

    fn cuda(&self) -> &Cuda {
        match &self.0 {
            Backend::Cuda(cuda) => cuda,
            Backend::Dry(_) => panic!("a dry run has no device"),
        }
    }

    /// What CubeCL's kernels are launched by.
    pub fn client(&self) -> &Client {
        &self.cuda().client
    }

    /// A buffer with these values.
    pub fn upload(&self, values: &[f32]) -> Buffer {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
        self.cuda().upload(&bytes, DType::F32, values.len())
    }

    /// Bytes in use.
    fn live(&self) -> u64 {
        let usage = self.client().memory_report(MemoryScope::Device).usage();
        // A card that is lost tells nothing.
        usage.bytes_in_use.saturating_sub(self.free_in_arenas())
    }

    /// What CUDA calls it, counted from 0.
    pub fn index(&self) -> usize {
        self.cuda().index
    }

    /// What the driver knows the card by, the same in all processes.
    ///
    /// # Errors
    /// What the driver says.
    pub fn identity(&self) -> Result<Vec<u8>, String> {
        let read = CudaContext::new(self.index()).and_then(|context| context.uuid());
        let identity = read.map_err(|error| error.to_string())?;
        Ok(identity.bytes.iter().map(|byte| *byte as u8).collect())
    }

    /// Bytes of its memory, where they are known.
    pub fn memory(&self) -> Option<u64> {
        self.client().properties().memory.max_memory()
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

    /// A tensor of `shape` over the memory of `buffer`.
    pub fn tensor<const D: usize>(&self, buffer: &Buffer, shape: [usize; D]) -> Tensor<D> {
        buffer.to_tensor(&self.cuda().device, shape)
    }

    /// Takes `pages` from the device, which everything that the current thread asks for lies in from now on as
    /// long as they suffice. To be called before it asks for anything: the allocator's pages never get
    /// smaller.
    ///
    /// # Errors
    ///
    /// Where there is not so much memory.
    pub fn hold(&self, pages: Pages) -> Result<(), String> {
        // CubeCL makes a page this much larger than the buffer that it is made for.
        const SLACK: u64 = 1 << 20;
        let length = (pages.size - SLACK) as usize / DType::F32.size();
        let all: Vec<Buffer> = (0..pages.count).map(|_| self.floats(length)).collect();
        self.check(&all)
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
        self.client().check(&handles).map_err(|error| error.to_string())
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
        self.most.fetch_max(self.gpu.live(), Ordering::Relaxed);
    }
}
