//! What a trained model says of a list of images.

use std::sync::Arc;

use crate::data::{BadImage, Batch, DataError, Loader, upcoming};
use crate::evaluate::PredictionTable;
use crate::model::HeadConfig;
use crate::train::{Evaluating, Inference, TrainError};

/// What a model says of a list of images.
#[derive(Debug, Clone, PartialEq)]
pub struct ListOutputs {
    /// The outputs with the truth, of every image that could be read.
    pub predictions: PredictionTable,
    /// The place of each of them in the list.
    pub indices: Vec<usize>,
    /// The images that could not be read.
    pub skipped: Vec<BadImage>,
}

/// A list of images that a model could not be asked about.
#[derive(Debug, thiserror::Error)]
pub enum OutputsError {
    /// An image that cannot be read, and may not be skipped.
    #[error(transparent)]
    Data(#[from] DataError),
    /// More images cannot be read than may be.
    #[error(
        "{count} images could not be read, more than data.bad_image_limit = {limit}; the first: \
         {first}\nRepair or remove them, or raise the limit."
    )]
    TooManyBadImages {
        /// How many were met.
        count: usize,
        /// How many may be.
        limit: usize,
        /// What is wrong with the first.
        first: BadImage,
    },
    /// Not one image could be read.
    #[error("none of the {count} images can be read; the first: {first}")]
    None {
        /// How many there are.
        count: usize,
        /// What is wrong with the first.
        first: BadImage,
    },
    /// Memory does not suffice for a single image, or the device fails.
    #[error(transparent)]
    Device(#[from] TrainError),
}

/// Asks the model about all images that `loader` reads, whose batches go through the network as a whole
/// where memory suffices. `tell` hears after each batch how many images are done.
///
/// # Errors
/// When an image cannot be read, or more than `bad_image_limit` of those that may be skipped; when
/// memory does not suffice for a single image, or the device fails.
pub fn list_outputs(
    inference: &Inference,
    loader: &Loader,
    bad_image_limit: usize,
    mut tell: impl FnMut(usize),
) -> Result<ListOutputs, OutputsError> {
    let heads: Vec<HeadConfig> = inference.heads.iter().map(|head| head.config.clone()).collect();
    let (names, patients) = (loader.dataset().names(), loader.dataset().patients());
    let predictions = PredictionTable::new(&heads);
    let mut found = ListOutputs { predictions, indices: Vec::new(), skipped: Vec::new() };
    let mut at_once = loader.full_batch();
    let mut batches = loader.epoch(0, 0).shared();
    let mut under_way: Option<(Evaluating, Arc<Batch>)> = None;
    let mut end = |found: &mut ListOutputs, ended: Option<(Evaluating, Arc<Batch>)>| {
        let Some((begun, batch)) = ended else { return Ok(()) };
        let (outputs, _) = begun.wait().map_err(TrainError::from)?;
        let predictions = &mut found.predictions;
        predictions.add(&heads, &outputs, &batch.targets);
        predictions.paths.extend(batch.indices.iter().map(|&index| names[index].clone()));
        predictions.patients.extend(batch.indices.iter().map(|&index| patients[index].clone()));
        found.indices.extend(&batch.indices);
        tell(found.indices.len() + found.skipped.len());
        Ok::<_, OutputsError>(())
    };
    while let Some(batch) = batches.next() {
        let batch = batch?;
        found.skipped.extend(batch.skipped.iter().cloned());
        let (count, limit) = (found.skipped.len(), bad_image_limit);
        if let Some(first) = found.skipped.first().filter(|_| count > limit) {
            return Err(OutputsError::TooManyBadImages { count, limit, first: first.clone() });
        }
        if batch.indices.is_empty() {
            continue;
        }
        let next = if inference.sends_ahead() { upcoming(&mut batches) } else { None };
        let begun = inference.begin_outputs_within_memory((&batch).into(), &mut at_once, next)?;
        // While a GPU computes this one, what is to be said of the one before it.
        end(&mut found, under_way.replace((begun, batch)))?;
    }
    end(&mut found, under_way)?;
    match (found.indices.is_empty(), found.skipped.first()) {
        (true, Some(first)) => {
            Err(OutputsError::None { count: found.skipped.len(), first: first.clone() })
        }
        _ => Ok(found),
    }
}
