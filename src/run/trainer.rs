//! Training steps and evaluation, with fewer images at once where the device runs out of memory.

use crate::data::Targets;
use crate::memory::measure::broken_off;
use crate::memory::{OutOfMemory, catch_out_of_memory};
use crate::plan::Planner;
use crate::train::{CheckedGradients, HeadLoss, Images, Replica, Share, TrainError, Updater};

/// Trains one replica of a model, and evaluates it.
pub struct Trainer {
    /// The model and its gradients.
    pub replica: Replica,
    /// What changes its weights.
    pub updater: Updater,
    /// What has chosen how steps are taken, and does again where memory does not suffice.
    pub planner: Planner,
    /// Where memory has not sufficed since somebody asked.
    pub backoffs: Vec<Backoff>,
}

/// Memory did not suffice for so many images at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// Images at once that did not fit.
    pub from: usize,
    /// Images at once from then on.
    pub to: usize,
    /// The bytes asked for last, where they are known.
    pub wanted: Option<u64>,
}

impl Trainer {
    /// Steps are from now on those of `epoch`, counted from 1.
    pub fn begin_epoch(&mut self, epoch: usize) {
        self.planner.begin_epoch(epoch);
        self.replica.strategy = self.planner.strategy().clone();
    }

    /// Takes optimizer step number `step` (from 0) with a batch, and returns each head's loss. On an
    /// error nothing has changed, but for the scale of the loss where it says so.
    ///
    /// # Errors
    /// When a loss or a gradient is not finite, memory does not suffice, or the device fails.
    pub fn step(
        &mut self,
        images: Images<'_>,
        targets: &[Targets],
        step: usize,
        learning_rate: f64,
    ) -> Result<Vec<HeadLoss>, TrainError> {
        let checked = self.gradients(images, targets, step, learning_rate)?;
        self.updater.apply(&mut self.replica, checked, learning_rate)
    }

    /// The gradients of the step that [`Trainer::step`] takes. Nothing changes but the scale of the
    /// loss.
    ///
    /// # Errors
    /// As there.
    pub fn gradients(
        &mut self,
        images: Images<'_>,
        targets: &[Targets],
        step: usize,
        learning_rate: f64,
    ) -> Result<CheckedGradients, TrainError> {
        let share = Share { images, targets, first_image: 0 };
        let normalizers = self.replica.normalizers(targets);
        let assessed = self.within_memory(images.count(), |replica, updater| {
            let found = replica.gradients(share, &normalizers, step, updater.scale())?;
            updater.assess(&replica.inference, found, learning_rate)
        })?;
        self.updater.accept(assessed, learning_rate)
    }

    /// Each head's outputs for a batch, row by row and in the labels' own units, and its loss; with
    /// running statistics and without dropout.
    ///
    /// # Errors
    /// When memory does not suffice or the device fails.
    pub fn evaluate(
        &mut self,
        images: Images<'_>,
        targets: &[Targets],
    ) -> Result<(Vec<Vec<f32>>, Vec<HeadLoss>), TrainError> {
        self.within_memory(images.count(), |replica, _| replica.evaluate(images, targets))
    }

    /// Exchanges the weights and their average, when there is one; done twice, nothing has changed.
    pub fn swap_average(&mut self) {
        self.updater.swap_average(&mut self.replica.inference.chain);
    }

    /// What `attempt` at a batch of `images` images gives, which changes nothing: tried again with
    /// fewer images at once for as long as memory does not suffice.
    fn within_memory<T>(
        &mut self,
        images: usize,
        attempt: impl Fn(&Replica, &Updater) -> Result<T, TrainError>,
    ) -> Result<T, TrainError> {
        loop {
            match catch_out_of_memory(|| attempt(&self.replica, &self.updater)) {
                Ok(done) => return done,
                Err(out_of_memory) => self.back_off(images, out_of_memory)?,
            }
        }
    }

    /// Decides how a batch of `images` images, for which memory has not sufficed, is tried again: with
    /// half as many at once.
    ///
    /// # Errors
    /// When memory has not sufficed for the fewest images that may be taken at once.
    fn back_off(&mut self, images: usize, out_of_memory: OutOfMemory) -> Result<(), TrainError> {
        // Pages as large as what did not fit are of no more use.
        self.replica.inference.device().memory_cleanup();
        let from = self.replica.strategy.micro_batch.min(images);
        broken_off(|| format!("{out_of_memory}, with {from} images at once"));
        let Some(strategy) = self.planner.back_off(from) else {
            let advice = self.planner.what_would_fit();
            return Err(TrainError::OutOfMemory { at_once: from, out_of_memory, advice });
        };
        self.replica.strategy = strategy.clone();
        let to = self.replica.strategy.micro_batch;
        self.backoffs.push(Backoff { from, to, wanted: out_of_memory.wanted });
        Ok(())
    }
}
