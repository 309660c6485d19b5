//! The files of a saved state: written from a run, and a run put back from them.
//!
//! `weights.safetensors` holds every parameter and running statistic, `average.safetensors` the same
//! with averaged weights, `optimizer.safetensors` the optimizer's tensors, `state.json` the
//! [`TrainState`]. The weights' metadata say what the outputs are and what images become before the model
//! sees them ([`notes`]) and, where numbers are standardised, how (`standardize`): the outputs mean nothing
//! without.
//!
//! States that are saved at the end of an epoch also hold what validation found of these weights:
//! `validation.csv`, a [`PredictionTable`], and `fitted.json`, the calibration and the thresholds fitted
//! on it.

use std::collections::{BTreeMap, BTreeSet};

use burn::tensor::{DType, ExecutionError, Tensor, TensorData, Transaction};

use super::kept::Kept;
use super::notes::notes;
use super::state::SavedState;
use super::train_state::TrainState;
use super::trainer::{Rank, Trainer};
use crate::evaluate::{EvaluateConfig, Fitted, PredictionError, PredictionTable};
use crate::memory::{
    Chain, Parameter, in_f32, join_scalars, join_tensors, split_scalars, split_tensors,
};
use crate::model::weights::{self, NamedTensor, WeightsError};
use crate::optim::{Ema, OptimError, Optimizer, OptimizerState, Schedule, saved_part};
use crate::plan::Plan;
use crate::train::{Inference, Replica};

/// The weights of a state, which other programs can read.
pub const WEIGHTS: &str = "weights.safetensors";
const AVERAGE: &str = "average.safetensors";
const OPTIMIZER: &str = "optimizer.safetensors";
const TRAIN_STATE: &str = "state.json";
/// The most numbers that [`PredictionTable::FILE`] has. A larger table would take more room than the weights; it
/// is left out, and `trainer eval` makes it anew when it is needed.
const MOST_OUTPUTS: usize = 10_000_000;
/// The key of the weights' metadata that says how numbers are standardised, by head.
pub const STANDARDIZE: &str = "standardize";

