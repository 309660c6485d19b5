//! Training steps that are measured: on one batch that stays on the device, where the step itself
//! is asked about, or on the configuration's own data.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use burn::tensor::{Device, Tensor, TensorData};
use rayon::prelude::*;

use super::open_data::{open_data, train_loader};
use super::{BuildError, devices, machine, meter, schedule, trainer};
use crate::data::{Batch, Cache, DataError, Epoch, LabelCounts, Loader, Targets};
use crate::memory::measure::{MemoryUse, Meter};
use crate::memory::split_tensors;
use crate::model::weights::{self, Initial, NamedTensor};
use crate::model::{HeadConfig, Task};
use crate::optim::Schedule;
use crate::plan::{Plan, Planner, StepEstimate};
use crate::run::{Backoff, BegunStep, RunError, Trainer};
use crate::train::{HeadLoss, Images, TrainError};

/// Training steps of a plan's model.
pub struct Bench {
    pub(super) meter: Meter,
    /// The model and what changes it.
    pub trainer: Trainer,
    /// What was taken from the weights that the plan starts from.
    pub initial: Option<Initial>,
    batches: Batches,
    steps: usize,
    /// The last step and its batch, where that has not ended.
    under_way: Option<(BegunStep, Option<Batch>)>,
}

/// What the steps are taken on.
enum Batches {
    Kept { images: Vec<Tensor<4>>, shape: [usize; 4], targets: Vec<Targets>, learning_rate: f64 },
    Loaded { loader: Loader, epoch: u64, ahead: Epoch, schedule: Schedule },
}

/// A step that was taken.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Taken {
    /// Its images.
    pub images: usize,
    /// Whether that is as many as a step takes; the last batch of an epoch may have fewer.
    pub is_full: bool,
    /// The heads' mean losses, each times its head's weight, before the step.
    pub loss: f64,
}

impl Bench {
    /// Opens the plan's device and puts weights and a batch on it; the data are not opened.
    ///
    /// # Errors
    /// When the device cannot be opened, or the weights to start from not be read.
    pub fn new(plan: &Plan) -> Result<Self, BuildError> {
        let devices = devices(plan)?;
        let meter = meter(&devices[0]);
        Self::on(plan, devices, meter)
    }

    /// The same on a device that is open, measured by a meter that is.
    ///
    /// # Errors
    /// When no way to take a step fits, or there is nowhere to offload to.
    pub(super) fn on(plan: &Plan, devices: Vec<Device>, meter: Meter) -> Result<Self, BuildError> {
        // Before the batch is made: it may be what does not fit.
        let planner = planner(plan, &devices[0], plan.batch_on_gpu())?;
        let image = &plan.data.image;
        let shape = [plan.train.batch_size, image.channels, image.size[0], image.size[1]];
        // On all threads: the time to the first step is measured too.
        let wave = |pixel: usize| ((pixel as f64 * 0.37).sin() * 0.5 + 0.5) as f32;
        let count: usize = shape.iter().product();
        let values: Vec<f32> = (0..count).into_par_iter().map(wave).collect();
        let data = TensorData::new(values, shape);
        // In memory of their own: the pages that steps lie in are as large as their largest buffer.
        let upload = |device: &Device| {
            let data = data.clone();
            device.memory_persistent_allocations(data, |data| Tensor::from_data(data, device))
        };
        let images = devices.iter().map(upload).collect();
        let targets = plan.heads.iter().map(|head| targets(head, shape[0])).collect();
        let counts = |head: usize| {
            let labels = plan.heads[head].labels.len();
            LabelCounts { positives: vec![1.0; labels], negatives: vec![1.0; labels] }
        };
        let (trainer, initial) = trainer(planner, devices, 0, counts, true)?;
        let learning_rate = plan.train.optimizer.lr();
        let batches = Batches::Kept { images, shape, targets, learning_rate };
        Ok(Self { meter, trainer, initial, batches, steps: 0, under_way: None })
    }

