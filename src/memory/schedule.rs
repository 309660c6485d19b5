//! Schedules: what is done to which stage and micro-batch, in which order.

use super::{CheckpointingConfig, Keep};

/// One operation of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Runs `stage` on what the stage before it gave (the batch itself for stage 0).
    Forward {
        /// Which stage, from 0.
        stage: usize,
        /// Which micro-batch, from 0.
        micro: usize,
        /// Whether what backward needs is kept.
        keep: Keep,
    },
    /// Computes the losses of the last stage's outputs and their gradients.
    Loss {
        /// Which micro-batch, from 0.
        micro: usize,
    },
    /// Turns the gradient of `stage`'s output into that of its input.
    Backward {
        /// Which stage, from 0.
        stage: usize,
        /// Which micro-batch, from 0.
        micro: usize,
    },
}

/// A list of operations, executed in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// The operations.
    pub operations: Vec<Operation>,
}

impl Schedule {
    /// One pass forward that keeps nothing: evaluation.
    pub fn evaluation(stages: usize) -> Self {
        Self { operations: forward(stages, 0, Keep::Nothing).collect() }
    }

    /// Everything is kept and nothing recomputed: the policy `none`.
    pub fn keep_all(stages: usize, micros: usize) -> Self {
        let operations = (0..micros).flat_map(|micro| {
            forward(stages, micro, Keep::All)
                .chain([Operation::Loss { micro }])
                .chain((0..stages).rev().map(move |stage| Operation::Backward { stage, micro }))
        });
        Self { operations: operations.collect() }
    }
}

impl CheckpointingConfig {
    /// The schedule of a training step over `stages` stages and `micros` micro-batches.
    pub fn schedule(&self, stages: usize, micros: usize) -> Schedule {
        match self {
            Self::None(_) => Schedule::keep_all(stages, micros),
        }
    }
}

fn forward(stages: usize, micro: usize, keep: Keep) -> impl Iterator<Item = Operation> {
    (0..stages).map(move |stage| Operation::Forward { stage, micro, keep })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stage_runs_forward_once_and_backward_once_in_reverse() {
        let schedule = Schedule::keep_all(3, 2);
        for micro in 0..2 {
            let order: Vec<_> = schedule
                .operations
                .iter()
                .filter_map(|operation| match *operation {
                    Operation::Forward { stage, micro: m, keep: Keep::All } if m == micro => {
                        Some(stage as i64)
                    }
                    Operation::Backward { stage, micro: m } if m == micro => {
                        Some(-1 - stage as i64)
                    }
                    Operation::Loss { micro: m } if m == micro => Some(100),
                    _ => None,
                })
                .collect();
            assert_eq!(order, [0, 1, 2, 100, -3, -2, -1]);
        }
        assert_eq!(schedule.operations.len(), 14);
    }

    #[test]
    fn evaluation_keeps_nothing() {
        let kept = Schedule::evaluation(4);
        assert!(
            kept.operations.iter().all(|operation| matches!(
                operation,
                Operation::Forward { keep: Keep::Nothing, .. }
            ))
        );
        assert_eq!(kept.operations.len(), 4);
    }
}
