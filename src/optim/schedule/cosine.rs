//! Warm-up, then half a cosine (Loshchilov and Hutter 2017, arXiv:1608.03983, without restarts).

use std::f64::consts::PI;

use super::warmup::{Place, Warmup};
use crate::optim::CosineConfig;

/// PyTorch's `CosineAnnealingLR` after a warm-up, but that the rate does not rise again after the
/// end.
#[derive(Debug, Clone)]
pub(super) struct Cosine {
    lr: f64,
    end_factor: f64,
    warmup: Warmup,
}

impl Cosine {
    pub(super) fn new(
        config: &CosineConfig,
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
            Place::Fall(progress) => {
                let height = (1.0 + (PI * progress).cos()) / 2.0;
                self.lr * (self.end_factor + (1.0 - self.end_factor) * height)
            }
        }
    }
}
