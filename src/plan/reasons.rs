//! Why a setting does not lower the peak of a step.

use super::changes::{Change, Tried};
use super::{Estimator, MemorySettings, StepEstimate};
use crate::memory::Precision;
use crate::screen::Bytes;

/// Shares of the peak below which there is little to be freed.
const LITTLE: f64 = 0.05;

/// A step before a change is tried, and what its peak is made of.
pub(super) struct Before<'a> {
    pub estimator: &'a Estimator,
    pub settings: &'a MemorySettings,
    pub now: StepEstimate,
    /// Weights, gradients and the optimizer's state.
    pub fixed: u64,
    pub optimizer: u64,
    /// What is kept for the backward pass where everything is.
    pub kept: u64,
}

impl Before<'_> {
    /// The share of the peak that so many bytes are.
    pub fn percent(&self, bytes: u64) -> f64 {
        100.0 * bytes as f64 / self.now.peak as f64
    }

    fn is_little(&self, bytes: u64) -> bool {
        self.percent(bytes) < 100.0 * LITTLE
    }

    /// Whether the model runs fused and no more in these numbers.
    fn unfuses(&self, change: &Change) -> bool {
        let fused = |precision: Precision| {
            let Estimator { plan, machine, .. } = self.estimator;
            machine.cuda && precision.fuses() && plan.model.fusible().is_ok()
        };
        let then = match change {
            Change::Precision(precision) => *precision,
            Change::HalfWithEps => Precision::Half,
            _ => return false,
        };
        fused(self.settings.precision) && !fused(then)
    }

    /// Why `tried` changes nothing, to follow "would do nothing:".
    pub fn why_nothing(&self, tried: &Tried) -> String {
        match tried.change {
            Change::OffloadOptimizer | Change::ShardOptimizer | Change::Sgd
                if self.is_little(self.optimizer) =>
            {
                format!("the optimizer's state is {:.0}% of the peak", self.percent(self.optimizer))
            }
            // It comes back a parameter at a time.
            Change::OffloadOptimizer => "nearly all of the optimizer's state belongs to one \
                                        parameter, and is back for its step"
                .to_owned(),
            Change::ShardOptimizer => {
                "other devices' new weights take as much as is freed".to_owned()
            }
            // Where the state is gone, all new values are written in one go.
            Change::Sgd => "its step takes as much as the optimizer's state".to_owned(),
            _ if self.unfuses(&tried.change) => {
                "`half` does not run fused, which takes as much more as smaller numbers save"
                    .to_owned()
            }
            Change::Precision(Precision::Half) | Change::HalfWithEps
                if self.settings.precision.bytes() == Precision::Half.bytes() =>
            {
                format!(
                    "activations are in 16 bits already, and weights, gradients and the \
                     optimizer's state are {:.0}% of the peak",
                    self.percent(self.fixed)
                )
            }
            Change::Offload if tried.then.away == self.now.away => {
                "only the last stage keeps activations, and it needs them at once".to_owned()
            }
            _ => self.why_no_activations(),
        }
    }

    fn why_no_activations(&self) -> String {
        let rest = self.now.peak.saturating_sub(self.fixed);
        match self.now.at_step {
            true => "activations are not what the peak is made of, and weights, gradients and the \
                     optimizer's state stay as they are"
                .to_owned(),
            false if self.is_little(rest) => {
                format!("activations are {:.0}% of the peak ({})", self.percent(rest), Bytes(rest))
            }
            false => "what would be freed is not there at the peak".to_owned(),
        }
    }

    /// Why `tried` raises the peak.
    pub fn why_more(&self, tried: &Tried) -> &'static str {
        match tried.change {
            _ if self.unfuses(&tried.change) => "`half` does not run fused",
            Change::MicroBatch(_) => {
                "a part's gradients are there beside the sum of those before, to which they are added"
            }
            Change::Checkpointing(_) => "what is computed again takes more than is freed",
            _ => "computing takes more than is freed",
        }
    }
}
