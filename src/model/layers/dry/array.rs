//! Burn's arrays: which operation allocates, which writes in place; and what convolutions on the CPU take.

use std::cell::Cell;

use trainer_cpu::Workspace;

use super::gpu::Convolver;
use crate::memory::{DryAllocator, DryBuffer};

/// An array: the memory it lies in, and whether its elements fill that in order.
#[derive(Debug, Clone)]
pub(super) struct Array {
    pub buffer: DryBuffer,
    pub elements: usize,
    pub dense: bool,
    /// Whether something lies between its rows.
    pub pitched: bool,
}

/// Burn's kernels on a GPU begin the rows of what they make at multiples of so many bytes at most, or of the power of two
/// that a row fits in: `PitchedMemoryLayoutPolicy` of CubeCL 0.11.3.
const MOST_PITCH: u64 = 512;
const LEAST_PITCH: u64 = 16;

/// The backend: allocates, and adds up what is read and written.
#[derive(Debug)]
pub(super) struct Arrays {
    /// The GPU whose kernels convolve; none on the CPU.
    pub gpu: Option<Convolver>,
    pub allocator: DryAllocator,
    /// Bytes of an element.
    pub element: u64,
    /// Threads that work, and hold their buffers, at once.
    pub threads: usize,
    pub traffic: Cell<f64>,
}

impl Arrays {
    pub fn array(&self, elements: usize) -> Array {
        self.note(elements as f64);
        let bytes = elements as u64 * self.element;
        let buffer = match &self.gpu {
            Some(gpu) => gpu.take(bytes),
            None => self.allocator.take(bytes),
        };
        Array { buffer, elements, dense: true, pitched: false }
    }

    /// An array with rows of so many elements, as Burn makes one.
    pub fn rows(&self, elements: usize, row: usize) -> Array {
        let Some(gpu) = self.gpu.as_ref().filter(|_| row > 1) else { return self.array(elements) };
        self.note(elements as f64);
        let bytes = row as u64 * self.element;
        let pitch =
            bytes.next_multiple_of(bytes.next_power_of_two().clamp(LEAST_PITCH, MOST_PITCH));
        let buffer = gpu.take((elements / row) as u64 * pitch);
        Array { buffer, elements, dense: true, pitched: pitch > bytes }
    }

    /// Whether a CPU computes in the numbers that it holds.
    pub fn computes_as_held(&self) -> bool {
        self.gpu.is_none() && self.element == 4
    }

    fn note(&self, elements: f64) {
        // A CPU widens 16-bit numbers to compute with them, which takes as long as reading more.
        let element = if self.gpu.is_some() { self.element } else { self.element.max(4) };
        self.moved(elements * element as f64);
    }

    /// So many bytes were read and written.
    pub fn moved(&self, bytes: f64) {
        self.traffic.set(self.traffic.get() + bytes);
    }

    /// The elements in order, with nothing between them: a copy, where they are not.
    pub fn dense(&self, array: Array) -> Array {
        if array.dense && !array.pitched {
            return array;
        }
        self.note(array.elements as f64);
        self.array(array.elements)
    }

    /// The same memory seen otherwise.
    pub fn view(&self, array: &Array, elements: usize) -> Array {
        Array { buffer: array.buffer.clone(), elements, dense: false, pitched: array.pitched }
    }

    /// An operation on each element: in place where nobody else sees the array.
    pub fn map(&self, array: Array) -> Array {
        self.note(array.elements as f64);
        if array.buffer.is_unique() && array.dense {
            self.note(array.elements as f64);
            return array;
        }
        self.array(array.elements)
    }

    /// An operation on pairs, the smaller repeated: in place in one that nobody else sees.
    pub fn zip(&self, left: Array, right: Array) -> Array {
        let elements = left.elements.max(right.elements);
        self.note((left.elements + right.elements) as f64);
        let fits =
            |array: &Array| array.elements == elements && array.dense && array.buffer.is_unique();
        let out = match (fits(&left), fits(&right)) {
            (true, _) => left,
            (false, true) => right,
            (false, false) => return self.array(elements),
        };
        self.note(elements as f64);
        out
    }

    /// Sums or means, `elements` of them.
    pub fn reduce(&self, array: Array, elements: usize) -> Array {
        self.note(array.elements as f64);
        self.array(elements)
    }

    /// Two dimensions of `sizes` swapped and two merged: a copy, unless one of them is 1.
    pub fn swapped(&self, array: Array, sizes: [usize; 2]) -> Array {
        let dense = array.dense && sizes.contains(&1);
        self.dense(Array { dense, ..array })
    }

    /// The backend in 32 bits, where products of 16-bit numbers are computed in those.
    fn wide(&self) -> Option<Self> {
        let narrow = self.gpu.is_none() && self.element < 4;
        let (gpu, allocator, threads) = (None, self.allocator.clone(), self.threads);
        narrow.then(|| Self { gpu, allocator, element: 4, threads, traffic: Cell::default() })
    }

    /// A convolution on the CPU, or one of its gradients, of so many `elements`: of what it `reads`.
    pub fn convolve(&self, reads: [Array; 2], elements: usize, workspace: Workspace) -> Array {
        if let Some(wide) = self.wide() {
            let cast = |factor: Array| Array { dense: factor.dense, ..wide.array(factor.elements) };
            let out = wide.convolve(reads.map(cast), elements, workspace);
            self.moved(wide.traffic.get());
            return self.array(out.elements);
        }
        self.note(reads.iter().map(|array| array.elements as f64).sum());
        let out = self.array(elements);
        self.allocator.touch(workspace.bytes(self.threads));
        out
    }
}
