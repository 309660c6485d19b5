//! The model and what changes it: one training step, one evaluation.

use std::collections::BTreeMap;

use burn::tensor::{Device, ExecutionError, Tensor, TensorData};

use crate::data::{Batch, Targets};
use crate::loss::Loss;
use crate::memory::{Activation, Chain, CheckpointingConfig, Gradients, Pack, executor};
use crate::model::HeadConfig;
use crate::optim::{Ema, OptimError, Optimizer, Update, decays, norm};
use crate::run::tally::HeadSum;

/// A head with its loss.
pub struct LearnedHead {
    /// Its configuration.
    pub config: HeadConfig,
    /// Its loss.
    pub loss: Box<dyn Loss>,
}

/// The model with its losses and optimizer.
pub struct Learner {
    /// Where it is.
    pub device: Device,
    /// The model.
    pub chain: Chain,
    /// Its heads, in the order of the configuration.
    pub heads: Vec<LearnedHead>,
    /// What changes the weights.
    pub optimizer: Optimizer,
    /// The average of the weights, when there is one.
    pub ema: Option<Ema>,
    /// The norm above which gradients are scaled down.
    pub clip_norm: Option<f64>,
    /// Whether weight decay also acts on norms and biases.
    pub decay_norms_and_biases: bool,
    /// What makes the schedule of a step.
    pub checkpointing: CheckpointingConfig,
    /// The run's seed.
    pub seed: u64,
}

