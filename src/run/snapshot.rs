//! The state of a run between two steps, and the files that it is saved in.
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
//!
//! A [`Snapshot`] shares nothing with the model: the next steps write over the device's tensors while a thread
//! makes files of it. So tensors are read in transactions, which copy at once. On a GPU Burn's `into_data` copies when
//! somebody first looks at the numbers.

use std::collections::BTreeMap;
use std::sync::Arc;

use burn::tensor::{DType, ExecutionError, TensorData, Transaction};

use super::kept::Kept;
use super::notes::notes;
use super::train_state::TrainState;
use super::trainer::{Rank, Trainer};
use crate::evaluate::{EvaluateConfig, Fitted, PredictionError, PredictionTable};
use crate::memory::{BucketMember, Chain, in_f32, split_scalars, split_tensors};
use crate::model::weights::{self, NamedTensor, WeightsError};
use crate::optim::{OptimError, OptimizerState};
use crate::plan::Plan;

/// The weights of a state, which other programs can read.
pub const WEIGHTS: &str = "weights.safetensors";
pub(super) const AVERAGE: &str = "average.safetensors";
pub(super) const OPTIMIZER: &str = "optimizer.safetensors";
pub(super) const TRAIN_STATE: &str = "state.json";
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

/// The files of a state, by their names.
pub(super) type Files = Vec<(String, Vec<u8>)>;

/// What a state is saved from, in host memory of its own.
#[derive(Debug)]
pub(super) struct Snapshot {
    /// The type of the numbers in the files.
    numbers: DType,
    /// The metadata of the weights.
    notes: BTreeMap<String, String>,
    /// What lies in each tensor of the average and of the optimizer.
    buckets: Vec<Arc<[BucketMember]>>,
    model: Vec<(BucketMember, TensorData)>,
    /// None where weights are not averaged.
    averages: Option<Vec<(String, TensorData)>>,
    optimizer: Vec<(String, TensorData)>,
    /// As it is written.
    train_state: Vec<u8>,
    /// What validation found of exactly these weights, and how it is judged.
    judged: Option<(EvaluateConfig, PredictionTable)>,
}

impl Snapshot {
    /// The state that `trainer` and `train_state` are in, in a run of `plan`; `kept` is what each device of a copy
    /// keeps of the weights, and `validation` what was found of them at the end of an epoch.
    ///
    /// # Errors
    /// When the device fails.
    pub fn take(
        plan: &Plan,
        trainer: &Trainer,
        kept: Vec<Kept>,
        train_state: &mut TrainState,
        validation: Option<PredictionTable>,
    ) -> Result<Self, GatherError> {
        // In a pipeline the heads are on the last device, and every device has tensors of its own.
        let Rank { replica, updater } = trainer.last();
        let inference = &replica.inference;
        let (mut buckets, mut model, mut averages) = (Vec::new(), Vec::new(), Vec::new());
        let mut optimizer = OptimizerState::default();
        for (rank, kept) in trainer.copy().iter().zip(kept) {
            let chain = &rank.replica.inference.chain;
            buckets.extend(chain.buckets().into_iter().map(|bucket| bucket.members));
            model.extend(read(chain)?);
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
            let standardize =
                serde_json::to_string(&train_state.standardize).expect("finite numbers");
            notes.insert(STANDARDIZE.to_owned(), standardize);
        }
        train_state.optimizer = split_scalars(&buckets, optimizer.scalars);
        train_state.loss_scale = updater.loss_scale;
        train_state.losses = replica.variables();
        Ok(Self {
            numbers: inference.precision().parameters(),
            notes,
            buckets,
            model,
            averages: updater.ema.is_some().then_some(averages),
            optimizer: optimizer.tensors,
            train_state: serde_json::to_vec_pretty(train_state).expect("only finite numbers"),
            judged: validation.map(|validation| (plan.evaluate.clone(), validation)),
        })
    }

    /// Every file of the state.
    ///
    /// # Errors
    /// When no file can hold the tensors or the predictions.
    pub fn into_files(self) -> Result<Files, GatherError> {
        let Self { numbers, notes, buckets, model, averages, optimizer, train_state, judged } =
            self;
        let write = |tensors: &[NamedTensor]| weights::write_with(numbers, tensors, &notes);
        let model: Vec<NamedTensor> = model.into_iter().map(named).collect();
        let mut files = vec![(WEIGHTS.to_owned(), write(&model)?)];
        if let Some(averages) = averages {
            let mut averages: BTreeMap<String, TensorData> =
                split_tensors(&buckets, averages).into_iter().collect();
            let averaged = model.into_iter().map(|tensor| match averages.remove(&tensor.name) {
                Some(data) => NamedTensor { data: in_f32(&data), ..tensor },
                None => tensor,
            });
            files.push((AVERAGE.to_owned(), write(&averaged.collect::<Vec<_>>())?));
        }
        let optimizer = split_tensors(&buckets, optimizer).into_iter().map(|(name, data)| {
            let (shape, data) = (data.shape().to_vec(), in_f32(&data));
            NamedTensor { name, shape, data }
        });
        let optimizer = optimizer.collect::<Vec<_>>();
        let optimizer = weights::write_with(numbers, &optimizer, &BTreeMap::new())?;
        files.push((OPTIMIZER.to_owned(), optimizer));
        files.push((TRAIN_STATE.to_owned(), train_state));
        if let Some((config, validation)) = judged {
            files.extend(judge(&config, &validation)?);
        }
        Ok(files)
    }
}

/// The files that tell what validation found: the outputs, and what is fitted on them.
fn judge(config: &EvaluateConfig, validation: &PredictionTable) -> Result<Files, GatherError> {
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
    Ok(read(chain)?.into_iter().map(named).collect())
}

/// The same in the chain's own numbers.
fn read(chain: &Chain) -> Result<Vec<(BucketMember, TensorData)>, ExecutionError> {
    let parameters = chain.parameters();
    let read = parameters
        .iter()
        .fold(Transaction::default(), |all, parameter| all.register(parameter.value.clone()));
    let values = read.try_execute()?;
    let members =
        parameters.into_iter().map(|one| BucketMember { name: one.name, shape: one.shape });
    Ok(members.zip(values).collect())
}

fn named((member, data): (BucketMember, TensorData)) -> NamedTensor {
    let BucketMember { name, shape } = member;
    NamedTensor { name, shape, data: in_f32(&data) }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;
    use crate::data::Targets;
    use crate::metric::HeadPredictions;
    use crate::model::{ModelConfig, Task};

    #[test]
    fn what_was_read_stays_as_it_was_when_weights_are_written_over() {
        let model: ModelConfig =
            toml::from_str("[densenet]\ngrowth = 4\nblocks = [2]\nstem = 6").expect("a model");
        let stages = model.resolve([1, 32, 32]).expect("sizes").stages(
            Default::default(),
            Default::default(),
            &[],
        );
        let mut chain = Chain::init(&stages, &Device::flex(), 7);
        let values = |read: &[(BucketMember, TensorData)]| -> Vec<Vec<f32>> {
            read.iter().map(|(_, data)| in_f32(data)).collect()
        };
        let taken = read(&chain).expect("is read");
        let before = values(&taken);
        // In place, where nobody else has the numbers.
        chain.map_buckets(|_, value| value + 1.0);
        assert_ne!(values(&read(&chain).expect("is read")), before);
        assert_eq!(values(&taken), before);
    }

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
                let files = judge(&EvaluateConfig::default(), &table).expect("is written");
                let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
                assert_eq!(names, [Fitted::FILE]);
            }
        }
    }
}
