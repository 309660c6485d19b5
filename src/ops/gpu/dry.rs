//! A GPU that only takes note.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::Kernel;
use super::gpu::{Argument, lock};
use crate::memory::{DryAllocator, DryBuffer};

/// What a program would have launched on a GPU, and the memory that it would have taken: the same code
/// that runs on a device runs on this without one.
#[derive(Debug)]
pub struct DryGpu {
    allocator: DryAllocator,
    hopper: bool,
    noted: Mutex<Noted>,
}

#[derive(Debug, Default)]
struct Noted {
    work: Work,
    /// Each kernel once.
    kernels: BTreeMap<(&'static str, String), Kernel>,
}

/// Floating-point operations (a multiplication and an addition are two), and bytes read and written, by
/// which seconds are estimated: those of kernels that take them faster count for less.
#[derive(Debug, Clone, Copy, Default)]
pub struct Work {
    /// Floating-point operations.
    pub flops: f64,
    /// Bytes.
    pub traffic: f64,
}

impl DryGpu {
    /// Those of an H100. GradientSums over pixels are split into more parts the more there are, which decides
    /// the size of some buffers.
    pub const MULTIPROCESSORS: usize = 132;

    /// One whose memory is counted by `allocator`; `hopper` where it stands for a Hopper card.
    pub fn new(allocator: DryAllocator, hopper: bool) -> Arc<Self> {
        Arc::new(Self { allocator, hopper, noted: Mutex::default() })
    }

    /// See [`Gpu::is_hopper`](super::Gpu::is_hopper).
    pub(super) fn is_hopper(&self) -> bool {
        self.hopper
    }

    // What counts of the bytes that kernels read and write, as they take more or less time for each, so that a stage takes its
    // bytes at the bandwidth of [`Speed`](crate::memory::Speed). Fitted to the steps of one H100 in bf16 of
    // `benches/results/2026-11-28-h200x4-rows-in-place.log`, and to what the blocks of DenseNet-121 take of one (`…/2026-11-26-h100-layers.txt`).

    /// Of kernels that multiply nothing, but read and write one value after the other.
    const STREAMED: f64 = 0.6;
    /// Of kernels that multiply and are not written for Hopper.
    const MULTIPLIED: f64 = 0.72;
    /// Of kernels written for Hopper.
    const HOPPER_SHARE: f64 = 0.47;
    /// What a launch counts for besides: 6 µs.
    pub(crate) const LAUNCH: f64 = 6.5e6;
    /// The same of kernels written for Hopper: 7 µs.
    const HOPPER_LAUNCH: f64 = 7.7e6;

    /// CubeCL's allocator rounds up to multiples of so many bytes, and counts what it rounds to.
    const ALIGNMENT: u64 = 512;

    /// Memory of at least `bytes` bytes.
    pub fn take(&self, bytes: u64) -> DryBuffer {
        self.allocator.take(bytes.next_multiple_of(Self::ALIGNMENT))
    }

    /// The same for a pass of a fused stage.
    pub fn take_in_pass(&self, bytes: u64) -> DryBuffer {
        self.allocator.take_in_pass(bytes.next_multiple_of(Self::ALIGNMENT))
    }

    /// What counts its memory.
    pub fn allocator(&self) -> &DryAllocator {
        &self.allocator
    }

    /// The work since this was last asked.
    pub fn take_work(&self) -> Work {
        std::mem::take(&mut lock(&self.noted).work)
    }

    /// The kernels launched so far, each once.
    pub fn kernels(&self) -> Vec<Kernel> {
        lock(&self.noted).kernels.values().cloned().collect()
    }

    pub(super) fn launch(
        &self,
        kernel: &Kernel,
        grid: [u32; 3],
        arguments: &[&dyn Argument],
        products: usize,
    ) {
        debug_assert!(grid.iter().all(|count| *count > 0), "{}: {grid:?}", kernel.entry());
        arguments.iter().for_each(|argument| argument.memory().counted().note_use());
        let noted = &mut *lock(&self.noted);
        noted.work.flops += 2.0 * products as f64;
        let bytes: usize = arguments.iter().map(|argument| argument.bytes()).sum();
        noted.work.traffic += Self::traffic(kernel, bytes as f64, products > 0);
        noted.kernels.entry(kernel.variant()).or_insert_with(|| kernel.clone());
    }

    /// What counts of the bytes of a launch, which multiplies or not.
    fn traffic(kernel: &Kernel, bytes: f64, multiplies: bool) -> f64 {
        match (kernel.shared() > 0, multiplies) {
            (true, _) => Self::HOPPER_SHARE * bytes + Self::HOPPER_LAUNCH,
            (false, false) => Self::STREAMED * bytes + Self::LAUNCH,
            (false, true) => Self::MULTIPLIED * bytes + Self::LAUNCH,
        }
    }
}
