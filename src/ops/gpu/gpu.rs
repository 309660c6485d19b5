//! A GPU that kernels are launched on.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn::tensor::DType;

#[cfg(feature = "cuda")]
use super::cuda::Cuda;
use super::{Buffer, ChannelsLast, DryGpu, Kernel};

/// A GPU: its memory and its stream of work. One of a dry run has neither, and takes note of what it
/// is asked for.
#[derive(Clone)]
pub struct Gpu(pub(super) Backend);

#[derive(Clone)]
pub(super) enum Backend {
    /// An NVIDIA GPU.
    #[cfg(feature = "cuda")]
    Cuda(Cuda),
    /// None.
    Dry(Arc<DryGpu>),
}

impl PartialEq for Gpu {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            #[cfg(feature = "cuda")]
            (Backend::Cuda(one), Backend::Cuda(other)) => one == other,
            (Backend::Dry(one), Backend::Dry(other)) => Arc::ptr_eq(one, other),
            #[cfg(feature = "cuda")]
            _ => false,
        }
    }
}

impl std::fmt::Debug for Gpu {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            #[cfg(feature = "cuda")]
            Backend::Cuda(cuda) => write!(formatter, "Gpu({cuda:?})"),
            Backend::Dry(_) => write!(formatter, "Gpu(dry)"),
        }
    }
}

/// What a kernel is given a pointer to.
pub trait Argument {
    /// The memory that the pointer leads to.
    fn memory(&self) -> &Buffer;

    /// Bytes that are read or written there.
    fn bytes(&self) -> usize;
}

/// What a kernel is given.
pub(super) type Arguments<'a> = &'a [&'a dyn Argument];

impl Argument for Buffer {
    fn memory(&self) -> &Buffer {
        self
    }

    fn bytes(&self) -> usize {
        self.len() * self.storage().size()
    }
}

impl Argument for ChannelsLast {
    fn memory(&self) -> &Buffer {
        self.buffer()
    }

    fn bytes(&self) -> usize {
        self.pixels() * self.channels() * self.buffer().storage().size()
    }
}

/// What a variant of a kernel neither reads nor writes.
#[derive(Debug, Clone, Copy)]
pub struct Untouched<'a>(pub &'a Buffer);

impl<'a> Untouched<'a> {
    /// What is `given`, or this twice in the place of both.
    pub(super) fn or(&'a self, given: Option<[&'a Buffer; 2]>) -> [&'a dyn Argument; 2] {
        given.map_or([self, self], |[first, second]| [first, second])
    }
}

impl Argument for Untouched<'_> {
    fn memory(&self) -> &Buffer {
        self.0
    }

    fn bytes(&self) -> usize {
        0
    }
}

impl Gpu {
    /// One that takes note in `dry` of what it is asked for.
    pub fn dry(dry: &Arc<DryGpu>) -> Self {
        Self(Backend::Dry(Arc::clone(dry)))
    }

    /// Room for `length` elements, whose values are whatever was there before.
    pub fn empty(&self, length: usize, storage: DType) -> Buffer {
        let bytes = bytes(length, storage);
        match &self.0 {
            #[cfg(feature = "cuda")]
            Backend::Cuda(cuda) => cuda.empty(bytes, length, storage),
            Backend::Dry(dry) => Buffer::dry(dry.take(bytes as u64), storage, length),
        }
    }

    /// The same for a pass of a fused stage: in the arena of the current thread, where it has one with room.
    pub fn empty_in_pass(&self, length: usize, storage: DType) -> Buffer {
        match &self.0 {
            #[cfg(feature = "cuda")]
            Backend::Cuda(cuda) => {
                let placed = cuda.arena().and_then(|arena| arena.take(length, storage));
                placed.unwrap_or_else(|| self.empty(length, storage))
            }
            Backend::Dry(dry) => {
                let taken = dry.take_in_pass(bytes(length, storage) as u64);
                Buffer::dry(taken, storage, length)
            }
        }
    }

    /// Room for `length` 32-bit numbers.
    pub fn floats(&self, length: usize) -> Buffer {
        self.empty(length, DType::F32)
    }

    /// A buffer with these integers.
    pub fn upload_integers(&self, values: &[u32]) -> Buffer {
        self.integers(values.len(), || values)
    }

    /// A buffer with `length` integers, which are made where there is a device.
    #[cfg_attr(not(feature = "cuda"), expect(unused_variables, reason = "only a device has them"))]
    pub fn integers<T: AsRef<[u32]>>(&self, length: usize, make: impl FnOnce() -> T) -> Buffer {
        match &self.0 {
            #[cfg(feature = "cuda")]
            Backend::Cuda(cuda) => {
                let bytes: Vec<u8> =
                    make().as_ref().iter().flat_map(|value| value.to_ne_bytes()).collect();
                cuda.upload(&bytes, DType::U32, length)
            }
            Backend::Dry(_) => self.empty(length, DType::U32),
        }
    }

