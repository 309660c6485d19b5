//! Why a setting does not lower the peak of a step.

use super::levers::{Lever, Pulled};
use super::{Combination, Machine, Plan};
use crate::memory::Precision;
use crate::screen::Bytes;

/// Shares of the peak below which there is little to be freed.
const LITTLE: f64 = 0.05;

/// What the peak of a step is made of.
pub(super) struct Peak {
    pub all: u64,
    /// Weights, gradients and the optimizer's state.
    pub fixed: u64,
    pub optimizer: u64,
    /// What is kept for the backward pass where everything is.
    pub kept: u64,
    /// Whether it is reached in the optimizer's step.
    pub at_step: bool,
    /// Bytes off the device.
    pub away: u64,
}

impl Peak {
    pub fn percent(&self, bytes: u64) -> f64 {
        100.0 * bytes as f64 / self.all as f64
    }

    fn is_little(&self, bytes: u64) -> bool {
        self.percent(bytes) < 100.0 * LITTLE
    }
}

/// A step as it is taken before a lever is pulled.
pub(super) struct Before<'a> {
    pub plan: &'a Plan,
    pub machine: &'a Machine,
    pub way: &'a Combination,
    pub peak: Peak,
}

impl Before<'_> {
    /// Whether the model runs fused and no more in these numbers.
    fn unfuses(&self, lever: &Lever) -> bool {
        let fused = |precision: Precision| {
            self.machine.cuda && precision.fuses() && self.plan.model.fusible().is_ok()
        };
        let then = match lever {
            Lever::Precision(precision) => *precision,
            Lever::HalfWithEps => Precision::Half,
            _ => return false,
        };
        fused(self.way.precision) && !fused(then)
    }

    /// Why `pulled` changes nothing, to follow "would do nothing:".
    pub fn why_nothing(&self, pulled: &Pulled) -> String {
        let peak = &self.peak;
        match pulled.lever {
            Lever::OffloadOptimizer | Lever::Sgd if peak.is_little(peak.optimizer) => {
                format!("the optimizer's state is {:.0}% of the peak", peak.percent(peak.optimizer))
            }
            // It comes back a parameter at a time.
            Lever::OffloadOptimizer => "nearly all of the optimizer's state belongs to one \
                                        parameter, and is back for its step"
                .to_owned(),
            // Where the state is gone, all new values are written in one go.
            Lever::Sgd => "its step takes as much as the optimizer's state".to_owned(),
            _ if self.unfuses(&pulled.lever) => {
                "`half` does not run fused, which takes as much more as smaller numbers save"
                    .to_owned()
            }
            Lever::Precision(Precision::Half) | Lever::HalfWithEps
                if self.way.precision.bytes() == Precision::Half.bytes() =>
            {
                format!(
                    "activations are in 16 bits already, and weights, gradients and the \
                     optimizer's state are {:.0}% of the peak",
                    peak.percent(peak.fixed)
                )
            }
            Lever::Offload if pulled.away == peak.away => "no stage but the last keeps anything, \
                                                           and that is needed at once"
                .to_owned(),
            _ => self.why_no_activations(),
        }
    }

    fn why_no_activations(&self) -> String {
        let peak = &self.peak;
        let rest = peak.all.saturating_sub(peak.fixed);
        match peak.at_step {
            true => "activations are not what the peak is made of, and weights, gradients and the \
                     optimizer's state stay as they are"
                .to_owned(),
            false if peak.is_little(rest) => {
                format!("activations are {:.0}% of the peak ({})", peak.percent(rest), Bytes(rest))
            }
            false => "what would be freed is not there at the peak".to_owned(),
        }
    }

    /// Why `pulled` raises the peak.
    pub fn why_more(&self, pulled: &Pulled) -> &'static str {
        match pulled.lever {
            _ if self.unfuses(&pulled.lever) => "`half` does not run fused",
            Lever::MicroBatch(_) => {
                "a part's gradients are there beside the sum of those before, to which they are added"
            }
            Lever::Checkpointing(_) => "what is computed again takes more than is freed",
            _ => "computing takes more than is freed",
        }
    }
}
