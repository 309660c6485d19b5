//! How much memory a run uses, on whatever device.
//!
//! On the CPU a counting global allocator ([`Counting`]) sees every block of 4 KiB and more, so live
//! and peak bytes are exact. What threads of the data loader allocate is none of the model's: they
//! are [`apart`], and a batch counts from when it is [handed over](hand_over). What was allocated
//! before the [`Meter`] was opened, such as tables of labels, does not count either. A plan foretells
//! just these bytes: weights, gradients, optimizer state, activations, workspace and the batch. To the
//! workspace belongs a block of the size of the L2 cache that every thread which multiplies matrices
//! keeps from its first product on.
//!
//! On CUDA live and reserved bytes are those of CubeCL's allocator, which keeps no high-water mark:
//! see [`Meter::watch`] for the peak.

mod counting;
mod exhausted;
#[cfg(feature = "cuda")]
mod cuda;
mod holders;
#[cfg(feature = "cuda")]
mod nvml;
mod timeline;

use burn::tensor::Device;
use serde::Serialize;

pub use counting::{Counting, apart, apart_while, hand_over};
pub use exhausted::end_where_exhausted;
pub use holders::{Holder, gpu_holders};
pub(crate) use timeline::backward_note;
pub use timeline::{Mark, Timeline, again, begin, broken_off, end, ended, mark, record, within};

use counting::{AllocationCounts, PROCESS};

/// Bytes in use, where they are known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct MemoryUse {
    /// In use now.
    pub live: Option<u64>,
    /// The most in use at once since the peak was reset.
    pub peak: Option<u64>,
    /// What `peak` is the most of.
    pub peak_kind: Option<PeakKind>,
    /// Held from the device by the allocator, in use or not.
    pub reserved: Option<u64>,
    /// Held by this process as the driver says, the CUDA context and kernels included; held by all
    /// processes where the driver does not say it of each, as in most containers.
    pub smi: Option<u64>,
    /// Of the device, whoever holds it; unknown on the CPU.
    pub total: Option<u64>,
}

/// Which moments a peak is taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PeakKind {
    /// Every allocation: no moment is missed.
    Allocator,
    /// Every kernel launched while the meter [watched](Meter::watch), when all that the kernel reads
    /// and writes is allocated; and every reading.
    Launches,
    /// Every reading only.
    Sampled,
}

/// Measures the memory of a device. There is one peak per device: open one meter at a time.
#[derive(Debug, Clone)]
pub struct Meter(Source);

#[derive(Debug, Clone)]
enum Source {
    /// The allocator of the process, and the live bytes when the meter was opened.
    Host(&'static AllocationCounts, u64),
    #[cfg(feature = "cuda")]
    CudaMemory(Box<cuda::CudaMemory>),
    /// Nothing is known.
    Unknown,
}

impl Meter {
    /// A meter of `device`, whose peak begins now. On the CPU what is live now does not count: open
    /// it before the model is made.
    ///
    /// Everything is unknown on the CPU where the program's allocator is not [`Counting`].
    pub fn open(device: &Device) -> Self {
        #[cfg(feature = "cuda")]
        if let Some(card) = cuda::CudaMemory::open(device) {
            return Self(Source::CudaMemory(Box::new(card)));
        }
        let _ = device;
        if !PROCESS.is_counting() {
            return Self(Source::Unknown);
        }
        PROCESS.reset_peak();
        Self(Source::Host(&PROCESS, PROCESS.live()))
    }

    /// What is in use. Waits until everything that was asked of the device is queued, not until it
    /// has run.
    pub fn read(&self) -> MemoryUse {
        match &self.0 {
            Source::Host(ledger, before) => MemoryUse {
                live: Some(ledger.live().saturating_sub(*before)),
                peak: Some(ledger.peak().saturating_sub(*before)),
                peak_kind: Some(PeakKind::Allocator),
                ..MemoryUse::default()
            },
            #[cfg(feature = "cuda")]
            Source::CudaMemory(card) => card.read(),
            Source::Unknown => MemoryUse::default(),
        }
    }

    /// Bytes in use. Waits until everything that was asked of the device has run.
    pub fn live(&self) -> Option<u64> {
        match &self.0 {
            Source::Host(ledger, before) => Some(ledger.live().saturating_sub(*before)),
            #[cfg(feature = "cuda")]
            Source::CudaMemory(card) => card.live(),
            Source::Unknown => None,
        }
    }

    /// Begins a new peak at what is live now.
    pub fn reset_peak(&self) {
        match &self.0 {
            Source::Host(ledger, _) => ledger.reset_peak(),
            #[cfg(feature = "cuda")]
            Source::CudaMemory(card) => card.reset_peak(),
            Source::Unknown => {}
        }
    }

    /// Runs `work` with its peak taken exactly. On the CPU it always is; on CUDA the allocator is
    /// asked at every launch of a kernel, Burn's own included, for which `work` takes some tens of
    /// microseconds longer a launch: watch a few steps, not all.
    pub fn watch<T>(&self, work: impl FnOnce() -> T) -> T {
        match &self.0 {
            #[cfg(feature = "cuda")]
            Source::CudaMemory(card) => card.watch(work),
            Source::Host(..) | Source::Unknown => work(),
        }
    }
}
