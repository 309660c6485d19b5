//! What a loader's thread does: decode one image, and put the batch together with its last one.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crossbeam_channel::{Receiver, Sender};

use super::{LoaderConfig, Shared};
use crate::data::batch::{BadImage, Batch};
use crate::data::config::OnBadImage;
use crate::data::contain::contained;
use crate::data::error::DataError;
use crate::data::mix::mix;
use crate::data::prepare::{Place, Resized, prepare};
use crate::data::resize::{Fitted, resize};

/// What became of an image.
enum Outcome {
    /// It is in its place.
    Loaded,
    /// The reason it cannot be read.
    Bad(String),
    /// The message of a panic outside the decoder.
    Failed(String),
}

/// A batch in work.
pub(super) struct Pending {
    number: usize,
    epoch: u64,
    indices: Vec<usize>,
    work: Mutex<Work>,
    left: AtomicUsize,
}

/// What becomes of a batch's images.
#[derive(Default)]
struct Work {
    outcomes: Vec<Option<Outcome>>,
    /// `[images, channels, height, width]`, each image in its place; empty until there is one.
    images: Vec<f32>,
}

/// One image of a batch in work.
pub(super) struct Job {
    pending: Arc<Pending>,
    place: usize,
}

impl Pending {
    pub fn new(number: usize, epoch: u64, indices: Vec<usize>) -> Self {
        let outcomes = indices.iter().map(|_| None).collect();
        let work = Mutex::new(Work { outcomes, images: Vec::new() });
        let left = AtomicUsize::new(indices.len());
        Self { number, epoch, indices, work, left }
    }

    pub fn jobs(pending: &Arc<Self>) -> impl Iterator<Item = Job> {
        (0..pending.indices.len()).map(|place| Job { pending: pending.clone(), place })
    }

    /// Puts an image in its place: copied, so that threads reuse their own memory, and all of a
    /// batch has its memory but once.
    fn place(&self, place: usize, plane: &[f32]) {
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        if work.images.is_empty() {
            work.images = vec![0.0; self.indices.len() * plane.len()];
        }
        work.images[place * plane.len()..(place + 1) * plane.len()].copy_from_slice(plane);
    }

    /// Notes an outcome; the one who notes the last gets it all.
    fn note(&self, place: usize, outcome: Outcome) -> Option<Work> {
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        work.outcomes[place] = Some(outcome);
        let last = self.left.fetch_sub(1, Ordering::AcqRel) == 1;
        last.then(|| std::mem::take(&mut *work))
    }
}

/// Works until there are no more jobs. A panic becomes an error in its batch.
pub(super) fn work(
    shared: &Shared,
    jobs: &Receiver<Job>,
    finished: &Sender<(usize, Result<Batch, DataError>)>,
    stop: &AtomicBool,
) {
    for Job { pending, place } in jobs {
        if stop.load(Ordering::Relaxed) {
            continue;
        }
        let Some(batch) = step(shared, &pending, place) else { continue };
        if finished.send((pending.number, batch)).is_err() {
            break;
        }
    }
}

/// Makes a whole batch on this thread.
pub(super) fn make(shared: &Shared, pending: Pending) -> Result<Batch, DataError> {
    let last = (0..pending.indices.len()).find_map(|place| step(shared, &pending, place));
    last.unwrap_or_else(|| assemble(shared, &pending, Work::default()))
}

/// Loads one image; with the last of a batch, puts the batch together.
fn step(shared: &Shared, pending: &Pending, place: usize) -> Option<Result<Batch, DataError>> {
    let index = pending.indices[place];
    let loaded = contained(|| match load(shared, pending.epoch, index) {
        Ok(plane) => {
            pending.place(place, &plane);
            Outcome::Loaded
        }
        Err(reason) => Outcome::Bad(reason),
    });
    let work = pending.note(place, loaded.unwrap_or_else(Outcome::Failed))?;
    let batch = contained(|| assemble(shared, pending, work));
    Some(batch.unwrap_or_else(|panic| Err(DataError::Worker(panic))))
}

/// `[channels, height, width]`, or the reason why not.
fn load(shared: &Shared, epoch: u64, index: usize) -> Result<Vec<f32>, String> {
    let config = &shared.config;
    let size = config.image.size;
    let sample = &shared.dataset.samples()[index];
    let make = || {
        let image = (shared.read)(sample, size)?;
        Ok(resize(&image, size, config.image.fit))
    };
    let image = shared.cache.get(sample, make)?;
    let (planes, channels) = (image.planes, config.image.channels);
    if planes != 1 && planes != channels {
        return Err(format!("it has {planes} channels, and `data.image.channels` is {channels}"));
    }
    Ok(prepared(image, config, epoch, index))
}

/// What the model sees of an image.
pub fn prepared(image: Fitted, config: &LoaderConfig, epoch: u64, index: usize) -> Vec<f32> {
    let place = Place { seed: config.seed, epoch, number: index };
    prepare(Resized::of(image), &config.image, config.augment.as_ref(), place)
}

fn assemble(shared: &Shared, pending: &Pending, work: Work) -> Result<Batch, DataError> {
    let [height, width] = shared.config.image.size;
    let channels = shared.config.image.channels;
    let length = channels * height * width;
    let mut images = work.images;
    let (mut indices, mut skipped) = (Vec::with_capacity(work.outcomes.len()), Vec::new());
    for (place, (&index, outcome)) in pending.indices.iter().zip(work.outcomes).enumerate() {
        match outcome {
            Some(Outcome::Loaded) => {
                // Those behind a bad one move up.
                if indices.len() < place {
                    let from = place * length;
                    images.copy_within(from..from + length, indices.len() * length);
                }
                indices.push(index);
            }
            Some(Outcome::Bad(reason)) => {
                let bad = bad_image(shared, index, reason);
                match shared.config.on_bad_image {
                    OnBadImage::Stop => return Err(bad.into()),
                    OnBadImage::Skip => skipped.push(bad),
                }
            }
            Some(Outcome::Failed(panic)) => {
                let path = shared.dataset.samples()[index].path.display();
                return Err(DataError::Worker(format!("{panic} (at image `{path}`)")));
            }
            None => return Err(DataError::Worker("an image was lost".to_owned())),
        }
    }
    images.truncate(indices.len() * length);
    let shape = [indices.len(), channels, height, width];
    let targets = shared.dataset.targets(&indices);
    let batch = Batch { images, shape, targets, indices, skipped };
    Ok(match &shared.config.augment {
        Some(augment) => {
            let Pending { epoch, number, .. } = *pending;
            let place = Place { seed: shared.config.seed, epoch, number };
            mix(batch, &shared.dataset.classes(), augment, place)
        }
        None => batch,
    })
}

fn bad_image(shared: &Shared, index: usize, reason: String) -> BadImage {
    let sample = &shared.dataset.samples()[index];
    let (path, table) = (sample.path.clone(), sample.table.to_path_buf());
    BadImage { path, table, line: sample.line, reason }
}
