//! Binary cross-entropy in one kernel, where Burn's operations take about thirty.

use std::sync::LazyLock;

use super::gpu::Arguments;
use super::{Buffer, Gpu, Kernel, Sizes};

/// Labels whose binary cross-entropy is wanted: see `kernels/bce.cu`.
#[derive(Debug, Clone, Copy)]
pub struct BceLabels<'a> {
    /// Logits, `[images · labels]`, in 32 bits as all the others.
    pub logits: &'a Buffer,
    /// The same of 0 or 1.
    pub targets: &'a Buffer,
    /// The same: 1 where the label is known, else 0.
    pub known: &'a Buffer,
    /// The weight of a positive label, `[labels]`; 1 where there is none.
    pub positive_weight: Option<&'a Buffer>,
    /// Labels of an image.
    pub per_image: usize,
    /// By how much targets are moved towards 1/2, as a share.
    pub smoothing: f64,
}

/// The kernel of binary cross-entropy.
pub static BCE: LazyLock<Kernel> =
    LazyLock::new(|| Kernel::new("bce", 512, &[], &[include_str!("kernels/bce.cu")]));

impl Gpu {
    /// The sum of the loss over known labels, `[1]`, and the gradient of `factor` times it with respect to the logits.
    pub fn bce(&self, labels: &BceLabels<'_>, factor: f64) -> [Buffer; 2] {
        let BceLabels { logits, targets, known, positive_weight, per_image, smoothing } = *labels;
        let [sum, gradient] = [1, logits.len()].map(|length| self.floats(length));
        let weight = positive_weight.unwrap_or(known);
        let sizes = Sizes::of([logits.len(), per_image, usize::from(positive_weight.is_some()), 0]);
        let sizes = sizes.float((1.0 - smoothing) as f32).float((smoothing / 2.0) as f32);
        let sizes = sizes.float(factor as f32).float(0.0);
        let buffers: Arguments<'_> = &[logits, targets, known, weight, &gradient, &sum];
        self.launch(&BCE, [1, 1, 1], buffers, &sizes);
        [sum, gradient]
    }
}
