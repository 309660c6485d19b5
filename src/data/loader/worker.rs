//! What a loader's thread does: load some images of a batch, and put the batch together with its
//! last ones.
//!
//! A thread loads a whole batch where there are batches enough in work for all.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crossbeam_channel::{Receiver, Sender};

use super::{LoaderConfig, Shared};
use crate::contain::contained;
use crate::data::augment::View;
use crate::data::batch::{BadImage, Batch};
use crate::data::config::OnBadImage;
use crate::data::error::DataError;
use crate::data::mix::mix;
use crate::data::prepare::{Place, Resized, prepare, prepare_view};
use crate::data::resize::{Fitted, resize};

/// What became of an image.
enum Outcome {
    /// It is among the part's images.
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
    /// How many images a job loads.
    share: usize,
    /// What the jobs loaded, in their order.
    parts: Mutex<Vec<Option<Part>>>,
    left: AtomicUsize,
}

/// Some images of a batch.
#[derive(Default)]
struct Part {
    outcomes: Vec<Outcome>,
    /// Those loaded, `[channels, height, width]`.
    images: Vec<Vec<f32>>,
}

/// Some images of a batch in work.
pub(super) struct Job {
    pending: Arc<Pending>,
    part: usize,
}

impl Pending {
    /// A batch whose jobs load `share` images each.
    pub fn new(number: usize, epoch: u64, indices: Vec<usize>, share: usize) -> Self {
        let share = share.max(1);
        let parts = indices.len().div_ceil(share);
        let left = AtomicUsize::new(parts);
        let parts = Mutex::new((0..parts).map(|_| None).collect());
        Self { number, epoch, indices, share, parts, left }
    }

    pub fn jobs(pending: &Arc<Self>) -> impl Iterator<Item = Job> {
        let parts = pending.indices.len().div_ceil(pending.share);
        (0..parts).map(|part| Job { pending: pending.clone(), part })
    }

    /// Puts a part in its place; the one who puts the last gets them all.
    fn put(&self, place: usize, part: Part) -> Option<Vec<Option<Part>>> {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts[place] = Some(part);
        let last = self.left.fetch_sub(1, Ordering::AcqRel) == 1;
        last.then(|| std::mem::take(&mut *parts))
    }
}

/// Works until there are no more jobs. A panic becomes an error in its batch.
pub(super) fn work(
    shared: &Shared,
    jobs: &Receiver<Job>,
    finished: &Sender<(usize, Result<Batch, DataError>)>,
    stop: &AtomicBool,
) {
    for Job { pending, part } in jobs {
        if stop.load(Ordering::Relaxed) {
            continue;
        }
        let Some(batch) = step(shared, &pending, part, stop) else { continue };
        if finished.send((pending.number, batch)).is_err() {
            break;
        }
    }
}

/// Makes a whole batch on this thread.
pub(super) fn make(shared: &Shared, pending: &Pending) -> Result<Batch, DataError> {
    let part = load_part(shared, pending, &pending.indices, &AtomicBool::new(false));
    let batch = contained(|| assemble(shared, pending, vec![part]));
    batch.unwrap_or_else(|panic| Err(DataError::Worker(panic)))
}

/// Loads one part; with the last of a batch, puts the batch together.
fn step(
    shared: &Shared,
    pending: &Pending,
    part: usize,
    stop: &AtomicBool,
) -> Option<Result<Batch, DataError>> {
    let indices = pending.indices.chunks(pending.share).nth(part).unwrap_or_default();
    let parts = pending.put(part, load_part(shared, pending, indices, stop))?;
    let batch = contained(|| assemble(shared, pending, parts.into_iter().flatten().collect()));
    Some(batch.unwrap_or_else(|panic| Err(DataError::Worker(panic))))
}

/// Loads images one after another; a panic is the outcome of its image.
fn load_part(shared: &Shared, pending: &Pending, indices: &[usize], stop: &AtomicBool) -> Part {
    let mut part = Part::default();
    for &index in indices {
        // What follows is wanted by no one.
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let outcome = match contained(|| load(shared, pending.epoch, index)) {
            Ok(Ok(image)) => {
                part.images.push(image);
                Outcome::Loaded
            }
            Ok(Err(reason)) => Outcome::Bad(reason),
            Err(panic) => Outcome::Failed(panic),
        };
        part.outcomes.push(outcome);
    }
    part
}

/// `[channels, height, width]`, or the reason why not.
pub(super) fn load(shared: &Shared, epoch: u64, index: usize) -> Result<Vec<f32>, String> {
    let config = &shared.config;
    let sample = &shared.dataset.samples()[index];
    let make = || {
        let image = (shared.read)(sample, &config.image)?;
        Ok(resize(&image, config.image.size, config.image.fit))
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
    let image = Resized::of(image);
    match config.view == View::default() {
        true => prepare(image, &config.image, config.augment.as_ref(), place),
        false => prepare_view(image, &config.image, config.view),
    }
}

fn assemble(shared: &Shared, pending: &Pending, mut parts: Vec<Part>) -> Result<Batch, DataError> {
    let outcomes: Vec<Outcome> =
        parts.iter_mut().flat_map(|part| std::mem::take(&mut part.outcomes)).collect();
    let mut outcomes = outcomes.into_iter();
    let (mut indices, mut skipped) = (Vec::with_capacity(pending.indices.len()), Vec::new());
    for &index in &pending.indices {
        match outcomes.next() {
            Some(Outcome::Loaded) => indices.push(index),
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
    let images = parts.into_iter().flat_map(|part| part.images).collect();
    let [height, width] = shared.config.image.size;
    let shape = [indices.len(), shared.config.image.channels, height, width];
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

pub(super) fn bad_image(shared: &Shared, index: usize, reason: String) -> BadImage {
    let sample = &shared.dataset.samples()[index];
    let (path, table) = (sample.path.clone(), sample.table.to_path_buf());
    BadImage { path, table, line: sample.line, reason }
}
