//! Warm-up, then a straight line.

use super::warmup::{Place, Warmup};
use crate::optim::LinearConfig;

/// PyTorch's `LinearLR` from the full rate, after a warm-up.
#[derive(Debug, Clone)]
pub(super) struct Linear {
    lr: f64,
    end_factor: f64,
    warmup: Warmup,
}

impl Linear {
    pub(super) fn new(
        config: &LinearConfig,
        lr: f64,
        steps_per_epoch: usize,
        total: usize,
    ) -> Self {
        let warmup = Warmup::new(config.warmup_epochs, steps_per_epoch, total);
        Self { lr, end_factor: config.end_factor, warmup }
    }

    pub(super) fn lr(&self, step: usize) -> f64 {
        match self.warmup.place(step) {
            Place::Rise(share) => self.lr * share,
            Place::Fall(progress) => self.lr * (1.0 + (self.end_factor - 1.0) * progress),
        }
    }
}
