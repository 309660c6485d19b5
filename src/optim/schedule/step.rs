//! Drops at fixed epochs.

use crate::optim::StepConfig;

/// PyTorch's `StepLR`, stepped once an epoch.
#[derive(Debug, Clone)]
pub(super) struct Steps {
    lr: f64,
    gamma: f64,
    /// Optimizer steps between drops.
    every: usize,
}

impl Steps {
    pub(super) fn new(config: &StepConfig, lr: f64, steps_per_epoch: usize) -> Self {
        let every = config.every_epochs.saturating_mul(steps_per_epoch).max(1);
        Self { lr, gamma: config.gamma, every }
    }

    pub(super) fn lr(&self, step: usize) -> f64 {
        self.lr * self.gamma.powf((step / self.every) as f64)
    }
}
