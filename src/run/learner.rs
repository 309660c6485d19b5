//! The model and what changes it: one training step, one evaluation.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use burn::tensor::{Device, ExecutionError, Tensor, TensorData};

use crate::data::{Batch, Dataset, Standardizer, Targets};
use crate::loss::Loss;
use crate::memory::executor::StepKey;
use crate::memory::offload::{OffloadError, Store};
use crate::memory::{
    Activation, Chain, Gradients, OutOfMemory, Pack, Precision, Statistics, Strategy,
    check_allocated, executor, fault, measure, statistics,
};
use crate::model::HeadConfig;
use crate::optim::{Ema, GradientNorm, LossScale, OptimError, Optimizer, Update, decays, norm};
use crate::plan::Planner;
use crate::run::retreat::Retreat;
use crate::run::tally::HeadSum;
use crate::screen::counted;

/// A head with its loss.
pub struct LearnedHead {
    /// Its configuration.
    pub config: HeadConfig,
    /// Its loss.
    pub loss: Box<dyn Loss>,
    /// How its numbers are standardised to be learnt, where they are.
    pub standardizer: Option<Standardizer>,
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
    /// How steps are taken.
    pub strategy: Strategy,
    /// What has chosen that, and does where memory does not suffice.
    pub planner: Planner,
    /// Where what they move off the device waits.
    pub store: Store,
    /// What activations, weights and products are held in.
    pub precision: Precision,
    /// The scale of the loss, where the precision asks for one.
    pub loss_scale: Option<LossScale>,
    /// The run's seed.
    pub seed: u64,
    /// Where memory has not sufficed since somebody asked.
    pub retreats: Vec<Retreat>,
}

/// A step before anything has changed.
struct Attempt {
    gradients: Gradients,
    /// What they are multiplied by.
    factor: f64,
    statistics: Statistics,
    sums: Vec<HeadSum>,
}

