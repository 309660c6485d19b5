//! Copies between a GPU and the host that run beside its kernels.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use burn::backend::StreamId;
use burn::tensor::Bytes;
use burn_cubecl::cubecl::client::Client;
use burn_cubecl::cubecl::future::{DynFut, block_on};
use burn_cubecl::cubecl::server::ServerError;

use crate::ops::gpu::{Buffer, Gpu, Storage};

/// How long the release of memory is waited for that others may hold as well.
const RELEASE: Duration = Duration::from_millis(2);

/// Copies on a stream of their own. CubeCL orders streams by when the buffers that they share were made,
/// not by when they were written last, so each copy is put behind all that was launched before it was
/// asked for. A copy to the host holds its memory until it has ended. Nothing holds back the kernels that
/// read a buffer copied to the device: whoever launches them must have waited for [`Transfers::upload`].
#[derive(Clone, Copy)]
pub struct Transfers {
    client: &'static Client,
    /// Where the copies run.
    stream: StreamId,
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
        let mut clients = CLIENTS.lock().unwrap_or_else(PoisonError::into_inner);
        clients.entry(self.index()).or_insert_with(|| Box::leak(Box::new(self.client().clone())))
    }

    /// Begins to read the 32-bit numbers in `buffer` as they are when all that the current thread has launched so far has
    /// run; what it launches from now on does not hold that up.
    pub fn begin_read(&self, buffer: &Buffer) -> Reading {
        Reading(Box::pin(self.lasting_client().read_async(vec![buffer.handle()])))
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

impl Transfers {
    /// For the GPU whose kernels the current thread launches.
    pub fn new(gpu: &Gpu) -> Self {
        Self { client: gpu.lasting_client(), stream: StreamId::allocate() }
    }

    /// Begins to copy `buffers` to pinned host memory (to other host memory where there is no more of
    /// that). Their memory is held until [`Download::wait`].
    pub fn download(&self, gpu: &Gpu, buffers: Vec<Buffer>) -> Download {
        self.follow(gpu);
        let handles = buffers.iter().map(Buffer::handle).collect();
        let client = self.client;
        let copies = self.stream.executes(|| client.read_async(handles));
        Download { copies: Box::pin(copies), sources: buffers }
    }

    /// Puts what is copied from now on behind all that the current thread has launched: a buffer that
    /// is made now and written on the stream of copies orders it so.
    fn follow(&self, gpu: &Gpu) {
        let last = gpu.empty(4, Storage::F32);
        let mark = Bytes::from_elems(vec![0_u32; 4]);
        self.stream.executes(|| self.client.write(&last.handle(), mark));
    }

    /// Buffers to upload into, in the memory of the current thread's kernels: what has been launched so
    /// far may still use that, and uploads wait for it.
    ///
    /// # Errors
    ///
    /// When there is no memory.
    pub fn room(&self, gpu: &Gpu, sizes: &[(usize, Storage)]) -> Result<Vec<Buffer>, String> {
        let buffers: Vec<Buffer> =
            sizes.iter().map(|(length, storage)| gpu.empty(*length, *storage)).collect();
        // And not for what is launched until the worker gets to copy.
        self.follow(gpu);
        gpu.check(&buffers).map(|()| buffers)
    }

    /// Copies `bytes` into `buffer`, one of those of [`Transfers::room`], and waits until that is done.
    /// To be called on another thread than that which launches kernels.
    ///
    /// # Errors
    ///
    /// When the device fails.
    pub fn upload(&self, mut bytes: Bytes, buffer: &Buffer) -> Result<(), String> {
        let handle = buffer.handle();
        self.stream.executes(|| {
            // Nothing is copied that is in pinned memory.
            self.client.staging(std::iter::once(&mut bytes), false);
            self.client.write(&handle, bytes);
            block_on(self.client.sync_buffers([&handle])).map_err(|error| error.to_string())
        })
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
        let memory: Vec<_> = sources
            .into_iter()
            .map(|buffer| buffer.handle().binding().memory.downgrade())
            .collect();
        let bytes = block_on(copies).map_err(|error| error.to_string())?;
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

impl std::fmt::Debug for Transfers {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Transfers({:?})", self.stream)
    }
}

impl std::fmt::Debug for Download {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Download").field("sources", &self.sources).finish_non_exhaustive()
    }
}
