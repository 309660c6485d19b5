//! A run put back into a saved state, whose files are told of in `snapshot.rs`.

use std::collections::{BTreeMap, BTreeSet};

use burn::tensor::{DType, Tensor, TensorData};

use super::snapshot::{AVERAGE, OPTIMIZER, TRAIN_STATE, WEIGHTS};
use super::state::SavedState;
use super::train_state::TrainState;
use super::trainer::{Rank, Trainer};
use crate::memory::{join_scalars, join_tensors};
use crate::model::weights::{self, NamedTensor, WeightsError};
use crate::optim::{Ema, OptimError, Optimizer, OptimizerState, Schedule, saved_part};
use crate::train::{Inference, Replica};

/// A state whose files are intact but do not belong to this run.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// A file that every state has is not there.
    #[error("it has no {0}")]
    Missing(&'static str),
    /// `state.json` is of another form.
    #[error("state.json cannot be read: {0}")]
    TrainState(#[from] serde_json::Error),
    /// `state.json` and the manifest are of different places in training.
    #[error(
        "state.json is of epoch {}, step {} and batch {}, and manifest.json of epoch {}, step {} and \
         batch {}", .0[0], .0[1], .0[2], .0[3], .0[4], .0[5]
    )]
    Elsewhere(Box<[u64; 6]>),
    /// A file of tensors cannot be read.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// A parameter is missing or has another shape.
    #[error("its {file} has no `{name}` with shape {shape:?}")]
    Parameter {
        /// The file.
        file: &'static str,
        /// The parameter.
        name: String,
        /// The shape it should have.
        shape: Vec<usize>,
    },
    /// What the loss of a head has learned is missing, or of other labels.
    #[error("it does not say what the loss of head `{head}` has learned for each of its labels")]
    Loss {
        /// The head.
        head: String,
    },
    /// The state of optimizer, average or schedule is of another one.
    #[error(transparent)]
    Optim(#[from] OptimError),
}

impl TrainState {
    /// That of a saved state.
    ///
    /// # Errors
    /// When it is missing or of another version, or not of the place that the manifest names.
    pub fn of(state: &SavedState) -> Result<Self, RestoreError> {
        let file = state.files.get(TRAIN_STATE).ok_or(RestoreError::Missing(TRAIN_STATE))?;
        let found: Self = serde_json::from_slice(file)?;
        let (epoch, tag) = ((found.epoch as u64).wrapping_sub(1), &state.tag);
        let here = [epoch, found.step as u64, found.batch as u64];
        match here == [tag.epoch, tag.step, tag.batch] {
            true => Ok(found),
            false => {
                let [epoch, step, batch] = here;
                let [shown, said] = [epoch, tag.epoch].map(|epoch| epoch.wrapping_add(1));
                let places = [shown, step, batch, said, tag.step, tag.batch];
                Err(RestoreError::Elsewhere(Box::new(places)))
            }
        }
    }
}

/// Puts `trainer` and `schedule` into the saved state and returns where training stood.
///
/// # Errors
/// When the state is of another model, optimizer or version.
pub fn restore(
    state: &SavedState,
    trainer: &mut Trainer,
    schedule: &mut Schedule,
) -> Result<TrainState, RestoreError> {
    let train_state = TrainState::of(state)?;
    let keys = trainer.ranks.iter().map(|rank| own_keys(&rank.replica));
    let keys: Vec<BTreeSet<String>> = keys.collect();
    for (place, rank) in trainer.ranks.iter_mut().enumerate() {
        let others = keys.iter().flatten().filter(|key| !keys[place].contains(*key)).cloned();
        restore_rank(state, &train_state, rank, &others.collect())?;
    }
    schedule.load(train_state.schedule.clone())?;
    Ok(train_state)
}

/// What the optimizer may know the numbers by that are on the device of `replica`: those of parameters, and
/// of what its losses learn where it has the heads.
fn own_keys(replica: &Replica) -> BTreeSet<String> {
    let parameters = replica.inference.chain.parameters().into_iter().map(|p| p.name);
    let centres = replica.centre_sizes().into_iter().filter(|_| replica.has_heads());
    parameters.chain(centres.map(|(key, _)| key)).collect()
}

/// What the optimizer knows the numbers by that a tensor or number of its state belongs to.
fn key_of(name: &str) -> &str {
    name.split('/').next().unwrap_or_default()
}

