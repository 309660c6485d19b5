//! What a card gives all others of one process or of several, by its copy engines.
#![expect(
    unsafe_code,
    reason = "the driver copies between addresses, and waits for words, by its C interface alone"
)]

use std::sync::Arc;

use cubecl_cuda::CudaRuntime;
use cubecl_server::runtime::Runtime;
use cudarc::driver::sys::{self, CUstreamWaitValue_flags_enum, CUstreamWriteValue_flags_enum};
use cudarc::driver::{CudaContext, CudaStream, DriverError, result};

use super::Peers;
use crate::ops::gpu::{Buffer, Gpu};

/// Copies arrays into the memory of all other cards, on a stream that CubeCL does not know and beside its kernels: no
/// multiprocessor copies. The stream waits for a word that a kernel writes when the arrays are there.
///
/// A kernel may wait for these copies, as all that they need has been given to the driver before that kernel is launched. Long runs
/// stood still where a thread asked for them later, probably since a thread that launches a kernel keeps the driver to itself while
/// there is no room for another launch.
pub(in crate::ops::gpu) struct Broadcast {
    stream: Arc<CudaStream>,
    peers: Arc<Peers>,
    landing: Landing,
}

/// Where the arrays of a card lie in the memory that the others reach: see `kernels/sum_copies.cu`.
#[derive(Debug, Clone, Copy)]
pub(in crate::ops::gpu) struct Landing {
    pub rank: usize,
    pub ranks: usize,
    /// Bytes in front of the words of the cards.
    pub words: usize,
    /// Bytes from these to the word that the card's own kernel writes.
    pub ready: usize,
    /// Bytes from the words to the room.
    pub head: usize,
    /// Bytes of the room for one card's arrays.
    pub bytes: usize,
}

impl Broadcast {
    /// What the card `gpu` gives others by.
    ///
    /// # Errors
    ///
    /// What the driver says, as where its streams cannot wait for words.
    pub(in crate::ops::gpu) fn new(
        gpu: &Gpu,
        peers: &Arc<Peers>,
        landing: Landing,
    ) -> Result<Self, String> {
        let stream = CudaContext::new(gpu.index()).and_then(|context| {
            context.bind_to_thread()?;
            // Streams of one priority can share a queue of the card's: kernels would wait for copies there.
            let (_, greatest) = result::stream::get_priority_range()?;
            context.new_stream_with_priority(greatest)
        });
        let stream = stream.map_err(|error: DriverError| error.to_string())?;
        // Both words are 0 already.
        let own = peers.addresses()[landing.rank] + landing.words as u64;
        let tried = wait(&stream, own + landing.ready as u64, 0)
            .and_then(|()| tell(&stream, own + 4 * landing.rank as u64, 0));
        tried.and_then(|()| stream.synchronize()).map_err(|error| error.to_string())?;
        Ok(Self { stream, peers: Arc::clone(peers), landing })
    }

    /// Copies `arrays`, each with the bytes in front of it in the room, to all other cards when the word says `number`, and then tells
    /// all cards that number. The kernel that writes the word must have been launched. Nothing may write into the arrays, or free
    /// their memory, before this card is told. Returns when the driver has all of it.
    ///
    /// # Errors
    ///
    /// What has failed that was to make the arrays, and what the driver says.
    pub(in crate::ops::gpu) fn give(
        &self,
        gpu: &Gpu,
        arrays: &[(Buffer, usize)],
        number: u32,
    ) -> Result<(), String> {
        // Known when all launches before have been given to the driver.
        let place = |(array, at): &(Buffer, usize)| {
            let client = gpu.client();
            let place = client.get_resource::<<CudaRuntime as Runtime>::Server>(array.handle());
            let from = place.map_err(|error| error.to_string())?.resource().ptr;
            Ok([from, *at as u64, (array.len() * array.storage().bytes()) as u64])
        };
        let arrays = arrays.iter().map(place).collect::<Result<Vec<_>, String>>()?;
        self.send(&arrays, number).map_err(|error| error.to_string())
    }

    /// Waits until all is copied that was given.
    pub(in crate::ops::gpu) fn drain(&self) {
        // What has failed is told where something is read.
        let _ = self.stream.synchronize();
    }

    fn send(&self, arrays: &[[u64; 3]], number: u32) -> Result<(), DriverError> {
        let Landing { rank, ranks, words, ready, head, bytes } = self.landing;
        self.stream.context().bind_to_thread()?;
        let parts = self.peers.addresses();
        let stream = self.stream.cu_stream();
        wait(&self.stream, parts[rank] + (words + ready) as u64, number)?;
        // Not all to the same card at once.
        for card in (1..ranks).map(|turn| (rank + turn) % ranks) {
            let words = parts[card] + words as u64;
            let place = if rank < card { rank } else { rank - 1 };
            let room = words + (head + place * bytes) as u64;
            for [from, at, length] in arrays {
                // SAFETY: as many bytes are the array's, whose memory is held until this card is told, and the room's.
                unsafe { result::memcpy_dtod_async(room + at, *from, *length as usize, stream) }?;
            }
            tell(&self.stream, words + 4 * rank as u64, number)?;
        }
        tell(&self.stream, parts[rank] + words as u64 + 4 * rank as u64, number)
    }
}

/// Has `stream` wait until `word`, in memory that a [`Broadcast`] holds, has come to `number`.
fn wait(stream: &CudaStream, word: u64, number: u32) -> Result<(), DriverError> {
    let flags = CUstreamWaitValue_flags_enum::CU_STREAM_WAIT_VALUE_GEQ as u32;
    // SAFETY: the word is held for as long as the stream.
    unsafe { sys::cuStreamWaitValue32_v2(stream.cu_stream(), word, number, flags) }.result()
}

/// Has `stream` write `number` into such a word, behind all that it was given before.
fn tell(stream: &CudaStream, word: u64, number: u32) -> Result<(), DriverError> {
    let flags = CUstreamWriteValue_flags_enum::CU_STREAM_WRITE_VALUE_DEFAULT as u32;
    // SAFETY: as there.
    unsafe { sys::cuStreamWriteValue32_v2(stream.cu_stream(), word, number, flags) }.result()
}

impl Drop for Broadcast {
    fn drop(&mut self) {
        // A kernel in front of the copies may still wait for another card.
        self.peers.stop();
        self.drain();
    }
}

impl std::fmt::Debug for Broadcast {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Broadcast({:?})", self.peers)
    }
}
