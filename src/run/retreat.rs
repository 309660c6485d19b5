//! Going on with fewer images at once where the device runs out of memory.

use super::{LearnError, Learner};
use crate::memory::catch_out_of_memory;
use crate::memory::measure::broken_off;

/// Memory did not suffice for so many images at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retreat {
    /// Images at once that did not fit.
    pub from: usize,
    /// Images at once from then on.
    pub to: usize,
    /// The bytes asked for last, where they are known.
    pub wanted: Option<u64>,
}

impl Learner {
    /// What `work` on a batch of `images` images gives, which changes nothing: with half as many
    /// images at once, and half of that, for as long as memory does not suffice.
    ///
    /// # Errors
    /// As `work`, and when memory does not suffice for one image at a time.
    pub(super) fn within_memory<T>(
        &mut self,
        images: usize,
        work: impl Fn(&Self) -> Result<T, LearnError>,
    ) -> Result<T, LearnError> {
        loop {
            let out_of_memory = match catch_out_of_memory(|| work(self)) {
                Ok(done) => return done,
                Err(out_of_memory) => out_of_memory,
            };
            // Pages as large as what did not fit are of no more use.
            self.device.memory_cleanup();
            let from = self.strategy.micro_batch.min(images);
            broken_off(|| format!("{out_of_memory}, with {from} images at once"));
            let Some(strategy) = self.planner.retreat(from) else {
                let advice = self.planner.what_would_fit();
                return Err(LearnError::OutOfMemory { at_once: from, out_of_memory, advice });
            };
            self.strategy = strategy.clone();
            let to = self.strategy.micro_batch;
            self.retreats.push(Retreat { from, to, wanted: out_of_memory.wanted });
        }
    }
}
