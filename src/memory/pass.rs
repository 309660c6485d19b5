//! What a stage needs to know about the pass it is part of.

use std::cell::RefCell;

use burn::module::ParamId;
use burn::tensor::Tensor;

use crate::random;

/// Why a stage is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To predict: running statistics are used, nothing is dropped out.
    Evaluate,
    /// To train, for the first time in this step: statistics of the batch are used and reported.
    First,
    /// To train, again, because what backward needs was not kept: as [`Purpose::First`], but the
    /// statistics were reported then.
    Recompute,
}

/// A pass over a stage: why, and where its randomness and its statistics go.
///
/// Layers never change themselves. BatchNorm reports the statistics of the batch here, and they
/// move the running ones once, when the step is taken: however often a stage is recomputed, and not
/// at all when the step is skipped.
#[derive(Debug)]
pub struct Pass {
    purpose: Purpose,
    seed: u64,
    step: u64,
    micro: u64,
    reported: RefCell<Vec<BatchStatistic>>,
}

/// A statistic of one batch, and the share of it that the running one takes.
#[derive(Debug, Clone)]
pub struct BatchStatistic {
    pub(super) id: ParamId,
    pub(super) value: Tensor<1>,
    pub(super) momentum: f64,
}

impl Pass {
    /// A pass for `purpose` in step `step`, micro-batch `micro`, of a run with `seed`.
    pub fn new(purpose: Purpose, seed: u64, step: u64, micro: u64) -> Self {
        Self { purpose, seed, step, micro, reported: RefCell::default() }
    }

    /// A pass that predicts.
    pub fn evaluation() -> Self {
        Self::new(Purpose::Evaluate, 0, 0, 0)
    }

    /// The same pass once more: the same masks, and nothing is reported.
    pub fn again(&self) -> Self {
        let purpose = match self.purpose {
            Purpose::First => Purpose::Recompute,
            other => other,
        };
        Self::new(purpose, self.seed, self.step, self.micro)
    }

    /// Why the stage is run.
    pub fn purpose(&self) -> Purpose {
        self.purpose
    }

    /// Whether the pass trains.
    pub fn trains(&self) -> bool {
        self.purpose != Purpose::Evaluate
    }

    /// The seed of the dropout mask at `site`; the same when the stage is recomputed.
    pub fn dropout_seed(&self, site: u64) -> u64 {
        use rand::Rng;
        random::stream(self.seed, "dropout", &[self.step, self.micro, site]).next_u64()
    }

    /// Reports the statistic `value` of this batch for the running statistic `id`.
    pub fn report(&self, id: ParamId, value: Tensor<1>, momentum: f64) {
        if self.purpose == Purpose::First {
            let value = value.without_autodiff();
            self.reported.borrow_mut().push(BatchStatistic { id, value, momentum });
        }
    }

    /// What was reported since the last call.
    pub(super) fn take_reported(&self) -> Vec<BatchStatistic> {
        self.reported.take()
    }
}
