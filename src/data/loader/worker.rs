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
    /// `[channels, height, width]`.
    Plane(Vec<f32>),
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
    outcomes: Mutex<Vec<Option<Outcome>>>,
    left: AtomicUsize,
}

/// One image of a batch in work.
pub(super) struct Job {
    pending: Arc<Pending>,
    place: usize,
}

impl Pending {
    pub fn new(number: usize, epoch: u64, indices: Vec<usize>) -> Self {
        let outcomes = Mutex::new(indices.iter().map(|_| None).collect());
        let left = AtomicUsize::new(indices.len());
        Self { number, epoch, indices, outcomes, left }
    }

    pub fn jobs(pending: &Arc<Self>) -> impl Iterator<Item = Job> {
        (0..pending.indices.len()).map(|place| Job { pending: pending.clone(), place })
    }

    /// Puts an outcome in its place; the one who puts the last gets them all.
    fn put(&self, place: usize, outcome: Outcome) -> Option<Vec<Option<Outcome>>> {
        let mut outcomes = self.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        outcomes[place] = Some(outcome);
        let last = self.left.fetch_sub(1, Ordering::AcqRel) == 1;
        last.then(|| std::mem::take(&mut *outcomes))
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
    last.unwrap_or_else(|| assemble(shared, &pending, Vec::new()))
}

/// Loads one image; with the last of a batch, puts the batch together.
fn step(shared: &Shared, pending: &Pending, place: usize) -> Option<Result<Batch, DataError>> {
    let index = pending.indices[place];
    let outcome = contained(|| load(shared, pending.epoch, index)).unwrap_or_else(Outcome::Failed);
    let outcomes = pending.put(place, outcome)?;
    let batch = contained(|| assemble(shared, pending, outcomes));
    Some(batch.unwrap_or_else(|panic| Err(DataError::Worker(panic))))
}

fn load(shared: &Shared, epoch: u64, index: usize) -> Outcome {
    let config = &shared.config;
    let size = config.image.size;
    let sample = &shared.dataset.samples()[index];
    let make = || {
        let image = (shared.read)(sample, size)?;
        Ok(resize(&image, size, config.image.fit))
    };
    let image = match shared.cache.get(sample, make) {
        Ok(image) => image,
        Err(reason) => return Outcome::Bad(reason),
    };
    Outcome::Plane(prepared(image, config, epoch, index))
}

/// What the model sees of an image.
pub fn prepared(image: Fitted, config: &LoaderConfig, epoch: u64, index: usize) -> Vec<f32> {
    let place = Place { seed: config.seed, epoch, number: index };
    prepare(Resized::of(image), &config.image, config.augment.as_ref(), place)
}

fn assemble(
    shared: &Shared,
    pending: &Pending,
    outcomes: Vec<Option<Outcome>>,
) -> Result<Batch, DataError> {
    let [height, width] = shared.config.image.size;
    let channels = shared.config.image.channels;
    let mut images = Vec::with_capacity(outcomes.len() * channels * height * width);
    let (mut indices, mut skipped) = (Vec::with_capacity(outcomes.len()), Vec::new());
    for (&index, outcome) in pending.indices.iter().zip(outcomes) {
        match outcome {
            Some(Outcome::Plane(plane)) => {
                images.extend_from_slice(&plane);
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
