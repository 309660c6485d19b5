//! The machine that a plan is estimated for.

use crate::memory::{Budget, Cpu, DenseLayers, Precision, Target};
use crate::screen::Bytes;

/// A device that may not be there yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    /// Whether it is a CUDA card; the CPU otherwise.
    pub cuda: bool,
    /// Whether that is a Hopper card, which has kernels of its own.
    pub hopper: bool,
    /// Bytes of its memory.
    pub memory: u64,
    /// Bytes of it that this process may still take; unknown where the device is not here.
    pub free: Option<u64>,
    /// The host's CPU.
    pub cpu: Cpu,
}

/// The share of what is free that a step may take where no budget is written. The rest is for what no
/// estimate counts: compiled kernels, and what the allocator holds beyond what is in use.
const SHARE: Budget = Budget::Share(0.9);

impl Machine {
    /// A GPU with as much memory as is common in data centres, assumed where nothing is known.
    pub const ASSUMED: Self =
        Self { cuda: true, hopper: true, memory: 80 << 30, free: None, cpu: Cpu::ASSUMED };

    /// The target of stages in this precision.
    pub fn target(&self, precision: Precision, dense_layers: DenseLayers) -> Target {
        let Self { cuda, hopper, cpu, .. } = *self;
        Target { cuda, hopper, cpu, precision, dense_layers }
    }

    /// The bytes that a step may use: `budget` where one is written in the configuration, but never more
    /// than the device has; else nine tenths of what is free.
    pub fn budget(&self, budget: Option<Budget>) -> u64 {
        match budget {
            Some(budget) => budget.bytes(self.memory).min(self.memory),
            None => SHARE.bytes(self.free.unwrap_or(self.memory)),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_budget_what_is_free_counts_and_with_one_what_the_device_has() {
        const GIB: u64 = 1 << 30;
        let card = |free| Machine { free, ..Machine::ASSUMED };
        let tenths = |machine: Machine, budget| machine.budget(budget) * 10 / GIB;
        assert_eq!(tenths(card(None), None), 720);
        assert_eq!(tenths(card(Some(80 * GIB)), None), 720);
        // 10.6 GiB are free of 80.
        let crowded = card(Some(106 * GIB / 10));
        assert_eq!(tenths(crowded, None), 95);
        assert_eq!(tenths(crowded, Some(Budget::Share(0.5))), 400);
        assert_eq!(tenths(crowded, Some(Budget::Bytes(100 * GIB))), 800);
        assert_eq!(card(Some(0)).budget(None), 0);
    }
}
