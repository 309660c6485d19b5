//! Burn's arrays: which operation allocates, which writes in place; and on the CPU (burn-flex) what its
//! convolutions take.

use std::cell::Cell;

use super::gpu::Convolver;
use crate::memory::{DryAllocator, DryBuffer};

/// An array: the memory it lies in, and whether its elements fill that in order.
#[derive(Debug, Clone)]
pub(super) struct Array {
    pub buffer: DryBuffer,
    pub elements: usize,
    pub dense: bool,
}

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

/// The sizes of a convolution, as its kernels see them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Convolution {
    pub batch: usize,
    pub channels: [usize; 2],
    /// Height times width of the kernel.
    pub taps: usize,
    /// Pixels of the output of one image.
    pub pixels: usize,
    /// Whether it is a plain product.
    pub pointwise: bool,
}

/// Output pixels that a thread unfolds at a time.
const TILE: usize = 512;
/// The most bytes of columns of a transposed convolution.
const COLUMNS: usize = 8 << 20;
/// Elements from which on a transposed convolution is shared out over threads.
const SHARED_OUT: usize = 256 * 1024;

impl Arrays {
    pub fn array(&self, elements: usize) -> Array {
        self.note(elements as f64);
        let bytes = elements as u64 * self.element;
        let buffer = match &self.gpu {
            Some(gpu) => gpu.take(bytes),
            None => self.allocator.take(bytes),
        };
        Array { buffer, elements, dense: true }
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

    fn touch(&self, elements: usize) {
        self.allocator.touch(elements as u64 * self.element);
    }

    /// The elements in order: a copy, where they are not.
    pub fn dense(&self, array: Array) -> Array {
        if array.dense {
            return array;
        }
        self.note(array.elements as f64);
        self.array(array.elements)
    }

    /// The same memory seen otherwise.
    pub fn view(&self, array: &Array, elements: usize) -> Array {
        Array { buffer: array.buffer.clone(), elements, dense: false }
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

    /// A convolution on the CPU. What is copied into order stays until it is done.
    pub fn convolve(&self, map: Array, weight: Array, sizes: Convolution) -> Array {
        if let Some(wide) = self.wide() {
            let cast = |factor: Array| Array { dense: factor.dense, ..wide.array(factor.elements) };
            let (map, weight) = (cast(map), cast(weight));
            let out = wide.convolve(map, weight, sizes);
            self.moved(wide.traffic.get());
            return self.array(out.elements);
        }
        let _given = (map.clone(), weight.clone());
        let (map, weight) = (self.dense(map), self.dense(weight));
        let [input, output] = sizes.channels;
        let elements = sizes.batch * output * sizes.pixels;
        self.note((map.elements + weight.elements) as f64);
        if sizes.pointwise || (input <= 4 && output <= 16) {
            return self.array(elements);
        }
        let _flat = self.array(weight.elements);
        let _pixel_major = self.array(map.elements);
        let out = self.array(elements);
        let tiles = sizes.pixels.div_ceil(TILE);
        let (unfolded, tile) = (input * sizes.taps, sizes.pixels.min(TILE));
        let workers = self.threads.min(sizes.batch * tiles);
        self.touch(workers * (unfolded + output) * tile);
        out
    }

    /// The gradient of a convolution's input of `pixels` pixels an image, from that of its output.
    pub fn convolve_back(&self, gradient: Array, sizes: Convolution, pixels: usize) -> Array {
        if let Some(wide) = self.wide() {
            let gradient = wide.array(gradient.elements);
            let out = wide.convolve_back(gradient, sizes, pixels);
            self.moved(wide.traffic.get());
            return self.array(out.elements);
        }
        let _given = gradient.clone();
        let gradient = self.dense(gradient);
        self.note(gradient.elements as f64);
        let out = self.array(sizes.batch * sizes.channels[0] * pixels);
        let column = sizes.channels[0] * sizes.taps;
        let most = (COLUMNS / self.element as usize / column).max(1);
        let parallel = sizes.batch > 1 && out.elements >= SHARED_OUT;
        let workers = if parallel { self.threads.min(sizes.batch) } else { 1 };
        self.touch(workers * column * sizes.pixels.min(most));
        out
    }
}
