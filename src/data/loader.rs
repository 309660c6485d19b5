//! Batches from disk: threads that decode ahead, in an order that depends on nothing but the seed.
//!
//! Batch k of an epoch is a fixed slice of the epoch's permutation, and each image's augmentation
//! is drawn from (seed, epoch, image). So batches do not depend on the number of workers, and an
//! epoch goes on at any batch without decoding those before it.

mod worker;

use std::collections::BTreeMap;
use std::num::NonZero;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Receiver, Sender, unbounded};
use rand::seq::SliceRandom;

use self::worker::{Job, Pending};
use super::batch::Batch;
use super::config::{AugmentConfig, DataConfig, ImageConfig, OnBadImage};
use super::dataset::Dataset;
use super::error::DataError;
use super::image::{GreyImage, read_image};
use crate::random::stream;

/// How a [`Loader`] makes batches.
#[derive(Debug, Clone, PartialEq)]
pub struct LoaderConfig {
    /// What an image becomes.
    pub image: ImageConfig,
    /// Random changes; none in validation.
    pub augment: Option<AugmentConfig>,
    /// Images per batch, 1 or more; fewer in the last.
    pub batch_size: usize,
    /// Whether each epoch has an order of its own; else that of the table.
    pub shuffle: bool,
    /// The run's seed.
    pub seed: u64,
    /// Threads, 1 or more.
    pub workers: usize,
    /// Batches ready or in work ahead of the one handed out, 1 or more.
    pub prefetch: usize,
    /// What an image that cannot be read does.
    pub on_bad_image: OnBadImage,
    /// Whether a last batch of one image takes a second one from the batch before, because
    /// BatchNorm cannot train on one (…, 64, 1 becomes …, 63, 2). Batches of two are left alone.
    pub avoid_single: bool,
}

impl LoaderConfig {
    /// Batches for training: shuffled, augmented, never a last one of one image.
    pub fn training(config: &DataConfig, batch_size: usize, seed: u64) -> Self {
        let augment = (config.augment != AugmentConfig::default()).then_some(config.augment);
        Self {
            augment,
            shuffle: true,
            avoid_single: true,
            ..Self::evaluation(config, batch_size, seed)
        }
    }

    /// Batches for evaluation: every image as it is, in the table's order.
    pub fn evaluation(config: &DataConfig, batch_size: usize, seed: u64) -> Self {
        let cores = || thread::available_parallelism().map_or(1, NonZero::get);
        Self {
            image: config.image.clone(),
            augment: None,
            batch_size,
            shuffle: false,
            seed,
            workers: config.workers.unwrap_or_else(cores).max(1),
            prefetch: config.prefetch.max(1),
            on_bad_image: config.on_bad_image,
            avoid_single: false,
        }
    }
}

/// What all threads of an epoch share.
struct Shared {
    dataset: Arc<Dataset>,
    config: LoaderConfig,
    /// [`read_image`], but for tests.
    read: fn(&Path) -> Result<GreyImage, String>,
}

/// Makes the batches of a data set, epoch by epoch.
pub struct Loader {
    shared: Arc<Shared>,
}

impl Loader {
    /// A loader over `dataset`. Starts no thread yet.
    pub fn new(dataset: Arc<Dataset>, config: LoaderConfig) -> Self {
        Self { shared: Arc::new(Shared { dataset, config, read: read_image }) }
    }

    /// The data set it reads.
    pub fn dataset(&self) -> &Dataset {
        &self.shared.dataset
    }

    /// Batches in an epoch, those whose images all turn out bad included.
    pub fn batches_per_epoch(&self) -> usize {
        self.shared.dataset.len().div_ceil(self.shared.config.batch_size.max(1))
    }

    /// The batches of `epoch` from number `first_batch` on; those before cost nothing.
    ///
    /// Decoding starts at once. Dropping the iterator stops it.
    pub fn epoch(&self, epoch: u64, first_batch: usize) -> Epoch {
        let mut order: Vec<usize> = (0..self.shared.dataset.len()).collect();
        if self.shared.config.shuffle {
            order.shuffle(&mut stream(self.shared.config.seed, "shuffle", &[epoch]));
        }
        Epoch::start(self.shared.clone(), epoch, order, first_batch, self.batches_per_epoch())
    }
}

