//! The CPU that Burn computes on: its threads, and the packing buffers that their matrix products keep.

use burn::tensor::Device;

use crate::memory::Cpu;
use crate::memory::measure::Meter;
use crate::ops::is_gpu;

/// The threads of Burn's pool, which `RAYON_NUM_THREADS` sets, and the size of their packing buffers.
#[cfg(feature = "cpu")]
pub fn cpu() -> Cpu {
    let packing_buffer = gemm_common::cache::CACHE_INFO[1].cache_bytes as u64;
    Cpu { threads: rayon::current_num_threads(), packing_buffer }
}

/// Leaves Burn's threads, of which there are none yet, as many cores as this process has to itself: one of
/// `processes` that have the same. `RAYON_NUM_THREADS` goes before.
pub fn share_cores(processes: usize) {
    if processes < 2 || std::env::var_os("RAYON_NUM_THREADS").is_some() {
        return;
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = rayon::ThreadPoolBuilder::new().num_threads((cores / processes).max(1));
    // Where there are threads already, they stay.
    let _ = threads.build_global();
}

/// Nothing is computed on the CPU.
#[cfg(not(feature = "cpu"))]
pub fn cpu() -> Cpu {
    Cpu::ASSUMED
}

/// A meter of `device`. On the CPU every thread takes its packing buffer at once, so that memory in
/// use does not depend on which of them multiplies first.
pub fn meter(device: &Device) -> Meter {
    let meter = Meter::open(device);
    if !is_gpu(device) {
        take_packing_buffers();
    }
    meter
}

#[cfg(feature = "cpu")]
fn take_packing_buffers() {
    let take = || gemm_common::gemm::L2_SLAB.with(|_| ());
    rayon::broadcast(|_| take());
    take();
}

#[cfg(not(feature = "cpu"))]
fn take_packing_buffers() {}
