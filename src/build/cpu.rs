//! The CPU that Burn computes on: its threads, and the packing buffers that their matrix products keep.

use burn::tensor::Device;

use crate::memory::Cpu;
use crate::memory::measure::Meter;
use crate::ops::is_gpu;
use crate::plan::DevicePlan;

/// The threads of Burn's pool, which `RAYON_NUM_THREADS` sets, and the packing buffers of all that multiply.
#[cfg(feature = "cpu")]
pub fn cpu() -> Cpu {
    let threads = rayon::current_num_threads();
    let multiplying = threads + usize::from(rayon::current_thread_index().is_none());
    let each = gemm_common::cache::CACHE_INFO[1].cache_bytes;
    Cpu { threads, packing_buffers: (multiplying * each) as u64 }
}

/// Makes the main thread one of Burn's threads where it takes the steps of the only one of `devices`. From outside,
/// it would hand every product to another thread, and sleep until that has woken up and is done: with small maps that
/// takes longer than the products.
pub fn join_threads(devices: &[DevicePlan]) {
    if let [DevicePlan::Auto | DevicePlan::Cpu(_)] = devices {
        share_cores(1);
    }
}

/// The same where one of `processes` that have the same cores takes the steps: it leaves the others theirs.
/// `RAYON_NUM_THREADS` goes before.
pub fn share_cores(processes: usize) {
    let asked = std::env::var("RAYON_NUM_THREADS").ok().and_then(|asked| asked.parse().ok());
    let cores = || std::thread::available_parallelism().map_or(1, usize::from) / processes.max(1);
    let count = asked.filter(|asked| *asked > 0).unwrap_or_else(cores).max(1);
    // One thread alone has nobody who works for others while it waits for them, and other threads than the main one,
    // such as those of tests, may end before the pool.
    let joins = count > 1 && std::thread::current().name() == Some("main");
    let threads = rayon::ThreadPoolBuilder::new().num_threads(count);
    let threads = if joins { threads.use_current_thread() } else { threads };
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
    // The thread that takes the step may be none of them.
    take();
}

#[cfg(not(feature = "cpu"))]
fn take_packing_buffers() {}