    /// Takes the tensor `images` in the SafeTensors file `path`, `[batch, channels, height, width]`,
    /// for the batch.
    ///
    /// # Errors
    /// When the file cannot be read or has no such tensor of the plan's shape.
    pub fn take_images(&mut self, path: &Path) -> Result<(), BuildError> {
        let Batches::Kept { images, shape, .. } = &mut self.batches else {
            unreachable!("only a batch that stays is replaced")
        };
        let fits = |tensor: &NamedTensor| tensor.name == "images" && tensor.shape == *shape;
        let found = weights::read(path)?.tensors.into_iter().find(fits);
        let Some(NamedTensor { data, .. }) = found else {
            return Err(BuildError::OtherImages { path: path.to_owned(), shape: *shape });
        };
        let data = TensorData::new(data, *shape);
        for images in images {
            *images = Tensor::from_data(data.clone(), &images.device());
        }
        Ok(())
    }

    /// The gradients of a step as the optimizer is given them (but unclipped), by parameter, and the
    /// sum of the heads' losses. No weight is changed.
    ///
    /// # Errors
    /// As [`Bench::step`].
    pub fn gradients(mut self) -> Result<(Vec<NamedTensor>, f64), RunError> {
        let (checked, _) = self.on_batch(1, Trainer::gradients)?;
        let copy = self.trainer.copy();
        let parts = checked.into_iter().zip(copy).map(|(one, _)| one.into_parts());
        let parts: Result<Vec<_>, _> = parts.collect();
        let parts = parts.map_err(|source| self.failed(0, source))?;
        let loss = self.loss(&parts[0].1);
        let read = |(name, gradient): (&String, &Tensor<1>)| {
            Ok((name.to_owned(), gradient.clone().try_into_data().map_err(TrainError::from)?))
        };
        let all = parts.iter().flat_map(|(gradients, _)| gradients.iter());
        let read: Result<Vec<_>, TrainError> = all.map(read).collect();
        let read = read.map_err(|source| self.failed(0, source))?;
        let buckets = copy.iter().flat_map(|rank| rank.replica.inference.chain.buckets());
        let members: Vec<_> = buckets.map(|bucket| bucket.members).collect();
        let mut read: BTreeMap<String, TensorData> =
            split_tensors(&members, read).into_iter().collect();
        let named = self.trainer.parameters().into_iter().filter_map(|parameter| {
            let gradient = read.remove(&parameter.name)?;
            let (name, shape) = (parameter.name, parameter.shape);
            Some(NamedTensor { name, shape, data: gradient.iter::<f32>().collect() })
        });
        Ok((named.collect(), loss))
    }

    /// Opens the plan's device and data: the steps will be those that a run begins with.
    ///
    /// # Errors
    /// When device or data cannot be opened.
    pub fn on_data(plan: &Plan) -> Result<Self, BuildError> {
        let devices = devices(plan)?;
        let train = Arc::new(open_data(plan)?.train);
        let cache = Arc::new(Cache::open(&plan.data.cache.0, &plan.data.image)?);
        let loader = train_loader(plan, Arc::clone(&train), cache)?;
        let meter = meter(&devices[0]);
        let planner = planner(&plan.limited_to(train.len()), &devices[0], 0)?;
        let counts = |head| train.label_counts(head);
        let (mut trainer, initial) = trainer(planner, devices, 0, counts, true)?;
        trainer.fit_standardizers(&train);
        let schedule = schedule(plan, loader.batches_per_epoch());
        // A run counts its epochs from 1.
        let ahead = loader.epoch(1, 0);
        let batches = Batches::Loaded { loader, epoch: 1, ahead, schedule };
        Ok(Self { meter, trainer, initial, batches, steps: 0, under_way: None })
    }

    /// Where memory has not sufficed since this was last asked.
    pub fn backoffs(&mut self) -> Vec<Backoff> {
        std::mem::take(&mut self.trainer.backoffs)
    }

    /// Takes a step. Where the loss is scaled by too much at first, steps are tried until one is taken.
    ///
    /// # Errors
    /// When an image cannot be read, a loss or gradient is not finite, or the device fails.
    pub fn step(&mut self) -> Result<Taken, RunError> {
        self.step_with(1)
    }

    /// Takes a step on the next batch of at least so many images.
    fn step_with(&mut self, least: usize) -> Result<Taken, RunError> {
        self.end_last()?;
        self.begin(least)?;
        Ok(self.end_last()?.expect("a step has begun"))
    }

