//! A model and its training step without data: what is measured when the step itself is.

use burn::tensor::{Tensor, TensorData};

use super::{BuildError, learner, resolve_device};
use crate::data::{LabelCounts, Targets};
use crate::memory::Chain;
use crate::memory::measure::{MemoryUse, Meter};
use crate::model::{HeadConfig, Task};
use crate::plan::Plan;
use crate::run::{LearnError, Learner};

/// Training steps of a plan's model on one batch that stays on the device.
pub struct Bench {
    meter: Meter,
    learner: Learner,
    images: Tensor<4>,
    targets: Vec<Targets>,
    learning_rate: f64,
    steps: usize,
}

impl Bench {
    /// Opens the plan's device and puts weights and a batch on it; the data are not opened.
    ///
    /// # Errors
    /// When the device cannot be opened.
    pub fn new(plan: &Plan) -> Result<Self, BuildError> {
        let device = resolve_device(&plan.device.to_string())?;
        let meter = Meter::open(&device);
        let heads: Vec<HeadConfig> = plan.heads.iter().map(|head| head.to_config()).collect();
        let image = &plan.data.image;
        let shape = [plan.train.batch_size, image.channels, image.size[0], image.size[1]];
        let wave = |pixel: usize| ((pixel as f64 * 0.37).sin() * 0.5 + 0.5) as f32;
        let values: Vec<f32> = (0..shape.iter().product()).map(wave).collect();
        let images = Tensor::from_data(TensorData::new(values, shape), &device);
        let targets = heads.iter().map(|head| targets(head, shape[0])).collect();
        let counts = |head: usize| {
            let labels = heads[head].labels.len();
            LabelCounts { positives: vec![1.0; labels], negatives: vec![1.0; labels] }
        };
        let chain = Chain::init(&plan.stages(), &device, plan.run.seed);
        let learner = learner(plan, &heads, chain, device, counts);
        let learning_rate = plan.train.optimizer.lr();
        Ok(Self { meter, learner, images, targets, learning_rate, steps: 0 })
    }

    /// Takes a step and returns the sum of the heads' losses. Where the loss is scaled by too much at
    /// first, the step is tried until it is taken.
    ///
    /// # Errors
    /// When a loss or gradient is not finite, or the device fails.
    pub fn step(&mut self) -> Result<f64, LearnError> {
        let sums = loop {
            let (images, rate) = (self.images.clone(), self.learning_rate);
            match self.learner.step_on(images, &self.targets, self.steps, rate) {
                Err(LearnError::Skipped { .. }) => {}
                taken => break taken?,
            }
        };
        self.steps += 1;
        Ok(sums.iter().map(|sum| sum.sum / sum.normalizer.max(1.0)).sum())
    }

    /// Evaluates the batch.
    ///
    /// # Errors
    /// When the device fails.
    pub fn evaluate(&self) -> Result<(), LearnError> {
        self.learner.evaluate_on(self.images.clone(), &self.targets).map(drop)
    }

    /// Waits until the device has done everything.
    pub fn wait(&self) {
        let _ = self.learner.device.sync();
    }

    /// What memory a further step uses, with its exact peak.
    pub fn memory(&mut self) -> MemoryUse {
        self.meter.reset_peak();
        let meter = self.meter.clone();
        let _ = meter.watch(|| self.step());
        meter.read()
    }

    /// The device as a person knows it.
    pub fn device(&self) -> String {
        super::describe(&self.learner.device)
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
