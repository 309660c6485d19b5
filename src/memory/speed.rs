//! How fast devices are, roughly: enough to compare schedules.

use super::{Precision, Speed, Target};

impl Speed {
    /// That of an H100 where kernels of ours run, or of four cores of a CPU with Burn's.
    ///
    /// From whole steps: DenseNet-121 at 320×320 on an H100
    /// (`benches/results/2026-11-28-h200x4-rows-in-place.log`: bf16 12.7, tf32 43.1, fp32 70.6 ms), and at 224×224 on
    /// a CPU (3.9 images a second). A GPU of another generation has another speed; the ratio of recomputation
    /// to the rest, which decides between schedules, differs less. The link is PCIe 5 with pinned memory, not
    /// measured.
    pub fn of(on: &Target) -> Self {
        if !on.cuda {
            // The start of threads; not measured.
            return Self { flops: 1e11, bandwidth: 1.5e10, link: 5e9, layer: 2e-5 };
        }
        let flops = match on.precision {
            Precision::Bf16 | Precision::Fp16 | Precision::Half => 2.1e14,
            Precision::Tf32 => 6.8e13,
            Precision::Fp32 => 2.85e13,
        };
        // A layer is some kernels, which take so long to start at least: 8 images take DenseNet-121 4.67 ms.
        Self { flops, bandwidth: 1.16e12, link: 5e10, layer: 1e-5 }
    }
}