    /// Begins a step while the one before it may not have ended, as a run does, and ends that one: on a GPU alone the
    /// first call returns none. Elsewhere it is [`Bench::step`].
    ///
    /// # Errors
    /// As there.
    pub fn step_ahead(&mut self) -> Result<Option<Taken>, RunError> {
        let ended = self.begin(1)?;
        if self.trainer.runs_ahead() { Ok(ended) } else { self.end_last() }
    }

    /// Ends the last step, where that has not ended.
    ///
    /// # Errors
    /// As [`Bench::step`].
    pub fn end_last(&mut self) -> Result<Option<Taken>, RunError> {
        self.under_way.take().map(|(begun, batch)| self.end(begun, batch)).transpose()
    }

    /// Begins a step on the next batch of at least so many images, and ends the one before it.
    fn begin(&mut self, least: usize) -> Result<Option<Taken>, RunError> {
        let before = self.under_way.take();
        let begun = self.on_batch(least, |trainer, images, targets, step, rate| {
            let before = before.as_ref().map(|(begun, _)| begun);
            trainer.begin_step(images, targets, step, rate, before)
        });
        let ended = before.map(|(begun, batch)| self.end(begun, batch)).transpose()?;
        self.under_way = Some(begun?);
        self.steps += 1;
        Ok(ended)
    }

    /// Ends a step on this batch, or on that which stays on the device.
    fn end(&mut self, begun: BegunStep, batch: Option<Batch>) -> Result<Taken, RunError> {
        let number = begun.number;
        let (images, targets) = match (&self.batches, &batch) {
            (_, Some(batch)) => (Images::from(batch), &batch.targets),
            (Batches::Kept { images, targets, .. }, None) => (Images::Devices(images), targets),
            (Batches::Loaded { .. }, None) => unreachable!("a batch was loaded"),
        };
        let count = images.count();
        let losses = self.trainer.end_step(begun, images, targets);
        let losses = losses.map_err(|source| self.failed(number, source))?;
        Ok(Taken { images: count, is_full: count == self.full(), loss: self.loss(&losses) })
    }

