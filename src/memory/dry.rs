//! An allocator that only counts.
//!
//! Where a step's memory is estimated, the code of the step runs on buffers without memory behind
//! them. A buffer counts as in use for as long as anyone holds it, as one on a device does.

use std::cell::Cell;
use std::rc::{Rc, Weak};

/// Counts the bytes in use and the most there were at once.
#[derive(Debug)]
pub struct DryAllocator {
    /// What the allocator rounds sizes up to.
    unit: u64,
    live: Cell<u64>,
    peak: Cell<u64>,
    /// The most taken at once.
    largest: Cell<u64>,
}

impl DryAllocator {
    /// Of an allocator that rounds up to whole multiples of `unit`.
    pub fn new(unit: u64) -> Rc<Self> {
        Rc::new(Self { unit, live: Cell::new(0), peak: Cell::new(0), largest: Cell::new(0) })
    }

    /// Memory of at least `bytes` bytes.
    pub fn take(self: &Rc<Self>, bytes: u64) -> DryBuffer {
        let bytes = bytes.next_multiple_of(self.unit);
        self.live.set(self.live.get() + bytes);
        self.largest.set(self.largest.get().max(bytes));
        self.touch(0);
        DryBuffer(Rc::new(Block { bytes, allocator: Rc::clone(self) }))
    }

    /// So many bytes more are in use for a moment.
    pub fn touch(&self, bytes: u64) {
        self.peak.set(self.peak.get().max(self.live.get() + bytes));
    }

    /// Bytes in use.
    pub fn live(&self) -> u64 {
        self.live.get()
    }

    /// The most since the last [`DryAllocator::restart`].
    pub fn peak(&self) -> u64 {
        self.peak.get()
    }

    /// The most that was taken at once.
    pub fn largest(&self) -> u64 {
        self.largest.get()
    }

    /// The peak is from now on that of what follows.
    pub fn restart(&self) {
        self.peak.set(self.live.get());
    }
}

/// Memory in use.
#[derive(Debug, Clone)]
pub struct DryBuffer(Rc<Block>);

/// Names a buffer without holding it.
#[derive(Debug)]
pub struct DryId(Weak<Block>);

impl DryId {
    /// Whether `buffer` is that one.
    pub fn is(&self, buffer: &DryBuffer) -> bool {
        std::ptr::eq(self.0.as_ptr(), Rc::as_ptr(&buffer.0))
    }
}

#[derive(Debug)]
struct Block {
    bytes: u64,
    allocator: Rc<DryAllocator>,
}

impl Drop for Block {
    fn drop(&mut self) {
        self.allocator.live.set(self.allocator.live.get() - self.bytes);
    }
}

impl DryBuffer {
    /// How much it is.
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// Whether it is the same memory.
    pub fn is(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }

    /// Its name, which does not hold it.
    pub fn id(&self) -> DryId {
        DryId(Rc::downgrade(&self.0))
    }

    /// How many hold it.
    pub fn holders(&self) -> usize {
        Rc::strong_count(&self.0)
    }

    /// Whether nobody else holds it, so that it may be written over.
    pub fn is_unique(&self) -> bool {
        Rc::strong_count(&self.0) == 1
    }
}
