//! One rise and one fall (Smith and Topin 2017, arXiv:1708.07120).

use std::f64::consts::PI;

use crate::optim::OneCycleConfig;

/// PyTorch's `OneCycleLR` in two phases with cosine annealing and without cycling the momentum.
#[derive(Debug, Clone)]
pub(super) struct OneCycle {
    first: f64,
    highest: f64,
    last: f64,
    /// The last step of the rise; a fraction, and below 0 where the training is too short for one.
    peak: f64,
    /// The last step of the training.
    end: usize,
}

impl OneCycle {
    pub(super) fn new(config: &OneCycleConfig, lr: f64, total: usize) -> Self {
        let first = lr / config.div_factor;
        Self {
            first,
            highest: lr,
            last: first / config.final_div_factor,
            peak: config.pct_start * total as f64 - 1.0,
            end: total - 1,
        }
    }

    pub(super) fn lr(&self, step: usize) -> f64 {
        let end = self.end as f64;
        let step = step.min(self.end) as f64;
        if step <= self.peak {
            anneal(self.first, self.highest, step, self.peak)
        } else {
            anneal(self.highest, self.last, step - self.peak, end - self.peak)
        }
    }
}

/// Half a cosine from `from` to `to`, `step` of the way's `length`; a way without length is at its
/// end.
fn anneal(from: f64, to: f64, step: f64, length: f64) -> f64 {
    let progress = if length > 0.0 { step / length } else { 1.0 };
    to + (from - to) / 2.0 * ((PI * progress).cos() + 1.0)
}