/// Puts the model on one device into the saved state, in which `others` are of other devices alone.
fn restore_rank(
    state: &SavedState,
    train_state: &TrainState,
    Rank { replica, updater }: &mut Rank,
    others: &BTreeSet<String>,
) -> Result<(), RestoreError> {
    let own = |name: &str| !others.contains(key_of(name));
    let inference = &mut replica.inference;
    restore_model(state, train_state, WEIGHTS, inference)?;
    let (device, numbers) = (inference.device().clone(), inference.precision().parameters());
    let data = |tensor| data(tensor, numbers);
    let buckets = inference.chain.buckets();
    let lengths = buckets.iter().map(|bucket| (bucket.key(), bucket.value.dims()[0]));
    let (shard, lengths) = (updater.shard, lengths.collect::<BTreeMap<_, _>>());
    // Of what is kept of a bucket, what this device has.
    let cut = |what: &'static str, (name, data): (String, TensorData)| {
        let length = lengths.get(key_of(&name)).copied().filter(|_| !shard.is_whole());
        let Some(length) = length else { return Ok(Some((name, data))) };
        let part = saved_part(what, &name, &data, length, shard.range(length))?;
        Ok::<_, OptimError>(part.map(|part| (name, part)))
    };
    if let Some(ema) = &mut updater.ema {
        let averages = tensors(state, AVERAGE)?.into_values().map(data).collect();
        let averages = join_tensors(&buckets, averages).into_iter();
        let averages = averages.filter(|(name, _)| ema.get(name).is_some());
        let averages = averages.filter_map(|average| cut(Ema::WHAT, average).transpose());
        ema.load(averages.collect::<Result<_, _>>()?, &device)?;
    }
    let kept = tensors(state, OPTIMIZER)?.into_values().filter(|tensor| own(&tensor.name));
    let kept = join_tensors(&buckets, kept.map(data).collect()).into_iter();
    let kept = kept.filter_map(|tensor| cut(Optimizer::WHAT, tensor).transpose());
    let kept = kept.collect::<Result<_, _>>()?;
    let scalars = train_state.optimizer.clone().into_iter().filter(|(name, _)| own(name));
    let mut scalars = join_scalars(&buckets, scalars.collect());
    // Of a bucket of which this device has nothing, no steps are counted.
    scalars.retain(|name, _| {
        lengths.get(key_of(name)).is_none_or(|length| !shard.range(*length).is_empty())
    });
    updater.optimizer.load(OptimizerState { tensors: kept, scalars }, &device)?;
    if let Some(head) = replica.set_variables(&train_state.losses) {
        return Err(RestoreError::Loss { head });
    }
    updater.loss_scale = updater.loss_scale.map(|first| train_state.loss_scale.unwrap_or(first));
    Ok(())
}

/// Puts the weights of the saved state that validation has measured into `inference`: the averaged ones
/// where weights are averaged.
///
/// # Errors
/// When the state is of another model or version.
pub fn restore_inference(
    state: &SavedState,
    inference: &mut Inference,
) -> Result<(), RestoreError> {
    let file = if state.files.contains_key(AVERAGE) { AVERAGE } else { WEIGHTS };
    restore_model(state, &TrainState::of(state)?, file, inference)
}

/// Puts the weights in `file` of the saved state, and how numbers are standardised, into `inference`.
fn restore_model(
    state: &SavedState,
    train_state: &TrainState,
    file: &'static str,
    inference: &mut Inference,
) -> Result<(), RestoreError> {
    for head in inference.heads.iter_mut().filter(|head| head.config.standardize) {
        let labels = head.config.labels.len();
        let saved = train_state.standardize.get(&head.config.name);
        let saved = saved.filter(|saved| saved.mean.len() == labels && saved.std.len() == labels);
        let missing = RestoreError::Missing("mean and deviation for every label that has one");
        head.standardizer = Some(saved.ok_or(missing)?.clone());
    }
    let mut saved = tensors(state, file)?;
    for parameter in inference.chain.parameters() {
        let found = saved.get(&parameter.name).is_some_and(|t| t.shape == parameter.shape);
        if !found {
            let (name, shape) = (parameter.name, parameter.shape);
            return Err(RestoreError::Parameter { file, name, shape });
        }
    }
    let (device, numbers) = (inference.device().clone(), inference.precision().parameters());
    inference.chain.map_parameters(|name, value| match saved.remove(name) {
        Some(tensor) => Tensor::from_data(data(tensor, numbers).1, (&device, numbers)),
        None => value,
    });
    Ok(())
}

/// The tensors in a file of the saved state, by their names.
fn tensors(
    state: &SavedState,
    file: &'static str,
) -> Result<BTreeMap<String, NamedTensor>, RestoreError> {
    let bytes = state.files.get(file).ok_or(RestoreError::Missing(file))?;
    let tensors = weights::parse(bytes, &state.folder.join(file))?.tensors.into_iter();
    Ok(tensors.map(|tensor| (tensor.name.clone(), tensor)).collect())
}

/// `[n]` in `numbers`, and the name.
fn data(tensor: NamedTensor, numbers: DType) -> (String, TensorData) {
    let length = tensor.data.len();
    (tensor.name, TensorData::new(tensor.data, [length]).convert_dtype(numbers))
}
