//! The machine that a plan is estimated for.

use crate::memory::{Budget, Cpu, DenseLayers, Pages, Precision, Target};
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
    /// Bytes of it that this process may still take, beside the context of a card; unknown where the device is not here.
    pub free: Option<u64>,
    /// Whether it is one of several cards of a run that do not reach each other's memory, so that messages go through the host's.
    pub apart: bool,
    /// The host's CPU.
    pub cpu: Cpu,
}

/// The share of a card's free memory that a run may hold where no budget is written. An estimate of what is held may be too
/// low by a page of the allocator.
const OF_CARD: Budget = Budget::Share(0.98);

/// The share of the host's free memory that a step may take where no budget is written.
const OF_HOST: Budget = Budget::Share(0.9);

/// Bytes that a process holds of a card beside its allocator: CUDA's context and the code of kernels. NVML's figure for the
/// process is 284 to 286 MiB more than what the allocator holds, in each of the 16 cases of `benches/estimates.py` on an H100
/// (`benches/results/2026-11-27-h100-stacks.log`).
const CONTEXT: u64 = 286 << 20;

/// How much more the allocator holds, its page of small buffers left out, than is in use at the peak: a twentieth at most in each
/// of these cases (BENCHMARKS.md, "Where buffers of passes lie").
const OVER_USE: u64 = 20;

impl Machine {
    /// A GPU with as much memory as is common in data centres, assumed where nothing is known.
    pub const ASSUMED: Self = Self {
        cuda: true,
        hopper: true,
        memory: 80 << 30,
        free: None,
        apart: false,
        cpu: Cpu::ASSUMED,
    };

    /// The target of stages in this precision.
    pub fn target(&self, precision: Precision, dense_layers: DenseLayers) -> Target {
        let Self { cuda, hopper, cpu, .. } = *self;
        Target { cuda, hopper, cpu, precision, dense_layers }
    }

    /// The bytes that a process may hold of a card, as `nvidia-smi` has it, or that a step may use on the CPU: `budget` where one
    /// is written in the configuration, but never more than the device has; else nearly all that is free.
    pub fn budget(&self, budget: Option<Budget>) -> u64 {
        match budget {
            Some(budget) => budget.bytes(self.memory).min(self.memory),
            None => {
                let share = if self.cuda { OF_CARD } else { OF_HOST };
                share.bytes(self.available().unwrap_or(self.memory))
            }
        }
    }

    /// Bytes that this process may hold, as far as that is known.
    pub fn available(&self) -> Option<u64> {
        let free = self.free?;
        Some(if self.cuda { free.saturating_add(CONTEXT).min(self.memory) } else { free })
    }

    /// The bytes that may be in use at once where a process may hold `held`.
    pub fn in_use(&self, held: u64) -> u64 {
        match self.cuda {
            true => {
                let pages = held.saturating_sub(CONTEXT + Pages::SMALL_PAGE);
                pages - pages.div_ceil(OVER_USE + 1)
            }
            false => held,
        }
    }

    /// The bytes that a process holds at most where `in_use` are in use at once.
    pub fn held_at_most(&self, in_use: u64) -> u64 {
        match self.cuda {
            true => CONTEXT + Pages::SMALL_PAGE + in_use + in_use.div_ceil(OVER_USE),
            false => in_use,
        }
    }

    /// The bytes that a process holds whose allocator holds `allocated`.
    pub fn with_context(&self, allocated: u64) -> u64 {
        if self.cuda { CONTEXT + allocated } else { allocated }
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
        assert_eq!(tenths(card(None), None), 783);
        assert_eq!(tenths(card(Some(80 * GIB)), None), 783);
        // 10.6 GiB are free of 80, and the context is there.
        let crowded = card(Some(106 * GIB / 10));
        assert_eq!(tenths(crowded, None), 106);
        let host = Machine { cuda: false, ..crowded };
        assert_eq!(tenths(host, None), 95);
        assert_eq!(tenths(crowded, Some(Budget::Share(0.5))), 400);
        assert_eq!(tenths(crowded, Some(Budget::Bytes(100 * GIB))), 800);
        assert!(card(Some(0)).budget(None) < CONTEXT);
    }

    #[test]
    fn what_may_be_in_use_is_the_most_with_which_no_more_is_held() {
        let host = Machine { cuda: false, ..Machine::ASSUMED };
        for held in (300..20_000).map(|number| number * 1_048_573) {
            let in_use = Machine::ASSUMED.in_use(held);
            assert!(Machine::ASSUMED.held_at_most(in_use) <= held);
            assert!(Machine::ASSUMED.held_at_most(in_use + 2) > held);
            assert_eq!((host.in_use(held), host.held_at_most(held)), (held, held));
        }
        assert_eq!(Machine::ASSUMED.in_use(CONTEXT), 0);
    }
}