    /// What `work` gives for the next batch of at least so many images, and that batch where it was loaded: for the
    /// next one on which nothing overflows.
    fn on_batch<T>(
        &mut self,
        least: usize,
        work: impl Fn(&mut Trainer, Images<'_>, &[Targets], usize, f64) -> Result<T, TrainError>,
    ) -> Result<(T, Option<Batch>), RunError> {
        let Self { trainer, steps: step, .. } = self;
        let (done, batch) = loop {
            let (done, batch) = match &mut self.batches {
                Batches::Kept { images, targets, learning_rate, .. } => {
                    (work(trainer, Images::Devices(images), targets, *step, *learning_rate), None)
                }
                Batches::Loaded { loader, epoch, ahead, schedule } => {
                    let batch = next(loader, epoch, ahead, least)?;
                    let (images, rate) = (Images::from(&batch), schedule.lr(*step));
                    (work(trainer, images, &batch.targets, *step, rate), Some(batch))
                }
            };
            if !matches!(done, Err(TrainError::Skipped { .. })) {
                break (done, batch);
            }
        };
        Ok((done.map_err(|source| self.failed(self.steps, source))?, batch))
    }

    /// The error of step number `step`, from 0.
    fn failed(&self, step: usize, source: TrainError) -> RunError {
        RunError::Step { epoch: self.epoch(), step: step + 1, source }
    }

    /// The heads' mean losses, each times its head's weight.
    fn loss(&self, losses: &[HeadLoss]) -> f64 {
        let heads = self.trainer.first().replica.inference.heads.iter();
        let known = losses.iter().zip(heads);
        known.filter_map(|(loss, head)| Some(loss.mean()? * head.config.weight)).sum()
    }

    /// The images of a full batch.
    fn full(&self) -> usize {
        match &self.batches {
            Batches::Kept { shape, .. } => shape[0],
            Batches::Loaded { loader, .. } => loader.full_batch(),
        }
    }

    /// The epoch under way, counted from 1.
    fn epoch(&self) -> usize {
        match &self.batches {
            Batches::Kept { .. } => 1,
            Batches::Loaded { epoch, .. } => *epoch as usize,
        }
    }

    /// Evaluates the batch that stays on the device.
    ///
    /// # Errors
    /// When the device fails.
    pub fn evaluate(&mut self) -> Result<(), TrainError> {
        match &self.batches {
            Batches::Kept { images, targets, .. } => {
                self.trainer.evaluate(Images::Devices(images), targets).map(drop)
            }
            Batches::Loaded { .. } => Ok(()),
        }
    }

    /// Waits until the device has done everything.
    pub fn wait(&self) {
        for rank in &self.trainer.ranks {
            let _ = rank.replica.inference.device().sync();
        }
    }

    /// What was predicted for a step of `plan`, whose this is: on GPUs of a pipeline, the peak of the first.
    pub fn estimate(&self, plan: &Plan) -> StepEstimate {
        let planner = &self.trainer.planner;
        let mut estimate = planner.estimate().clone();
        let on_gpu = crate::ops::is_gpu(self.trainer.first().replica.inference.device());
        if on_gpu {
            // What is measured is the first device, which need not be the fullest of a pipeline.
            if let Some(first) = estimate.devices.first() {
                estimate.peak = first.peak;
            }
            // No batch is copied ahead.
            let at_once = planner.settings().micro_batch.min(plan.device_batch());
            estimate.peak -= plan.ahead_on_gpu(planner.settings().precision, at_once);
            // It lies on every device.
            if matches!(self.batches, Batches::Kept { .. }) {
                estimate.peak += plan.batch_on_gpu();
            }
        }
        estimate
    }

    /// Bytes that this process was estimated to hold of a GPU: the memory of its steps and the batch that stays
    /// there, without the context; `None` where nothing is known.
    pub fn predicted_held(&self, plan: &Plan) -> Option<u64> {
        let kept = match self.batches {
            Batches::Kept { .. } => plan.batch_on_gpu(),
            Batches::Loaded { .. } => 0,
        };
        Some(self.trainer.planner.held()?.bytes() + kept)
    }

    /// What memory the steps so far have left in use, with the exact peak of a further one, which is on
    /// a full batch where there is one.
    pub fn memory(&mut self) -> MemoryUse {
        // A step that fails is told by the one below.
        let _ = self.end_last();
        let live = self.meter.read().live;
        self.meter.reset_peak();
        let meter = self.meter.clone();
        let full = self.full();
        if meter.watch(|| self.step_with(full)).is_err() {
            let _ = meter.watch(|| self.step());
        }
        MemoryUse { live, ..meter.read() }
    }

    /// The device as a person knows it.
    pub fn device(&self) -> String {
        super::describe(self.trainer.first().replica.inference.device())
    }
}

/// How the plan's steps are taken on `device`, on which a batch of so many bytes stays.
fn planner(plan: &Plan, device: &Device, kept: u64) -> Result<Planner, BuildError> {
    let machine = machine::machine(&plan.devices, device);
    // Of the CPU the estimate counts it.
    let kept = if machine.cuda { kept } else { 0 };
    let planner = Planner::choose_beside(plan, machine, kept);
    Ok(planner.map_err(|error| machine::with_holders(error, plan))?)
}

/// The next batch that can be trained on and has at least so many images, epoch after epoch.
fn next(
    loader: &Loader,
    epoch: &mut u64,
    ahead: &mut Epoch,
    least: usize,
) -> Result<Batch, DataError> {
    let least = least.max(if loader.avoids_single() { 2 } else { 1 });
    let mut tried = false;
    loop {
        match ahead.next().transpose()? {
            Some(batch) if batch.indices.len() >= least => return Ok(batch),
            Some(_) => {}
            None if !tried => {
                tried = true;
                *epoch += 1;
                *ahead = loader.epoch(*epoch, 0);
            }
            None => {
                let (images, batch) = (loader.dataset().len(), least);
                return Err(DataError::NoBatch { images, batch });
            }
        }
    }
}

fn targets(head: &HeadConfig, images: usize) -> Targets {
    let width = match head.task {
        Task::Multiclass => 1,
        _ => head.outputs(),
    };
    let count = images * width;
    let values = (0..count).map(|place| f32::from(u8::from(place % 3 == 0))).collect();
    Targets { values, mask: vec![1.0; count], width }
}