    /// The same 32-bit numbers in memory of their own, with room for `length` of them.
    pub fn copied(&self, buffer: &Buffer, length: usize) -> Buffer {
        match &self.0 {
            #[cfg(feature = "cuda")]
            Backend::Cuda(cuda) => cuda.copied(buffer, length),
            Backend::Dry(_) => self.empty(length, buffer.storage()),
        }
    }

    /// Its multiprocessors.
    pub fn multiprocessors(&self) -> usize {
        match &self.0 {
            #[cfg(feature = "cuda")]
            Backend::Cuda(cuda) => cuda.multiprocessors(),
            Backend::Dry(_) => DryGpu::MULTIPROCESSORS,
        }
    }

    /// Whether it is a Hopper card, of compute capability 9.0, on which kernels find the shared memory that
    /// they ask for.
    pub fn is_hopper(&self) -> bool {
        match &self.0 {
            #[cfg(feature = "cuda")]
            Backend::Cuda(cuda) => cuda.is_hopper(),
            Backend::Dry(dry) => dry.is_hopper(),
        }
    }

    /// Launches `kernel` on a grid of blocks: it is given a pointer to each of `arguments`, then
    /// `sizes` as one structure by value.
    ///
    /// Returns at once. A kernel that cannot be compiled or launched leaves its failure on the
    /// buffers, where reading them reports it.
    pub fn launch(
        &self,
        kernel: &Kernel,
        grid: [usize; 3],
        arguments: &[&dyn Argument],
        sizes: &Sizes,
    ) {
        self.multiply(kernel, grid, arguments, sizes, 0);
    }

    /// [`Gpu::launch`] of a kernel that multiplies `products` pairs of numbers and adds them up.
    pub fn multiply(
        &self,
        kernel: &Kernel,
        grid: [usize; 3],
        arguments: &[&dyn Argument],
        #[cfg_attr(
            not(feature = "cuda"),
            expect(unused_variables, reason = "only a device reads it")
        )]
        sizes: &Sizes,
        products: usize,
    ) {
        let grid = grid.map(|count| u32::try_from(count).expect("a grid fits in 32 bits"));
        match &self.0 {
            #[cfg(feature = "cuda")]
            Backend::Cuda(cuda) => cuda.launch(kernel, grid, arguments, sizes),
            Backend::Dry(dry) => dry.launch(kernel, grid, arguments, products),
        }
    }
}

/// Locks `mutex`, also where a thread has unwound that held it.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes of the memory of so many elements. A kernel may be given a buffer it has no use for; allocators have no empty ones.
pub(super) fn bytes(length: usize, storage: DType) -> usize {
    (length * storage.size()).max(16)
}

/// The last argument of a kernel: a structure of 32-bit fields.
#[derive(Debug, Clone, Default)]
pub struct Sizes(Vec<u32>);

impl Sizes {
    /// No fields yet.
    pub fn new() -> Self {
        // Few kernels have more, and one is made for every launch.
        Self(Vec::with_capacity(16))
    }

    /// These integer fields.
    ///
    /// # Panics
    ///
    /// As [`Sizes::int`].
    pub fn of<const N: usize>(values: [usize; N]) -> Self {
        Self::new().ints(values)
    }

    /// With these integer fields behind.
    ///
    /// # Panics
    ///
    /// As [`Sizes::int`].
    pub fn ints<const N: usize>(self, values: [usize; N]) -> Self {
        values.into_iter().fold(self, Self::int)
    }

    /// With an integer field.
    ///
    /// # Panics
    ///
    /// When the number is above 2³¹ − 1.
    pub fn int(mut self, value: usize) -> Self {
        let value = i32::try_from(value).expect("a size fits in 31 bits");
        self.0.push(value as u32);
        self
    }

    /// With a field of 32 bits.
    pub fn bits(mut self, value: u32) -> Self {
        self.0.push(value);
        self
    }

    /// With a floating-point field.
    pub fn float(mut self, value: f32) -> Self {
        self.0.push(value.to_bits());
        self
    }

    /// The fields two to a word, as they lie in the structure; structures have an even number of
    /// fields, and what is missing is 0.
    #[cfg(any(feature = "cuda", test))]
    pub(super) fn words(&self) -> Vec<u64> {
        let word = |pair: &[u32]| {
            let high = pair.get(1).copied().unwrap_or(0);
            u64::from(pair[0]) | u64::from(high) << 32
        };
        self.0.chunks(2).map(word).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_lie_in_order_and_fill_whole_words() {
        let sizes = Sizes::of([1, 2]).float(1.0);
        assert_eq!(sizes.words(), [0x2_0000_0001, 0x3f80_0000]);
    }
}
