//! The scale of the loss where gradients are computed in fp16.

use serde::{Deserialize, Serialize};

const FIRST: f64 = 65536.0;
const GROWTH: f64 = 2.0;
const BACKOFF: f64 = 0.5;
/// Good steps in a row after which the scale grows.
const INTERVAL: u64 = 2000;
/// Below this no gradient is saved by a smaller scale: something else is wrong.
const LEAST: f64 = 1.0 / (1 << 20) as f64;

/// By how much the loss is multiplied before the backward pass, so that small gradients are no zeros
/// in fp16, whose smallest number is 6e-8; the gradients of the parameters are divided by it again.
///
/// It follows `torch.amp.GradScaler` with its defaults: 65536 at first, halved after a step whose
/// gradients are not finite, which is left out, and doubled after 2000 others in a row.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossScale {
    /// A power of two, by which 32-bit gradients are multiplied and divided without rounding.
    scale: f64,
    /// Steps taken since it last changed.
    streak: u64,
    /// Steps left out since the run began.
    skipped: u64,
}

impl Default for LossScale {
    fn default() -> Self {
        Self::starting_at(FIRST)
    }
}

impl LossScale {
    /// Another scale to begin with, a power of two.
    pub fn starting_at(scale: f64) -> Self {
        Self { scale, streak: 0, skipped: 0 }
    }

    /// What the loss is multiplied by.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// Steps left out since the run began.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Takes note of a step, whose gradients were `finite` or which was left out.
    pub fn observe(&mut self, finite: bool) {
        if !finite {
            *self = Self { scale: self.scale * BACKOFF, streak: 0, skipped: self.skipped + 1 };
            return;
        }
        self.streak += 1;
        if self.streak == INTERVAL {
            self.streak = 0;
            let grown = self.scale * GROWTH;
            if grown <= f64::from(f32::MAX) {
                self.scale = grown;
            }
        }
    }

    /// Whether it will be spent when one more step has been left out.
    pub fn is_last(mut self) -> bool {
        self.observe(false);
        self.is_spent()
    }

    /// Whether it has become so small that making it smaller is of no use.
    pub fn is_spent(&self) -> bool {
        self.scale < LEAST
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    struct Oracle {
        runs: Vec<Steps>,
    }

    #[derive(Deserialize)]
    struct Steps {
        finite: bool,
        steps: usize,
        scale: f64,
        streak: u64,
    }

    #[test]
    fn it_moves_as_pytorchs_does() {
        let oracle = include_str!("../../tests/fixtures/loss_scale.json");
        let oracle: Oracle = serde_json::from_str(oracle).expect("the fixture");
        let mut scale = LossScale::default();
        let mut skipped = 0;
        for (place, run) in oracle.runs.iter().enumerate() {
            (0..run.steps).for_each(|_| scale.observe(run.finite));
            skipped += if run.finite { 0 } else { run.steps as u64 };
            assert_eq!((scale.scale(), scale.streak), (run.scale, run.streak), "run {place}");
        }
        assert_eq!(scale.skipped(), skipped);
    }

    #[test]
    fn it_never_becomes_infinite_and_gives_up_when_small() {
        let mut scale = LossScale::starting_at(2f64.powi(127));
        (0..INTERVAL).for_each(|_| scale.observe(true));
        assert_eq!(scale.scale(), 2f64.powi(127));
        let mut scale = LossScale::default();
        let left_out = std::iter::repeat_with(|| scale.observe(false));
        assert_eq!(left_out.take(36).count(), 36);
        assert!(!scale.is_spent());
        scale.observe(false);
        assert!(scale.is_spent());
    }
}