/// What of a step is not finite in fp16.
struct Overflow(String);

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
    /// The step was left out, and the loss is scaled by less from now on; nothing else has changed.
    #[error("{what} is not finite in fp16; the loss is scaled by {scale} from now on")]
    Skipped {
        /// What is not finite.
        what: String,
        /// The new scale.
        scale: f64,
    },
    /// Step after step was left out, until there was nothing left of the scale of the loss.
    #[error(
        "{what} is not finite in fp16, however little the loss is scaled: {skipped} steps of this run \
         were left out\nNumbers above 65504 do not fit in fp16. Write `precision = \"bf16\"` under \
         [memory], or lower the learning rate (it was {learning_rate:e})."
    )]
    Unscalable {
        /// What is not finite.
        what: String,
        /// Steps left out since the run began.
        skipped: u64,
        /// The learning rate of the step.
        learning_rate: f64,
    },
    /// The gradient norm could not be computed.
    #[error(transparent)]
    Optim(#[from] OptimError),
    /// Memory does not suffice for the fewest images that may be taken at once.
    #[error("{out_of_memory}, with {} at a time\n{advice}", images(*at_once))]
    OutOfMemory {
        /// The images.
        at_once: usize,
        /// What the device says.
        out_of_memory: OutOfMemory,
        /// What would fit.
        advice: String,
    },
    /// What is kept for the backward pass could not be moved off the device.
    #[error(transparent)]
    Offload(#[from] OffloadError),
    /// The device failed.
    #[error("the device failed: {0:?}")]
    Device(#[from] ExecutionError),
}

fn images(count: usize) -> String {
    counted(count, "image", "images")
}

impl Learner {
    /// Lets the heads that ask for it learn numbers standardised by those of `train`. Returns what is
    /// to be said of labels whose numbers do not differ.
    pub fn standardize(&mut self, train: &Dataset) -> Vec<String> {
        let mut notes = Vec::new();
        for (place, head) in self.heads.iter_mut().enumerate() {
            if !head.config.standardize {
                continue;
            }
            let (standardizer, constant) = train.standardizer(place);
            notes.extend(constant.into_iter().map(|label| {
                format!(
                    "the label `{}` of the head `{}` is {} in every training image that has it, so \
                     `standardize` only subtracts that",
                    head.config.labels[label], head.config.name, standardizer.mean[label] as f32
                )
            }));
            head.standardizer = Some(standardizer);
        }
        notes
    }

    /// The targets as they are learnt.
    fn learnt<'a>(&self, targets: &'a [Targets]) -> Cow<'a, [Targets]> {
        if self.heads.iter().all(|head| head.standardizer.is_none()) {
            return Cow::Borrowed(targets);
        }
        let learnt = |(head, targets): (&LearnedHead, &Targets)| match &head.standardizer {
            Some(standardizer) => standardizer.apply(targets),
            None => targets.clone(),
        };
        self.heads.iter().zip(targets).map(learnt).collect()
    }

    /// Takes optimizer step number `step` (from 0) with the images of `batch`, and returns each
    /// head's loss. On an error nothing has changed, but for the scale of the loss where it says so.
    ///
    /// # Errors
    /// When a loss or a gradient is not finite, or the device fails.
    pub fn step(
        &mut self,
        batch: Batch,
        step: usize,
        learning_rate: f64,
    ) -> Result<Vec<HeadSum>, LearnError> {
        let Batch { images, shape, targets, .. } = batch;
        let images = HostImages { images, shape };
        let device = self.device.clone();
        self.take(shape[0], |part| images.upload(part, &device), &targets, step, learning_rate)
    }

    /// As [`Learner::step`], with images that are on the device already,
    /// `[images, channels, height, width]`.
    ///
    /// # Errors
    /// As there.
    pub fn step_on(
        &mut self,
        images: Tensor<4>,
        targets: &[Targets],
        step: usize,
        learning_rate: f64,
    ) -> Result<Vec<HeadSum>, LearnError> {
        let count = images.dims()[0];
        self.take(count, |part| slice(&images, part), targets, step, learning_rate)
    }

    /// Takes a step with `count` images, of which `images` gives a part.
    fn take(
        &mut self,
        count: usize,
        images: impl Fn(Range<usize>) -> Tensor<4>,
        targets: &[Targets],
        step: usize,
        learning_rate: f64,
    ) -> Result<Vec<HeadSum>, LearnError> {
        let targets = self.learnt(targets);
        let attempt = self.within_memory(count, |learner| {
            learner.attempt(count, &images, &targets, step, learning_rate)
        })?;
        let attempt = self.scaled(attempt, learning_rate)?;
        measure::begin("step", || "optimizer".to_owned());
        self.update(attempt.gradients, attempt.factor, learning_rate)?;
        self.chain.move_statistics(&attempt.statistics);
        measure::end();
        Ok(attempt.sums)
    }

    /// Lets the scale of the loss take note of a step that is taken, or left out because something
    /// overflows.
    fn scaled(
        &mut self,
        attempt: Result<Attempt, Overflow>,
        learning_rate: f64,
    ) -> Result<Attempt, LearnError> {
        if let Some(loss_scale) = &mut self.loss_scale {
            loss_scale.observe(attempt.is_ok());
        }
        attempt.map_err(|Overflow(what)| {
            let loss_scale = self.loss_scale.unwrap_or_default();
            let (scale, skipped) = (loss_scale.scale(), loss_scale.skipped());
            match loss_scale.is_spent() {
                true => LearnError::Unscalable { what, skipped, learning_rate },
                false => LearnError::Skipped { what, scale },
            }
        })
    }

    /// All of a step but the change of weights and statistics.
    fn attempt(
        &self,
        count: usize,
        images: impl Fn(Range<usize>) -> Tensor<4>,
        targets: &[Targets],
        step: usize,
        learning_rate: f64,
    ) -> Result<Result<Attempt, Overflow>, LearnError> {
        let parts = self.strategy.parts(count);
        let normalizers = self.normalizers(targets);
        let mut sums = vec![None; self.heads.len()];
        let numbers = self.precision.activations();
        let first_images: Vec<u64> = parts.iter().map(|part| part.start as u64).collect();
        let key =
            StepKey { seed: self.seed, step: step as u64, first_images: first_images.as_slice() };
        let result = executor::train_with(
            &self.store,
            &self.chain,
            &self.strategy.schedule(parts.len()),
            key,
            |micro| Activation::Map(images(parts[micro].clone()).cast(numbers)),
            |micro, outputs| {
                let part = |targets: &Targets| targets.part(parts[micro].clone());
                let targets: Vec<Targets> = targets.iter().map(part).collect();
                let each = self.losses(outputs.into_outputs(), &targets, &normalizers);
                let (gradients, of_part): (Vec<_>, Vec<_>) = each.into_iter().unzip();
                add(&mut sums, of_part);
                Activation::Outputs(gradients)
            },
        )?;
        let statistics = result.statistics.into_iter().zip(&parts);
        let statistics = statistics.map(|(found, part)| (found, part.len())).collect();
        let statistics = statistics::combine(statistics, self.strategy.batch_norm);
        // Waits for the device, and the losses after it no more.
        let size = norm(&result.gradients)?;
        let sums = read(sums, &normalizers)?;
        if self.loss_scale.is_some()
            && let Some(overflow) = self.overflow(&sums, &size, &statistics)?
        {
            return Ok(Err(overflow));
        }
        if let Some(index) = sums.iter().position(|sum| !sum.sum.is_finite()) {
            let head = self.heads[index].config.name.clone();
            return Err(LearnError::Loss { head, learning_rate });
        }
        if !size.is_finite() {
            let names = self.names_of(&size.non_finite, &result.gradients)?;
            return Err(non_finite(&names, learning_rate));
        }
        // A failed allocation shows where something is read, and statistics are not.
        let read = statistics.values().map(|(value, _)| value.clone());
        check_allocated(read).unwrap_or_else(|out_of_memory| out_of_memory.throw());
        // The step itself takes little beside what has been freed by now.
        fault::check();
        let size = size.divided(self.scale());
        let factor = self.clip_norm.map_or(1.0, |most| size.factor(most)) / self.scale();
        Ok(Ok(Attempt { gradients: result.gradients, factor, statistics, sums }))
    }

    /// What the loss is multiplied by.
    fn scale(&self) -> f64 {
        self.loss_scale.map_or(1.0, |scale| scale.scale())
    }

    /// What of a step is not finite.
    fn overflow(
        &self,
        sums: &[HeadSum],
        size: &GradientNorm,
        statistics: &Statistics,
    ) -> Result<Option<Overflow>, LearnError> {
        if let Some(head) = sums.iter().position(|sum| !sum.sum.is_finite()) {
            let name = &self.heads[head].config.name;
            return Ok(Some(Overflow(format!("the loss of head `{name}`"))));
        }
        if !size.is_finite() {
            return Ok(Some(Overflow("the gradient".to_owned())));
        }
        // A map that overflows may leave loss and gradients finite: of NaN, ReLU can make 0.
        let mut moving = Gradients::default();
        statistics.iter().for_each(|(key, (value, _))| moving.add(key, value.clone()));
        let finite = norm(&moving)?.is_finite();
        Ok((!finite).then(|| Overflow("the mean or variance of a map".to_owned())))
    }

    /// Changes the weights by these gradients times a factor.
    fn update(
        &mut self,
        gradients: Gradients,
        factor: f64,
        learning_rate: f64,
    ) -> Result<(), OptimError> {
        let Self { chain, optimizer, ema, decay_norms_and_biases, .. } = self;
        let packs = chain.packs();
        let decay = |pack: &Pack| *decay_norms_and_biases || decays(pack.rank());
        let decaying: BTreeMap<String, bool> =
            packs.iter().map(|pack| (pack.key().to_owned(), decay(pack))).collect();
        let update = |name: &str, value: Tensor<1>| {
            let gradient = gradients.get(name)?.clone();
            Some(Update { name: name.to_owned(), decay: decaying[name], value, gradient })
        };
        // One after the other where the states come and go.
        let together = packs.into_iter().filter(|_| !optimizer.waits_away());
        let updates = together.filter_map(|pack| update(pack.key(), pack.value.clone())).collect();
        let mut stepped = optimizer.step_together(learning_rate, factor, updates);
        let mut failed = Ok(());
        chain.map_packs(|name, value| {
            let Some(gradient) = gradients.get(name) else { return value };
            if failed.is_ok() {
                failed = optimizer.fetch(name);
            }
            if failed.is_err() {
                return value;
            }
            if optimizer.waits_away() {
                let alone = update(name, value.clone()).into_iter().collect();
                stepped = optimizer.step_together(learning_rate, factor, alone);
            }
            let value = match stepped.remove(name) {
                Some(stepped) => stepped,
                None => {
                    let gradient = gradient.clone();
                    let gradient =
                        if factor == 1.0 { gradient } else { gradient.mul_scalar(factor) };
                    optimizer.step(name, learning_rate, decaying[name], value, gradient)
                }
            };
            failed = optimizer.park(name);
            if let Some(ema) = ema {
                ema.update(name, value.clone());
            }
            value
        });
        failed
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

    /// For each head, the gradient of the weighted sum of the heads' mean losses, scaled where losses
    /// are, with respect to its outputs for a part of a batch, and the part's share of its loss. A head
    /// without a known label in the whole batch, whose `normalizers` these are, has a gradient of 0.
    fn losses(
        &self,
        outputs: Vec<Tensor<2>>,
        targets: &[Targets],
        normalizers: &[f64],
    ) -> Vec<(Tensor<2>, Option<Tensor<1>>)> {
        let each = self.heads.iter().zip(outputs).zip(targets).zip(normalizers);
        each.map(|(((head, output), targets), &normalizer)| {
            if normalizer == 0.0 {
                return (output.zeros_like(), None);
            }
            let leaf = output.autodiff().require_grad();
            let (values, mask) = upload_targets(targets, &self.device);
            let sum = head.loss.sum(leaf.clone(), values, mask);
            let share = self.scale() * head.config.weight / normalizer;
            let mut gradients = sum.clone().mul_scalar(share).backward();
            let gradient = leaf.grad_remove(&mut gradients);
            let gradient = gradient.unwrap_or_else(|| leaf.without_autodiff().zeros_like());
            (gradient, Some(sum.without_autodiff()))
        })
        .collect()
    }

    /// Each head's outputs for the images of `batch`, row by row and in the labels' own units, and its
    /// loss; with running statistics and without dropout.
    ///
    /// # Errors
    /// When the device fails.
    pub fn evaluate(&mut self, batch: Batch) -> Result<(Vec<Vec<f32>>, Vec<HeadSum>), LearnError> {
        let Batch { images, shape, targets, .. } = batch;
        let images = HostImages { images, shape };
        let device = self.device.clone();
        self.predict(shape[0], |part| images.upload(part, &device), &targets)
    }

    /// As [`Learner::evaluate`], with images that are on the device already,
    /// `[images, channels, height, width]`.
    ///
    /// # Errors
    /// As there.
    pub fn evaluate_on(
        &mut self,
        images: Tensor<4>,
        targets: &[Targets],
    ) -> Result<(Vec<Vec<f32>>, Vec<HeadSum>), LearnError> {
        self.predict(images.dims()[0], |part| slice(&images, part), targets)
    }

    fn predict(
        &mut self,
        count: usize,
        images: impl Fn(Range<usize>) -> Tensor<4>,
        targets: &[Targets],
    ) -> Result<(Vec<Vec<f32>>, Vec<HeadSum>), LearnError> {
        let targets = self.learnt(targets);
        let (mut rows, sums) =
            self.within_memory(count, |learner| learner.predict_parts(count, &images, &targets))?;
        for (head, rows) in self.heads.iter().zip(&mut rows) {
            if let Some(standardizer) = &head.standardizer {
                standardizer.undo(rows);
            }
        }
        Ok((rows, sums))
    }

    fn predict_parts(
        &self,
        count: usize,
        images: impl Fn(Range<usize>) -> Tensor<4>,
        targets: &[Targets],
    ) -> Result<(Vec<Vec<f32>>, Vec<HeadSum>), LearnError> {
        let normalizers = self.normalizers(targets);
        let mut sums = vec![None; self.heads.len()];
        let mut rows = vec![Vec::new(); self.heads.len()];
        for part in self.strategy.parts(count) {
            let input = Activation::Map(images(part.clone()).cast(self.precision.activations()));
            let outputs = executor::evaluate(&self.chain, input).into_outputs();
            let heads = self.heads.iter().zip(&outputs).zip(targets).zip(&normalizers);
            let of_part = heads.map(|(((head, output), targets), &normalizer)| {
                (normalizer > 0.0).then(|| {
                    let (values, mask) = upload_targets(&targets.part(part.clone()), &self.device);
                    head.loss.sum(output.clone(), values, mask)
                })
            });
            add(&mut sums, of_part.collect());
            for (rows, output) in rows.iter_mut().zip(outputs) {
                rows.extend(output.try_into_data()?.iter::<f32>());
            }
        }
        Ok((rows, read(sums, &normalizers)?))
    }

    /// What each head's loss over these images is divided by.
    fn normalizers(&self, targets: &[Targets]) -> Vec<f64> {
        let heads = self.heads.iter().zip(targets);
        heads.map(|(head, targets)| head.loss.normalizer(targets)).collect()
    }

    /// Exchanges the weights and their average, when there is one; done twice, nothing has changed.
    pub fn swap_average(&mut self) {
        let Some(ema) = &mut self.ema else { return };
        self.chain.map_packs(|name, value| ema.exchange(name, value));
    }
}

/// Adds each head's loss of one more part of a batch, `None` without a known label.
fn add(sums: &mut [Option<Tensor<1>>], part: Vec<Option<Tensor<1>>>) {
    for (sum, more) in sums.iter_mut().zip(part) {
        *sum = match (sum.take(), more) {
            (Some(sum), Some(more)) => Some(sum + more),
            (sum, more) => sum.or(more),
        };
    }
}

/// Each head's loss, read from the device.
fn read(sums: Vec<Option<Tensor<1>>>, normalizers: &[f64]) -> Result<Vec<HeadSum>, ExecutionError> {
    let read = |(sum, &normalizer): (Option<Tensor<1>>, &f64)| match sum {
        Some(sum) => Ok(HeadSum { sum: sum.try_into_data()?.iter::<f64>().sum(), normalizer }),
        None => Ok(HeadSum::default()),
    };
    sums.into_iter().zip(normalizers).map(read).collect()
}

fn non_finite(names: &[String], learning_rate: f64) -> LearnError {
    let others = match names.len() {
        0 | 1 => String::new(),
        count => format!(" (and of {} more)", count - 1),
    };
    let parameter = names.first().cloned().unwrap_or_else(|| "all parameters together".into());
    LearnError::Gradient { parameter, others, learning_rate }
}

/// A batch's images in host memory.
struct HostImages {
    images: Vec<f32>,
    shape: [usize; 4],
}

impl HostImages {
    /// Some of them on the device, `[images, channels, height, width]`.
    fn upload(&self, part: Range<usize>, device: &Device) -> Tensor<4> {
        let [_, channels, height, width] = self.shape;
        let size = channels * height * width;
        let values = self.images[part.start * size..part.end * size].to_vec();
        Tensor::from_data(TensorData::new(values, [part.len(), channels, height, width]), device)
    }
}

/// Some of the images.
fn slice(images: &Tensor<4>, part: Range<usize>) -> Tensor<4> {
    match part.len() == images.dims()[0] {
        true => images.clone(),
        false => images.clone().narrow(0, part.start, part.len()),
    }
}

/// Values and mask, `[images, width]`.
fn upload_targets(targets: &Targets, device: &Device) -> (Tensor<2>, Tensor<2>) {
    let shape = [targets.values.len() / targets.width, targets.width];
    let upload =
        |numbers: &[f32]| Tensor::from_data(TensorData::new(numbers.to_vec(), shape), device);
    (upload(&targets.values), upload(&targets.mask))
}
