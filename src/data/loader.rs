//! Batches from disk: threads that decode ahead, in an order that depends on nothing but the seed.
//!
//! Batch k of an epoch is a fixed slice of the epoch's permutation, and each image's augmentation
//! is drawn from (seed, epoch, image). So batches do not depend on the number of workers, and an
//! epoch goes on at any batch without decoding those before it.

mod first;
mod worker;

use std::collections::BTreeMap;
use std::iter::{Map, Peekable};
use std::num::NonZero;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Receiver, Sender, unbounded};

pub(super) use self::worker::prepared;
use self::worker::{Job, Pending};
use super::augment::View;
use super::batch::Batch;
use super::cache::Cache;
use super::config::{AugmentConfig, DataConfig, ImageConfig, OnBadImage};
use super::dataset::{Dataset, Sample};
use super::error::DataError;
use super::image::{Colour, RawImage, read_image};
use super::resize::needed;
use super::sampler::Sampler;
use crate::memory::measure::{apart, apart_while, hand_over};
use crate::priority::come_second;
use crate::screen::counted;

/// Threads for each core: more would wait for each other, and many would take all memory and time.
const MOST_WORKERS: usize = 32;

/// How a [`Loader`] makes batches.
#[derive(Debug, Clone, PartialEq)]
pub struct LoaderConfig {
    /// What an image becomes.
    pub image: ImageConfig,
    /// Random changes; none in validation.
    pub augment: Option<AugmentConfig>,
    /// A fixed change in their place.
    pub view: View,
    /// Images per batch, 1 or more; fewer in the last.
    pub batch_size: usize,
    /// Which images an epoch is made of.
    pub sampler: Sampler,
    /// Whether a last batch that is not full is left out.
    pub drop_last: bool,
    /// The run's seed.
    pub seed: u64,
    /// Threads; with none, batches are made by the thread that asks for them.
    pub workers: usize,
    /// Batches ready or in work ahead of the one handed out, 1 or more.
    pub prefetch: usize,
    /// What an image that cannot be read does.
    pub on_bad_image: OnBadImage,
    /// Whether a last batch of one image takes a second one from the batch before, because
    /// BatchNorm normalises badly over one, or not at all (…, 64, 1 becomes …, 63, 2). Batches of two are left alone. An
    /// image that is left alone by bad ones is handed out, and up to who trains.
    pub avoid_single: bool,
}

impl LoaderConfig {
    /// Batches for training: sampled, augmented, never a last one of one image.
    pub fn training(config: &DataConfig, batch_size: usize, seed: u64, sampler: Sampler) -> Self {
        let augment = (config.augment != AugmentConfig::default()).then_some(config.augment);
        Self {
            augment,
            sampler,
            drop_last: config.drop_last,
            avoid_single: true,
            ..Self::evaluation(config, batch_size, seed)
        }
    }

