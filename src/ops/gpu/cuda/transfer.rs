//! Copies between a GPU and the host that run beside its kernels.
#![expect(
    unsafe_code,
    reason = "the driver copies to an address of the device by its C interface alone"
)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use burn::backend::StreamId;
use burn::tensor::{Bytes, DType};
use burn_cubecl::cubecl::client::Client;
use burn_cubecl::cubecl::future::{DynFut, block_on};
use burn_cubecl::cubecl::server::ServerError;
use cudarc::driver::{CudaContext, CudaStream, DriverError, result};

use super::Fence;
use crate::ops::gpu::gpu::lock;
use crate::ops::gpu::{Buffer, Gpu};

/// How long the release of memory is waited for that others may hold as well.
const RELEASE: Duration = Duration::from_millis(2);

/// Copies to the host beside a thread's kernels, on a stream of their own. CubeCL orders streams by when the buffers that
/// they share were made, not by when they were written last, so each copy is put behind all that was launched before it
/// was asked for. A copy holds its memory until it has ended.
#[derive(Clone, Copy)]
pub struct Downloads {
    client: &'static Client,
    /// Where the copies run.
    stream: StreamId,
}

/// Copies to a GPU beside its kernels, on a stream of their own that CubeCL does not know, so that neither stream waits
/// for the other one: the host waits for what a copy must follow. Nothing holds back the kernels that read what was
/// copied: whoever launches them must have waited for [`Uploads::upload`].
#[derive(Clone)]
pub struct Uploads {
    client: &'static Client,
    /// Where the copies run.
    stream: Arc<CudaStream>,
}

/// Memory of the device that is to be uploaded into.
#[derive(Debug)]
pub struct Room {
    buffer: Buffer,
    address: u64,
    /// When all has run that may still use the memory.
    free: Arc<Fence>,
}

/// Numbers on their way to the host.
pub struct Reading(DynFut<Result<Vec<Bytes>, ServerError>>);

/// A copy to the host on its way.
pub struct Download {
    copies: DynFut<Result<Vec<Bytes>, ServerError>>,
    sources: Vec<Buffer>,
}

impl Gpu {
    /// Its client, which lives as long as the process, as a copy under way borrows it. A client is two references
    /// to what lives as long.
    fn lasting_client(&self) -> &'static Client {
        static CLIENTS: Mutex<BTreeMap<usize, &Client>> = Mutex::new(BTreeMap::new());
        let mut clients = lock(&CLIENTS);
        clients.entry(self.index()).or_insert_with(|| Box::leak(Box::new(self.client().clone())))
    }

    /// Begins to read the 32-bit numbers in `buffer` as they are when all that the current thread has launched so far has
    /// run; what it launches from now on does not hold that up.
    pub fn begin_read(&self, buffer: &Buffer) -> Reading {
        assert!(!buffer.lies_in_arena(), "what is read is held by its handle");
        Reading(Box::pin(self.lasting_client().read_async(vec![buffer.handle()])))
    }
}

impl Room {
    /// Its first `length` elements. All of its memory is held.
    pub fn first(self, length: usize) -> Self {
        Self { buffer: self.buffer.range(0..length), ..self }
    }
}

impl Reading {
    /// Waits for them.
    ///
    /// # Errors
    ///
    /// When the device fails, or what was to fill the buffer has failed.
    pub fn wait(self) -> Result<Vec<f32>, String> {
        let read = block_on(self.0).map_err(|error| error.to_string())?;
        let number = |bytes: &[u8; 4]| f32::from_ne_bytes(*bytes);
        Ok(read.iter().flat_map(|bytes| bytes.as_chunks::<4>().0.iter().map(number)).collect())
    }
}

impl Downloads {
    /// For the GPU whose kernels the current thread launches.
    pub fn new(gpu: &Gpu) -> Self {
        Self { client: gpu.lasting_client(), stream: StreamId::allocate() }
    }

    /// Begins to copy `buffers` to pinned host memory (to other host memory where there is no more of
    /// that). Their memory is held until [`Download::wait`].
    pub fn begin(&self, gpu: &Gpu, buffers: Vec<Buffer>) -> Download {
        self.follow(gpu);
        let handles = buffers.iter().map(Buffer::handle).collect();
        let client = self.client;
        let copies = self.stream.executes(|| client.read_async(handles));
        Download { copies: Box::pin(copies), sources: buffers }
    }