/// The tensors of a run could not be read from the device or written.
#[derive(Debug, thiserror::Error)]
pub enum GatherError {
    /// The device failed.
    #[error("the device failed: {0:?}")]
    Device(#[from] ExecutionError),
    /// The state of the optimizer or of the average could not be read.
    #[error(transparent)]
    Optim(#[from] OptimError),
    /// No file can hold the tensors.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// No table can hold the predictions.
    #[error(transparent)]
    Predictions(#[from] PredictionError),
}

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

/// Every file of the state that `trainer` and `train_state` are in, in a run of `plan`; `kept` is what each device of
/// a copy keeps of the weights.
pub(super) fn files(
    plan: &Plan,
    trainer: &Trainer,
    kept: Vec<Kept>,
    train_state: &mut TrainState,
) -> Result<Vec<(String, Vec<u8>)>, GatherError> {
    // In a pipeline the heads are on the last device, and every device has tensors of its own.
    let Rank { replica, updater } = trainer.last();
    let inference = &replica.inference;
    let numbers = inference.precision().parameters();
    let (mut buckets, mut model, mut averages) = (Vec::new(), Vec::new(), Vec::new());
    let mut optimizer = OptimizerState::default();
    for (rank, kept) in trainer.copy().iter().zip(kept) {
        let chain = &rank.replica.inference.chain;
        buckets.extend(chain.buckets());
        model.extend(chain_tensors(chain)?);
        averages.extend(kept.averages);
        optimizer.tensors.extend(kept.optimizer.tensors);
        optimizer.scalars.extend(kept.optimizer.scalars);
    }
    let heads = inference.heads.iter();
    train_state.standardize = heads
        .filter_map(|head| Some((head.config.name.clone(), head.standardizer.clone()?)))
        .collect();
    let mut notes = notes(&plan.heads, &plan.data.image, false);
    if !train_state.standardize.is_empty() {
        let standardize = serde_json::to_string(&train_state.standardize).expect("finite numbers");
        notes.insert(STANDARDIZE.to_owned(), standardize);
    }
    let write = |tensors: &[NamedTensor]| weights::write_with(numbers, tensors, &notes);
    let mut files = vec![(WEIGHTS.to_owned(), write(&model)?)];
    if updater.ema.is_some() {
        let mut averages: BTreeMap<String, TensorData> =
            split_tensors(&buckets, averages).into_iter().collect();
        let averaged = model.into_iter().map(|tensor| match averages.remove(&tensor.name) {
            Some(data) => named(&tensor.name, tensor.shape, data),
            None => tensor,
        });
        files.push((AVERAGE.to_owned(), write(&averaged.collect::<Vec<_>>())?));
    }
    let OptimizerState { tensors, scalars } = optimizer;
    let tensors = split_tensors(&buckets, tensors).into_iter();
    let tensors = tensors.map(|(name, data)| named(&name, data.shape().to_vec(), data));
    files.push((OPTIMIZER.to_owned(), weights::write_in(numbers, &tensors.collect::<Vec<_>>())?));
    train_state.optimizer = split_scalars(&buckets, scalars);
    train_state.loss_scale = updater.loss_scale;
    train_state.losses = replica.variables();
    let json = serde_json::to_vec_pretty(train_state).expect("it has only finite numbers");
    files.push((TRAIN_STATE.to_owned(), json));
    Ok(files)
}

/// The files that tell what validation found: the outputs, and what is fitted on them.
pub(super) fn judged(
    config: &EvaluateConfig,
    validation: &PredictionTable,
) -> Result<Vec<(String, Vec<u8>)>, GatherError> {
    let mut files = vec![(Fitted::FILE.to_owned(), config.fit(validation).to_json().into_bytes())];
    let outputs: usize = validation.heads.values().map(|head| head.outputs.len()).sum();
    if not_kept(outputs).is_none() {
        files.push((PredictionTable::FILE.to_owned(), validation.to_csv()?));
    }
    Ok(files)
}

/// What a person is told where there are so many `outputs` for the validation images that states do not
/// keep them.
pub fn not_kept(outputs: usize) -> Option<String> {
    (outputs > MOST_OUTPUTS).then(|| {
        format!(
            "saved states have no {}, since {outputs} outputs for the validation images are more than \
             {MOST_OUTPUTS}: `trainer eval` computes them anew where it needs them, and `trainer predict` \
             takes calibration and thresholds as they are",
            PredictionTable::FILE
        )
    })
}

/// Every parameter and running statistic of `chain`, in host memory.
///
/// # Errors
/// When the device fails.
pub fn chain_tensors(chain: &Chain) -> Result<Vec<NamedTensor>, ExecutionError> {
    let parameters = chain.parameters();
    let read = parameters
        .iter()
        .fold(Transaction::default(), |all, parameter| all.register(parameter.value.clone()));
    let values = read.try_execute()?;
    let named = |(parameter, data): (&Parameter, TensorData)| {
        named(&parameter.name, parameter.shape.clone(), data)
    };
    Ok(parameters.iter().zip(values).map(named).collect())
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

fn named(name: &str, shape: Vec<usize>, data: TensorData) -> NamedTensor {
    NamedTensor { name: name.to_owned(), shape, data: in_f32(&data) }
}

/// `[n]` in `numbers`, and the name.
fn data(tensor: NamedTensor, numbers: DType) -> (String, TensorData) {
    let length = tensor.data.len();
    (tensor.name, TensorData::new(tensor.data, [length]).convert_dtype(numbers))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Targets;
    use crate::metric::HeadPredictions;
    use crate::model::Task;

    #[test]
    fn more_outputs_than_weights_are_worth_are_not_kept_and_that_is_told() {
        for (outputs, kept) in [(MOST_OUTPUTS, true), (MOST_OUTPUTS + 1, false)] {
            // Of a head of numbers nothing is fitted.
            let head = HeadPredictions {
                task: Task::Regression,
                labels: vec!["age".to_owned()],
                outputs: vec![0.0; outputs],
                targets: Targets { values: Vec::new(), mask: Vec::new(), width: 1 },
            };
            assert_eq!(not_kept(outputs).is_none(), kept);
            if !kept {
                let heads = BTreeMap::from([("numbers".to_owned(), head)]);
                let table = PredictionTable { paths: Vec::new(), patients: Vec::new(), heads };
                let files = judged(&EvaluateConfig::default(), &table).expect("is written");
                let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
                assert_eq!(names, [Fitted::FILE]);
            }
        }
    }
}
