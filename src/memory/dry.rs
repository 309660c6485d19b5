//! An allocator that only counts.
//!
//! Where a step's memory is estimated, the code of the step runs on buffers without memory behind
//! them. A buffer counts as in use for as long as anyone holds it, as one on a device does.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use super::{BufferLifetime, StepOperation};

/// Bytes of maps `[images, channels, height, width]` with numbers of `number` bytes on a GPU, where CubeCL lays out
/// the rows: each begins at a multiple of 512 bytes, or of the next power of two where a row is less.
pub fn bytes_in_rows([images, channels, height, width]: [usize; 4], number: usize) -> u64 {
    let row = number * width;
    let pitch = row.next_multiple_of(row.next_power_of_two().clamp(16, 512));
    (images * channels * height * pitch) as u64
}

/// Counts the bytes in use and the most there were at once.
#[derive(Debug, Clone, Default)]
pub struct DryAllocator(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    live: AtomicU64,
    peak: AtomicU64,
    /// The most taken at once.
    largest: AtomicU64,
    /// How often memory was taken.
    taken: AtomicU64,
    /// What was taken, where that is noted.
    record: Option<Mutex<Record>>,
}

/// What was taken, by number, and the time.
#[derive(Debug, Default)]
struct Record {
    buffers: Vec<BufferLifetime>,
    clock: u64,
    /// The operation under way.
    operation: Option<StepOperation>,
}

impl DryAllocator {
    /// One that also notes when each buffer of memory is taken, used and given back.
    pub fn recording() -> Self {
        Self(Arc::new(Counts { record: Some(Mutex::default()), ..Counts::default() }))
    }

    /// What was taken since it was made, where it is one that [records](DryAllocator::recording).
    pub fn buffers(&self) -> Vec<BufferLifetime> {
        self.at_a_time(|record, _| record.buffers.clone()).unwrap_or_default()
    }

    /// What `note` makes of the record and the time, which moves on.
    fn at_a_time<T>(&self, note: impl FnOnce(&mut Record, u64) -> T) -> Option<T> {
        let mut record = self.0.record.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        record.clock += 1;
        let now = record.clock;
        Some(note(&mut record, now))
    }

    /// What passes take from now on, they take in this operation.
    pub fn begin(&self, operation: StepOperation) {
        self.at_a_time(|record, _| record.operation = Some(operation));
    }

    /// Memory of `bytes` bytes for a pass of a fused stage.
    pub fn take_in_pass(&self, bytes: u64) -> DryBuffer {
        let taken = self.take(bytes);
        self.at_a_time(|record, _| {
            let operation = record.operation;
            record.buffers.last_mut().map(|buffer| buffer.pass = operation)
        });
        taken
    }

    /// Memory of `bytes` bytes.
    pub fn take(&self, bytes: u64) -> DryBuffer {
        self.0.live.fetch_add(bytes, Relaxed);
        self.0.largest.fetch_max(bytes, Relaxed);
        self.touch(0);
        let number = self.0.taken.fetch_add(1, Relaxed);
        self.at_a_time(|record, now| {
            record.buffers.push(BufferLifetime {
                bytes,
                from: now,
                to: u64::MAX,
                used: now,
                pass: None,
            });
        });
        DryBuffer(Arc::new(Block { number, bytes, allocator: self.clone() }))
    }

    /// So many bytes more are in use for a moment.
    pub fn touch(&self, bytes: u64) {
        self.0.peak.fetch_max(self.live() + bytes, Relaxed);
    }

    /// Bytes in use.
    pub fn live(&self) -> u64 {
        self.0.live.load(Relaxed)
    }

    /// The most since the last [`DryAllocator::restart`].
    pub fn peak(&self) -> u64 {
        self.0.peak.load(Relaxed)
    }

    /// The most that was taken at once.
    pub fn largest(&self) -> u64 {
        self.0.largest.load(Relaxed)
    }

    /// The peak is from now on that of what follows.
    pub fn restart(&self) {
        self.0.peak.store(self.live(), Relaxed);
    }
}

/// Memory in use.
#[derive(Debug, Clone)]
pub struct DryBuffer(Arc<Block>);

#[derive(Debug)]
struct Block {
    /// Of those that were taken.
    number: u64,
    bytes: u64,
    allocator: DryAllocator,
}

impl Drop for Block {
    fn drop(&mut self) {
        self.allocator.0.live.fetch_sub(self.bytes, Relaxed);
        self.note(|buffer, now| buffer.to = now);
    }
}

impl Block {
    fn note(&self, note: impl FnOnce(&mut BufferLifetime, u64)) {
        self.allocator.at_a_time(|record, now| {
            record.buffers.get_mut(self.number as usize).map(|buffer| note(buffer, now))
        });
    }
}

impl DryBuffer {
    /// Notes that it is used now.
    pub fn note_use(&self) {
        self.0.note(|buffer, now| buffer.used = now);
    }

    /// How much it is.
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// Whether it is the same memory.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// What tells its memory from all others of its allocator, those that are gone included.
    pub fn number(&self) -> u64 {
        self.0.number
    }

    /// How many hold it.
    pub fn holders(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    /// Whether nobody else holds it, so that it may be written over.
    pub fn is_unique(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}
