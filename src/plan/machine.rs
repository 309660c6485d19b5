//! The machine that a plan is estimated for.

use crate::memory::{Budget, Cpu, DenseLayers, Precision, Target};
use crate::screen::Bytes;

/// A device that may not be there yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    /// Whether it is a CUDA card; the CPU otherwise.
    pub cuda: bool,
    /// Bytes of its memory.
    pub memory: u64,
    /// The host's CPU.
    pub cpu: Cpu,
}

/// The budget where none is written.
const SHARE: Budget = Budget::Share(0.9);

impl Machine {
    /// A GPU with as much memory as is common in data centres, assumed where nothing is known.
    pub const ASSUMED: Self = Self { cuda: true, memory: 80 << 30, cpu: Cpu::ASSUMED };

    /// The target of stages in this precision.
    pub fn target(&self, precision: Precision, dense_layers: DenseLayers) -> Target {
        let Self { cuda, cpu, .. } = *self;
        Target { cuda, cpu, precision, dense_layers }
    }

    /// The bytes that a step may use, where `budget` is written in the configuration: never more than
    /// there are.
    pub fn budget(&self, budget: Option<Budget>) -> u64 {
        budget.unwrap_or(SHARE).bytes(self.memory).min(self.memory)
    }

    /// The warning about a budget above the machine's memory.
    pub(super) fn beyond(&self, budget: Option<Budget>) -> Option<String> {
        let budget = budget?.bytes(self.memory);
        (budget > self.memory).then(|| {
            format!(
                "the `budget` of {} under [memory] is above the device's memory: {} count",
                Bytes(budget),
                Bytes(self.memory)
            )
        })
    }

    /// The largest tensor that can be allocated: CubeCL's pages are at most a quarter of the card.
    pub fn largest_tensor(&self) -> u64 {
        if self.cuda { self.memory / 4 } else { self.memory }
    }
}