/// A training step that could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum LearnError {
    /// The loss is NaN or infinite.
    #[error(
        "the loss of head `{head}` is not a finite number\nLower the learning rate (it was \
         {learning_rate:e}), add `clip_norm = 1.0` under [train], or look at the images and labels \
         of this step."
    )]
    Loss {
        /// The head.
        head: String,
        /// The learning rate of the step.
        learning_rate: f64,
    },
    /// A gradient is NaN or infinite.
    #[error(
        "the gradient of `{parameter}`{others} is not a finite number\nLower the learning rate (it \
         was {learning_rate:e}) or look at the images and labels of this step."
    )]
    Gradient {
        /// The first such parameter.
        parameter: String,
        /// How many more there are, as a phrase.
        others: String,
        /// The learning rate of the step.
        learning_rate: f64,
    },
    /// The gradient norm could not be computed.
    #[error(transparent)]
    Optim(#[from] OptimError),
    /// The device failed.
    #[error("the device failed: {0:?}")]
    Device(#[from] ExecutionError),
}

impl Learner {
    /// Takes optimizer step number `step` (from 0) with the images of `batch`, and returns each
    /// head's loss. On an error nothing has changed.
    ///
    /// # Errors
    /// When a loss or a gradient is not finite, or the device fails.
    pub fn step(
        &mut self,
        batch: Batch,
        step: usize,
        learning_rate: f64,
    ) -> Result<Vec<HeadSum>, LearnError> {
        let targets = batch.targets.clone();
        let images = upload(batch, &self.device);
        self.step_on(images, &targets, step, learning_rate)
    }

    /// As [`Learner::step`], with images that are on the device already.
    ///
    /// # Errors
    /// As there.
    pub fn step_on(
        &mut self,
        images: Activation,
        targets: &[Targets],
        step: usize,
        learning_rate: f64,
    ) -> Result<Vec<HeadSum>, LearnError> {
        let schedule = self.checkpointing.schedule(self.chain.stages().len(), 1);
        let mut sums = Vec::new();
        let result = executor::train(
            &self.chain,
            &schedule,
            self.seed,
            step as u64,
            |_| images.clone(),
            |_, outputs| {
                let each = self.losses(outputs.into_outputs(), targets);
                let (gradients, of_heads) = each.into_iter().unzip();
                sums = of_heads;
                Activation::Outputs(gradients)
            },
        );
        // Waits for the device, and the losses after it no more.
        let size = norm(&result.gradients)?;
        let sums = read(sums)?;
        if let Some(index) = sums.iter().position(|sum| !sum.sum.is_finite()) {
            let head = self.heads[index].config.name.clone();
            return Err(LearnError::Loss { head, learning_rate });
        }
        if !size.is_finite() {
            let names = self.names_of(&size.non_finite, &result.gradients)?;
            return Err(non_finite(&names, learning_rate));
        }
        let factor = self.clip_norm.map_or(1.0, |most| size.factor(most));
        let gradients = result.gradients;
        let Self { chain, optimizer, ema, decay_norms_and_biases, .. } = self;
        let packs = chain.packs();
        let decay = |pack: &Pack| *decay_norms_and_biases || decays(pack.rank());
        let decaying: BTreeMap<String, bool> =
            packs.iter().map(|pack| (pack.key().to_owned(), decay(pack))).collect();
        let update = |pack: Pack| {
            let gradient = gradients.get(pack.key())?.clone();
            let (name, decay) = (pack.key().to_owned(), decaying[pack.key()]);
            Some(Update { name, decay, value: pack.value, gradient })
        };
        let updates = packs.into_iter().filter_map(update).collect();
        let mut stepped = optimizer.step_together(learning_rate, factor, updates);
        chain.map_packs(|name, value| {
            let Some(gradient) = gradients.get(name) else { return value };
            let value = match stepped.remove(name) {
                Some(stepped) => stepped,
                None => {
                    let gradient = gradient.clone();
                    let gradient =
                        if factor < 1.0 { gradient.mul_scalar(factor) } else { gradient };
                    optimizer.step(name, learning_rate, decaying[name], value, gradient)
                }
            };
            if let Some(ema) = ema {
                ema.update(name, value.clone());
            }
            value
        });
        chain.move_statistics(&result.statistics);
        Ok(sums)
    }

    /// The parameters whose gradients are not finite in the packs `keys`.
    fn names_of(&self, keys: &[String], gradients: &Gradients) -> Result<Vec<String>, LearnError> {
        let mut names = Vec::new();
        for pack in self.chain.packs().iter().filter(|pack| keys.iter().any(|k| k == pack.key())) {
            let Some(gradient) = gradients.get(pack.key()) else { continue };
            let values: Vec<f32> = gradient.clone().try_into_data()?.iter().collect();
            let finite =
                |place: std::ops::Range<usize>| values[place].iter().all(|v| v.is_finite());
            let broken = pack.places().filter(|(_, place)| !finite(place.clone()));
            names.extend(broken.map(|(member, _)| member.name.clone()));
        }
        // A sum of squares may overflow where no number does.
        Ok(if names.is_empty() { keys.to_vec() } else { names })
    }

    /// For each head, the gradient of the weighted sum of the heads' mean losses with respect to its
    /// outputs, and its loss. A head without a known label has a gradient of 0.
    fn losses(&self, outputs: Vec<Tensor<2>>, targets: &[Targets]) -> Vec<(Tensor<2>, PendingSum)> {
        let each = self.heads.iter().zip(outputs).zip(targets);
        each.map(|((head, output), targets)| {
            let normalizer = head.loss.normalizer(targets);
            if normalizer == 0.0 {
                return (output.zeros_like(), None);
            }
            let leaf = output.autodiff().require_grad();
            let (values, mask) = upload_targets(targets, &self.device);
            let sum = head.loss.sum(leaf.clone(), values, mask);
            let share = head.config.weight / normalizer;
            let mut gradients = sum.clone().mul_scalar(share).backward();
            let gradient = leaf.grad_remove(&mut gradients);
            let gradient = gradient.unwrap_or_else(|| leaf.without_autodiff().zeros_like());
            (gradient, Some((sum.without_autodiff(), normalizer)))
        })
        .collect()
    }

    /// Each head's outputs for the images of `batch`, row by row, and its loss; with running
    /// statistics and without dropout.
    ///
    /// # Errors
    /// When the device fails.
    pub fn evaluate(&self, batch: Batch) -> Result<(Vec<Vec<f32>>, Vec<HeadSum>), LearnError> {
        let targets = batch.targets.clone();
        self.evaluate_on(upload(batch, &self.device), &targets)
    }

    /// As [`Learner::evaluate`], with images that are on the device already.
    ///
    /// # Errors
    /// As there.
    pub fn evaluate_on(
        &self,
        images: Activation,
        targets: &[Targets],
    ) -> Result<(Vec<Vec<f32>>, Vec<HeadSum>), LearnError> {
        let outputs = executor::evaluate(&self.chain, images).into_outputs();
        let mut sums: Vec<PendingSum> = Vec::new();
        let mut rows = Vec::new();
        for ((head, output), targets) in self.heads.iter().zip(outputs).zip(targets) {
            let normalizer = head.loss.normalizer(targets);
            let (values, mask) = upload_targets(targets, &self.device);
            sums.push(
                (normalizer > 0.0)
                    .then(|| (head.loss.sum(output.clone(), values, mask), normalizer)),
            );
            rows.push(output.try_into_data()?.iter::<f32>().collect());
        }
        Ok((rows, read(sums)?))
    }

    /// Exchanges the weights and their average, when there is one; done twice, nothing has changed.
    pub fn swap_average(&mut self) {
        let Some(ema) = &mut self.ema else { return };
        self.chain.map_packs(|name, value| ema.exchange(name, value));
    }
}

/// A head's loss on the device, and what it is divided by; `None` without a known label.
type PendingSum = Option<(Tensor<1>, f64)>;

fn read(sums: Vec<PendingSum>) -> Result<Vec<HeadSum>, ExecutionError> {
    let read = |sum: PendingSum| match sum {
        Some((sum, normalizer)) => {
            Ok(HeadSum { sum: sum.try_into_data()?.iter::<f64>().sum(), normalizer })
        }
        None => Ok(HeadSum::default()),
    };
    sums.into_iter().map(read).collect()
}

fn non_finite(names: &[String], learning_rate: f64) -> LearnError {
    let others = match names.len() {
        0 | 1 => String::new(),
        count => format!(" (and of {} more)", count - 1),
    };
    let parameter = names.first().cloned().unwrap_or_else(|| "all parameters together".into());
    LearnError::Gradient { parameter, others, learning_rate }
}

fn upload(batch: Batch, device: &Device) -> Activation {
    let data = TensorData::new(batch.images, batch.shape);
    Activation::Map(Tensor::from_data(data, device)) // [batch, channels, height, width]
}

/// Values and mask, `[images, width]`.
fn upload_targets(targets: &Targets, device: &Device) -> (Tensor<2>, Tensor<2>) {
    let shape = [targets.values.len() / targets.width, targets.width];
    let upload =
        |numbers: &[f32]| Tensor::from_data(TensorData::new(numbers.to_vec(), shape), device);
    (upload(&targets.values), upload(&targets.mask))
}
