//! The memory of an NVIDIA GPU.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use burn::tensor::Device;

use super::nvml::Nvml;
use super::{MemoryUse, PeakKind};
use crate::ops::gpu::Gpu;

/// A GPU and the most bytes that were seen in use on it.
#[derive(Clone)]
pub(super) struct CudaMemory {
    device: Device,
    gpu: Gpu,
    nvml: Option<Arc<Nvml>>,
    most: Arc<Most>,
}

#[derive(Default)]
struct Most {
    bytes: AtomicU64,
    /// Whether launches were watched since the last reset.
    watched: AtomicBool,
}

impl std::fmt::Debug for CudaMemory {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "CudaMemory({:?})", self.gpu)
    }
}

impl CudaMemory {
    /// The GPU that `device` is; `None` for another device.
    pub fn open(device: &Device) -> Option<Self> {
        let gpu = Gpu::of(device)?;
        let nvml = Nvml::open(gpu.index()).map(Arc::new);
        let card = Self { device: device.clone(), gpu, nvml, most: Arc::default() };
        card.reset_peak();
        Some(card)
    }

    /// Bytes in use once everything asked for has run.
    pub fn live(&self) -> Option<u64> {
        self.device.sync().ok()?;
        self.usage().map(|usage| usage.0)
    }

    /// Bytes in use and reserved, once everything asked for is queued.
    fn usage(&self) -> Option<(u64, u64)> {
        let usage = self.device.memory_pool_usage()?;
        let live = usage.bytes_in_use.saturating_sub(self.gpu.free_in_arenas());
        self.most.bytes.fetch_max(live, Ordering::Relaxed);
        Some((live, usage.bytes_reserved))
    }

    pub fn read(&self) -> MemoryUse {
        let (live, reserved) = self.usage().unzip();
        let watched = self.most.watched.load(Ordering::Relaxed);
        MemoryUse {
            live,
            peak: live.map(|_| self.most.bytes.load(Ordering::Relaxed)),
            peak_kind: live.map(|_| if watched { PeakKind::Launches } else { PeakKind::Sampled }),
            reserved,
            smi: self.nvml.as_ref().and_then(|nvml| nvml.used()),
            total: self.gpu.memory(),
        }
    }

    pub fn reset_peak(&self) {
        self.most.watched.store(false, Ordering::Relaxed);
        self.most.bytes.store(0, Ordering::Relaxed);
        let _ = self.usage();
    }

    /// Runs `work` and asks the allocator at every launch in it.
    pub fn watch<T>(&self, work: impl FnOnce() -> T) -> T {
        let _ = self.usage();
        let (outcome, most) = self.gpu.most_bytes_in(|| {
            let outcome = work();
            // Burn's queue is empty before the watch ends.
            let _ = self.usage();
            outcome
        });
        self.most.bytes.fetch_max(most, Ordering::Relaxed);
        self.most.watched.store(true, Ordering::Relaxed);
        outcome
    }
}
