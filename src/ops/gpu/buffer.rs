//! Memory on the GPU.

use std::ops::Range;

use burn::tensor::DType;

#[cfg(feature = "cuda")]
use super::cuda::DeviceMemory;
use crate::memory::DryBuffer;

/// Kernels load up to this many bytes at once.
const ALIGNMENT: usize = 16;

/// Elements of one type, one after another; a part of an allocation that lives as long as a buffer
/// points to it.
#[derive(Debug, Clone)]
pub struct Buffer {
    pub(super) memory: Memory,
    storage: DType,
    length: usize,
}

/// What a buffer's elements lie in.
#[derive(Debug, Clone)]
pub(super) enum Memory {
    /// Memory of a device.
    #[cfg(feature = "cuda")]
    Device(DeviceMemory),
    /// Nothing: it is only counted.
    Dry(DryBuffer),
}

impl Buffer {
    pub(super) fn new(memory: Memory, storage: DType, length: usize) -> Self {
        Self { memory, storage, length }
    }

    /// `length` elements of a dry run in this memory.
    pub fn dry(memory: DryBuffer, storage: DType, length: usize) -> Self {
        Self::new(Memory::Dry(memory), storage, length)
    }

    /// Its memory in a dry run.
    ///
    /// # Panics
    ///
    /// When it lies on a device.
    pub fn counted(&self) -> &DryBuffer {
        match &self.memory {
            #[cfg(feature = "cuda")]
            Memory::Device(_) => panic!("a dry run was given memory of a device"),
            Memory::Dry(memory) => memory,
        }
    }

    /// Whether nobody else holds its memory or a part of it, so that it may be written over.
    pub fn is_held_alone(&self) -> bool {
        match &self.memory {
            #[cfg(feature = "cuda")]
            Memory::Device(memory) => memory.is_held_alone(),
            Memory::Dry(_) => false,
        }
    }

    /// Whether others hold its memory or a part of it. Launches that have yet to run do not count.
    pub(super) fn is_shared(&self) -> bool {
        match &self.memory {
            #[cfg(feature = "cuda")]
            Memory::Device(memory) => memory.is_shared(),
            Memory::Dry(memory) => memory.holders() > 1,
        }
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
    pub fn storage(&self) -> DType {
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
        let fits = range.start <= range.end && range.end <= self.length;
        assert!(fits, "{range:?} of {}", self.length);
        let bytes = self.storage.size();
        let aligned = (range.start * bytes).is_multiple_of(ALIGNMENT);
        assert!(aligned, "{range:?} is not aligned to {ALIGNMENT} bytes");
        let memory = match &self.memory {
            #[cfg(feature = "cuda")]
            Memory::Device(memory) => {
                let behind = self.length - range.end;
                Memory::Device(memory.without(range.start * bytes, behind * bytes))
            }
            Memory::Dry(memory) => Memory::Dry(memory.clone()),
        };
        Self { memory, length: range.len(), ..*self }
    }
}