impl Loader {
    /// The images at `indices` as one batch: number 0 of `epoch`, whatever the batch size.
    pub fn images(&self, epoch: u64, indices: Vec<usize>) -> Epoch {
        let Shared { dataset, config, read } = &*self.shared;
        let config = LoaderConfig { batch_size: indices.len(), ..config.clone() };
        let shared = Shared { dataset: dataset.clone(), config, read: *read };
        let batches = usize::from(!indices.is_empty());
        Epoch::start(Arc::new(shared), epoch, indices, 0, batches)
    }
}

/// The part of an epoch's order that batch `number` holds.
fn slice(config: &LoaderConfig, images: usize, number: usize) -> Range<usize> {
    let size = config.batch_size.max(1);
    // The one image that is left over makes the last batch start one earlier.
    let moved = usize::from(config.avoid_single && size > 2 && images > size && images % size == 1);
    let last = images.div_ceil(size).saturating_sub(1);
    let start = number * size - if number == last { moved } else { 0 };
    let end = (number + 1) * size - if number + 1 == last { moved } else { 0 };
    start.min(images)..end.min(images)
}

/// The batches of one epoch, in order. After an error there are no more.
///
/// With `on_bad_image = "skip"` a batch may hold fewer images than its place in the order, even
/// one or none; what is missing is in [`Batch::skipped`].
pub struct Epoch {
    shared: Arc<Shared>,
    epoch: u64,
    order: Vec<usize>,
    /// The next batch to hand out, the next to give to the workers, and their number.
    next: usize,
    handed: usize,
    batches: usize,
    /// Finished batches whose turn has not come.
    ready: BTreeMap<usize, Result<Batch, DataError>>,
    jobs: Option<Sender<Job>>,
    done: Receiver<(usize, Result<Batch, DataError>)>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Epoch {
    fn start(
        shared: Arc<Shared>,
        epoch: u64,
        order: Vec<usize>,
        first_batch: usize,
        batches: usize,
    ) -> Self {
        // Neither channel needs a bound: jobs are only given for batches within the prefetch.
        let (jobs, todo) = unbounded::<Job>();
        let (finished, done) = unbounded();
        let stop = Arc::new(AtomicBool::new(false));
        let threads = (0..shared.config.workers.max(1))
            .filter_map(|_| {
                let (shared, todo) = (shared.clone(), todo.clone());
                let (finished, stop) = (finished.clone(), stop.clone());
                let work = move || worker::work(&shared, &todo, &finished, &stop);
                thread::Builder::new().name("loader".to_owned()).spawn(work).ok()
            })
            .collect();
        let first = first_batch.min(batches);
        let mut started = Self {
            shared,
            epoch,
            order,
            next: first,
            handed: first,
            batches,
            ready: BTreeMap::new(),
            jobs: Some(jobs),
            done,
            stop,
            threads,
        };
        started.hand_out();
        started
    }

    /// Gives the workers what lies within the prefetch.
    fn hand_out(&mut self) {
        let limit = self.batches.min(self.next + self.shared.config.prefetch.max(1));
        while self.handed < limit {
            let slice = slice(&self.shared.config, self.order.len(), self.handed);
            let pending = Pending::new(self.handed, self.epoch, self.order[slice].to_vec());
            for job in Pending::jobs(&Arc::new(pending)) {
                // Fails only where no thread could be started, which `next` reports.
                let _ = self.jobs.as_ref().map(|jobs| jobs.send(job));
            }
            self.handed += 1;
        }
    }

    /// Waits for the batch whose turn it is.
    fn wait(&mut self) -> Result<Batch, DataError> {
        loop {
            if let Some(outcome) = self.ready.remove(&self.next) {
                return outcome;
            }
            match self.done.recv() {
                Ok((number, outcome)) => self.ready.insert(number, outcome),
                Err(_) => return Err(DataError::Worker("none could be started".to_owned())),
            };
        }
    }
}

impl Iterator for Epoch {
    type Item = Result<Batch, DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next >= self.batches {
            return None;
        }
        self.hand_out();
        let outcome = self.wait();
        if outcome.is_ok() {
            self.next += 1;
            self.hand_out();
        } else {
            self.next = self.batches;
            self.stop.store(true, Ordering::Relaxed);
        }
        Some(outcome)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.batches - self.next;
        (usize::from(left > 0), Some(left))
    }
}

impl Drop for Epoch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Workers end when no job can come any more.
        self.jobs = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
#[path = "loader/tests.rs"]
mod tests;
