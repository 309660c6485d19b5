//! Copies by a card's copy engines, beside its kernels.
#![expect(
    unsafe_code,
    reason = "the driver copies between addresses, and waits for words, by its C interface alone"
)]

use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{
    self, CUDA_MEMCPY2D, CUmemorytype, CUstreamWaitValue_flags_enum, CUstreamWriteValue_flags_enum,
};
use cudarc::driver::{CudaContext, CudaEvent, CudaStream, DriverError, result};

use super::Peers;
use crate::ops::gpu::Gpu;
use crate::ops::gpu::messages::{Lying, PitchedRows};

/// Copies into memory that other cards reach, one after the other, on a stream that CubeCL does not know: no multiprocessor copies.
/// The stream waits for words of 32 bits in that memory, and writes them.
///
/// A kernel may wait for what is copied, as all that it needs has been given to the driver before that kernel is launched. Long runs
/// stood still where a thread asked for copies later, probably since a thread that launches a kernel keeps the driver to itself while
/// there is no room for another launch.
#[derive(Debug)]
pub(in crate::ops::gpu) struct CopyStream {
    stream: Arc<CudaStream>,
    peers: Arc<Peers>,
}

impl CopyStream {
    /// One of the card `gpu`, which has the place `rank` among `peers`, for what travels in this `lane`. The word that lies so many bytes behind the
    /// beginning of its part is 0.
    ///
    /// # Errors
    ///
    /// What the driver says, as where its streams cannot wait for words.
    pub(in crate::ops::gpu) fn new(
        gpu: &Gpu,
        peers: &Arc<Peers>,
        [rank, lane]: [usize; 2],
        word: usize,
    ) -> Result<Self, String> {
        let stream = CudaContext::new(gpu.index()).and_then(|context| {
            context.bind_to_thread()?;
            // Streams of one priority can share a queue of the card's: kernels, or other copies, would wait there for what these wait for.
            let (least, greatest) = result::stream::get_priority_range()?;
            context.new_stream_with_priority((greatest + lane as i32).min(least))
        });
        let stream = stream.map_err(|error: DriverError| error.to_string())?;
        let copies = Self { stream, peers: Arc::clone(peers) };
        let tried = copies.wait(rank, word, 0).and_then(|()| copies.tell(rank, word, 0));
        tried.and_then(|()| copies.stream.synchronize()).map_err(|error| error.to_string())?;
        Ok(copies)
    }

    /// Has what comes next wait until the word that lies so many bytes behind the beginning of the card's part has come to `number`.
    pub(super) fn wait(&self, card: usize, word: usize, number: u32) -> Result<(), DriverError> {
        let (stream, word) = (self.ready()?, self.place(card, word));
        let flags = CUstreamWaitValue_flags_enum::CU_STREAM_WAIT_VALUE_GEQ as u32;
        // SAFETY: the word is held for as long as the stream.
        unsafe { sys::cuStreamWaitValue32_v2(stream, word, number, flags) }.result()
    }

    /// Writes `number` into such a word, behind all that was asked for before.
    pub(super) fn tell(&self, card: usize, word: usize, number: u32) -> Result<(), DriverError> {
        let (stream, word) = (self.ready()?, self.place(card, word));
        let flags = CUstreamWriteValue_flags_enum::CU_STREAM_WRITE_VALUE_DEFAULT as u32;
        // SAFETY: as there.
        unsafe { sys::cuStreamWriteValue32_v2(stream, word, number, flags) }.result()
    }

    /// An event for [`CopyStream::record`], which has not been recorded.
    pub(super) fn event(&self) -> Result<CudaEvent, DriverError> {
        self.stream.context().new_event(None)
    }

    /// Has what waits for `event`, of this stream's card, from here on wait until all that was asked for before has been done.
    pub(super) fn record(&self, event: &CudaEvent) -> Result<(), DriverError> {
        event.record(&self.stream)
    }

    /// Has what comes next wait for `event` as it was recorded last, by a stream of any card; for nothing where it was not.
    pub(super) fn wait_for(&self, event: &CudaEvent) -> Result<(), DriverError> {
        self.stream.wait(event)
    }

    /// Copies so many bytes from the address `from` to those that lie so many bytes behind the beginning of the card's part. Nothing may write
    /// into what is copied, or free its memory, before that is known to have ended.
    pub(super) fn copy(
        &self,
        card: usize,
        to: usize,
        from: u64,
        bytes: usize,
    ) -> Result<(), DriverError> {
        let (stream, to) = (self.ready()?, self.place(card, to));
        // SAFETY: as many bytes are the part's, and those of what is copied, as whoever asks knows.
        unsafe { result::memcpy_dtod_async(to, from, bytes, stream) }
    }

    /// Copies the rows of `part` to those of `place`, in memory that the stream's card reaches. Nothing may write into either, or free its memory, before
    /// that is known to have ended.
    pub(super) fn copy_rows(&self, part: &Lying, place: &Lying) -> Result<(), DriverError> {
        let stream = self.ready()?;
        let [part, place] = Lying::in_one_row([part, place]);
        let PitchedRows { rows, bytes, pitch } = part.rows;
        if rows == 1 {
            // SAFETY: the memory of both has so many bytes, as whoever asks knows.
            return unsafe {
                result::memcpy_dtod_async(place.address, part.address, bytes, stream)
            };
        }
        let copy = CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: CUmemorytype::CU_MEMORYTYPE_UNIFIED,
            srcHost: ptr::null(),
            srcDevice: part.address,
            srcArray: ptr::null_mut(),
            srcPitch: pitch,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: CUmemorytype::CU_MEMORYTYPE_UNIFIED,
            dstHost: ptr::null_mut(),
            dstDevice: place.address,
            dstArray: ptr::null_mut(),
            dstPitch: place.rows.pitch,
            WidthInBytes: bytes,
            Height: rows,
        };
        // SAFETY: `copy` outlives the call; the rows lie within the memory of both, as whoever asks knows.
        unsafe { sys::cuMemcpy2DAsync_v2(&copy, stream) }.result()
    }

    /// Where what lies so many bytes behind the beginning of the card's part is.
    fn place(&self, card: usize, behind: usize) -> u64 {
        self.peers.addresses()[card] + behind as u64
    }

    /// Waits until all is copied.
    pub(in crate::ops::gpu) fn drain(&self) {
        // What has failed is told where something is read.
        let _ = self.stream.synchronize();
    }

    /// The stream, for the thread that asks.
    fn ready(&self) -> Result<sys::CUstream, DriverError> {
        self.stream.context().bind_to_thread()?;
        Ok(self.stream.cu_stream())
    }
}

impl Drop for CopyStream {
    fn drop(&mut self) {
        // A kernel in front of the copies may still wait for another card.
        self.peers.stop();
        self.drain();
    }
}