    /// Batches for evaluation: every image as it is, in the table's order.
    pub fn evaluation(config: &DataConfig, batch_size: usize, seed: u64) -> Self {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        Self {
            image: config.image.clone(),
            augment: None,
            view: View::default(),
            batch_size,
            sampler: Sampler::Sequential,
            drop_last: false,
            seed,
            workers: config.workers.unwrap_or(cores).min(MOST_WORKERS * cores),
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
    cache: Arc<Cache>,
    /// [`read_sample`], but for tests.
    read: fn(&Sample, &ImageConfig) -> Result<RawImage, String>,
}

/// Reads a sample's image as far as it is of use for what it becomes.
fn read_sample(sample: &Sample, image: &ImageConfig) -> Result<RawImage, String> {
    let colour = Colour::of_channels(image.channels);
    read_image(&sample.path, sample.item, Some(needed(image.size)), colour)
}

/// Makes the batches of a data set, epoch by epoch.
pub struct Loader {
    shared: Arc<Shared>,
}

impl Loader {
    /// A loader over `dataset`, whose images come from `cache` where it has them. Starts no thread
    /// yet.
    pub fn new(dataset: Arc<Dataset>, config: LoaderConfig, cache: Arc<Cache>) -> Self {
        Self { shared: Arc::new(Shared { dataset, config, cache, read: read_sample }) }
    }

    /// Whether a batch of one image must not be trained on.
    pub fn avoids_single(&self) -> bool {
        self.shared.config.avoid_single
    }

    /// Why images are no longer kept in the cache, told once.
    pub fn take_warning(&self) -> Option<String> {
        self.shared.cache.take_warning()
    }

    /// Whether all that is left of a pass is being read, so that threads have nothing more of it to begin.
    pub fn has_begun_all(&self, left: &SharedBatches) -> bool {
        let ahead = self.shared.config.prefetch.max(1);
        left.size_hint().1.is_some_and(|left| left <= ahead)
    }

    /// The data set it reads.
    pub fn dataset(&self) -> &Dataset {
        &self.shared.dataset
    }

    /// Batches in an epoch, those whose images all turn out bad included.
    pub fn batches_per_epoch(&self) -> usize {
        let (images, size) = (self.shared.dataset.len(), self.shared.config.batch_size.max(1));
        if self.shared.config.drop_last { images / size } else { images.div_ceil(size) }
    }

    /// Images in the largest batch of an epoch, where none turns out bad.
    pub fn full_batch(&self) -> usize {
        let (images, config) = (self.shared.dataset.len(), &self.shared.config);
        let sizes = (0..self.batches_per_epoch()).map(|number| slice(config, images, number).len());
        sizes.max().unwrap_or_default()
    }

    /// The batches of `epoch` from number `first_batch` on; those before cost nothing.
    ///
    /// Decoding starts at once. Dropping the iterator stops it.
    pub fn epoch(&self, epoch: u64, first_batch: usize) -> Epoch {
        let config = &self.shared.config;
        let order = config.sampler.order(self.shared.dataset.len(), config.seed, epoch);
        Epoch::start(self.shared.clone(), epoch, order, first_batch, self.batches_per_epoch())
    }
}

impl Loader {
    /// The images at `indices` as one batch: number 0 of `epoch`, whatever the batch size.
    pub fn images(&self, epoch: u64, indices: Vec<usize>) -> Epoch {
        let Shared { dataset, config, cache, read } = &*self.shared;
        let config = LoaderConfig { batch_size: indices.len(), ..config.clone() };
        let shared = Shared { dataset: dataset.clone(), config, cache: cache.clone(), read: *read };
        let batches = usize::from(!indices.is_empty());
        Epoch::start(Arc::new(shared), epoch, indices, 0, batches)
    }
}

/// The part of an epoch's order that batch `number` holds.
fn slice(config: &LoaderConfig, images: usize, number: usize) -> Range<usize> {
    let size = config.batch_size.max(1);
    // The one image that is left over makes the last batch start one earlier.
    let single = size > 2 && images > size && images % size == 1;
    let moved = usize::from(config.avoid_single && !config.drop_last && single);
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
    /// Why a thread could not be started.
    refused: Option<String>,
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
        let (mut threads, mut refused) = (Vec::new(), None);
        for number in 0..shared.config.workers {
            let (shared, todo) = (shared.clone(), todo.clone());
            let (finished, stop) = (finished.clone(), stop.clone());
            let work = move || {
                apart();
                come_second();
                worker::work(&shared, &todo, &finished, &stop);
            };
            match thread::Builder::new().name("loader".to_owned()).spawn(work) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    let of = counted(number, "thread", "threads");
                    refused = Some(format!(
                        "{of} could be started, and no more ({error}); lower `data.workers`"
                    ));
                    break;
                }
            }
        }
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
            refused,
        };
        started.hand_out();
        started
    }

    /// Gives the workers what lies within the prefetch.
    fn hand_out(&mut self) {
        if self.shared.config.workers == 0 {
            return;
        }
        let limit = self.batches.min(self.next + self.shared.config.prefetch.max(1));
        while self.handed < limit {
            let pending = self.pending(self.handed);
            for job in Pending::jobs(&Arc::new(pending)) {
                // Fails only where no thread could be started, which `next` reports.
                let _ = self.jobs.as_ref().map(|jobs| jobs.send(job));
            }
            self.handed += 1;
        }
    }

    fn pending(&self, number: usize) -> Pending {
        let slice = slice(&self.shared.config, self.order.len(), number);
        // As many parts as it takes to have one for each worker among the batches in work.
        let LoaderConfig { workers, prefetch, batch_size, .. } = self.shared.config;
        let share = batch_size.div_ceil(workers.div_ceil(prefetch.max(1)).max(1));
        Pending::new(number, self.epoch, self.order[slice].to_vec(), share)
    }

    /// Waits for the batch whose turn it is, or makes it.
    fn wait(&mut self) -> Result<Batch, DataError> {
        if let Some(reason) = self.refused.take() {
            return Err(DataError::Worker(reason));
        }
        if self.shared.config.workers == 0 {
            let pending = self.pending(self.next);
            return apart_while(|| worker::make(&self.shared, &pending));
        }
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

/// The batches of an epoch, to be shared with other threads. The next one can be looked at.
pub type SharedBatches = Peekable<Map<Epoch, fn(Result<Batch, DataError>) -> SharedBatch>>;

/// A batch that several threads can read.
pub type SharedBatch = Result<Arc<Batch>, DataError>;

impl Epoch {
    /// The batches to be shared with other threads.
    pub fn shared(self) -> SharedBatches {
        let share: fn(Result<Batch, DataError>) -> SharedBatch = |batch| batch.map(Arc::new);
        self.map(share).peekable()
    }
}

/// The batch that comes next, if it has images. Waits for it.
pub fn upcoming(batches: &mut SharedBatches) -> Option<&Arc<Batch>> {
    batches.peek()?.as_ref().ok().filter(|batch| !batch.indices.is_empty())
}

impl Iterator for Epoch {
    type Item = Result<Batch, DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next >= self.batches {
            return None;
        }
        self.hand_out();
        let mut outcome = self.wait();
        if let Ok(batch) = &mut outcome {
            batch.images.iter_mut().for_each(hand_over);
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
mod tests;