    /// Puts what is copied from now on behind all that the current thread has launched: a buffer that
    /// is made now and written on the stream of copies orders it so.
    fn follow(&self, gpu: &Gpu) {
        let last = gpu.empty(4, DType::F32);
        let mark = Bytes::from_elems(vec![0_u32; 4]);
        self.stream.executes(|| self.client.write(&last.handle(), mark));
    }
}

impl Uploads {
    /// To the GPU whose kernels the current thread launches.
    ///
    /// # Errors
    ///
    /// When the driver makes no stream.
    pub fn new(gpu: &Gpu) -> Result<Self, String> {
        let stream = CudaContext::new(gpu.index()).and_then(|context| context.new_stream());
        let stream = stream.map_err(|error| error.to_string())?;
        Ok(Self { client: gpu.lasting_client(), stream })
    }

    /// Room to upload into, in the memory of the current thread's kernels: what has been launched so far may
    /// still use that, and uploads wait for it.
    ///
    /// # Errors
    ///
    /// When there is no memory.
    pub fn room(&self, gpu: &Gpu, sizes: &[(usize, DType)]) -> Result<Vec<Room>, String> {
        let buffers: Vec<Buffer> =
            sizes.iter().map(|(length, storage)| gpu.empty(*length, *storage)).collect();
        gpu.check(&buffers)?;
        let free = Arc::new(gpu.fence());
        let room = |buffer: Buffer| {
            // It stays where it is for as long as the buffer is held.
            let address = buffer.address(self.client)?;
            Ok(Room { buffer, address, free: Arc::clone(&free) })
        };
        buffers.into_iter().map(room).collect()
    }

    /// Moves `bytes` into pinned host memory, from which the device copies fastest, where they are not there yet and there is such
    /// memory.
    pub fn pin(&self, bytes: &mut Bytes) {
        self.client.staging(std::iter::once(bytes), false);
    }

    /// Copies `bytes` into `room`, waits until that is done, and gives what they are in now. To be called on another
    /// thread than that which launches kernels.
    ///
    /// # Errors
    ///
    /// When the device fails.
    pub fn upload(&self, bytes: &[u8], room: Room) -> Result<Buffer, String> {
        let Room { buffer, address, free } = room;
        let length = buffer.len() * buffer.storage().size();
        assert_eq!(bytes.len(), length, "bytes are uploaded into room for as many");
        free.wait()?;
        // SAFETY: as many bytes at the address are the buffer's, which nothing uses: what was launched before it was
        // made has run. It and the bytes are held until the copy has ended.
        let copied = self.stream.context().bind_to_thread().and_then(|()| unsafe {
            result::memcpy_htod_async(address, bytes, self.stream.cu_stream())
        });
        let ended = self.stream.synchronize();
        copied.and(ended).map(|()| buffer).map_err(|error: DriverError| error.to_string())
    }
}

impl Download {
    /// Waits for the copies, and until the memory of buffers that no one else holds is free.
    ///
    /// # Errors
    ///
    /// When the device fails, or what was to fill the buffers has failed.
    pub fn wait(self) -> Result<Vec<Bytes>, String> {
        let Self { copies, sources } = self;
        let bytes = block_on(copies).map_err(|error| error.to_string())?;
        let own = sources.iter().filter(|buffer| !buffer.lies_in_arena());
        let memory: Vec<_> =
            own.map(|buffer| buffer.handle().binding().memory.downgrade()).collect();
        drop(sources);
        // A thread of CubeCL's holds it a moment longer.
        let begin = Instant::now();
        while memory.iter().any(|memory| memory.upgrade().is_some()) && begin.elapsed() < RELEASE {
            std::thread::sleep(Duration::from_micros(20));
        }
        Ok(bytes)
    }
}

impl std::fmt::Debug for Reading {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Reading").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Downloads {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Downloads({:?})", self.stream)
    }
}

impl std::fmt::Debug for Uploads {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Uploads({:?})", self.stream)
    }
}

impl std::fmt::Debug for Download {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Download").field("sources", &self.sources).finish_non_exhaustive()
    }
}
