//! Passes over the images that begin to load while the pass before them is computed.

use crate::data::{Loader, SharedBatches};

/// Passes whose first batches are being loaded, so that a GPU need not wait for them between passes.
#[derive(Default)]
pub struct EarlyPasses {
    /// The number of its epoch, and its batches.
    training: Option<(usize, SharedBatches)>,
    validation: Option<SharedBatches>,
}

impl EarlyPasses {
    /// Begins to load the training images of `epoch`.
    pub(super) fn begin_training(&mut self, loader: &Loader, epoch: usize) {
        self.training = Some((epoch, loader.epoch(epoch as u64, 0).shared()));
    }

    /// Begins to load the validation images.
    pub(super) fn begin_validation(&mut self, loader: &Loader) {
        self.validation = Some(loader.epoch(0, 0).shared());
    }

    /// The training batches of `epoch` from number `first` on.
    pub(super) fn training(
        &mut self,
        loader: &Loader,
        epoch: usize,
        first: usize,
    ) -> SharedBatches {
        match self.training.take() {
            Some((begun, batches)) if (begun, 0) == (epoch, first) => batches,
            _ => loader.epoch(epoch as u64, first).shared(),
        }
    }

    /// The validation batches.
    pub(super) fn validation(&mut self, loader: &Loader) -> SharedBatches {
        self.validation.take().unwrap_or_else(|| loader.epoch(0, 0).shared())
    }
}
