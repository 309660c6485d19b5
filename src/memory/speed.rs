//! How fast devices are, roughly: enough to compare schedules.

use super::{Precision, Speed, Target};

impl Speed {
    /// That of an H100 where kernels of ours run, or of four cores of a CPU with Burn's.
    ///
    /// From whole steps: DenseNet-121 at 320×320 on an H100
    /// (`benches/results/2026-11-26-h100-steps.json`: bf16 13.4, tf32 42.7, fp32 71.3 ms), and at 224×224 on
    /// a CPU (3.9 images a second). A GPU of another generation has another speed; the ratio of recomputation
    /// to the rest, which decides between schedules, differs less. The link is PCIe 5 with pinned memory, not
    /// measured.
    pub fn of(on: &Target) -> Self {
        let (flops, bandwidth, link) = match (on.cuda, on.precision) {
            (false, _) => (1e11, 1.5e10, 5e9),
            (true, Precision::Bf16 | Precision::Fp16 | Precision::Half) => (2e14, 1.16e12, 5e10),
            (true, Precision::Tf32) => (6.8e13, 1.78e12, 5e10),
            (true, Precision::Fp32) => (2.85e13, 1.16e12, 5e10),
        };
        // Some kernels each, or the start of threads; not measured.
        let layer = if on.cuda { 1.5e-5 } else { 2e-5 };
        Self { flops, bandwidth, link, layer }
    }
}
