//! A model and its training step without data: what is measured when the step itself is.

use burn::tensor::{Tensor, TensorData};

use super::{BuildError, chain, learner, resolve_device};
use crate::data::{LabelCounts, Targets};
use crate::memory::Activation;
use crate::model::{HeadConfig, Task};
use crate::plan::Plan;
use crate::run::{LearnError, Learner};

/// Training steps of a plan's model on one batch that stays on the device.
pub struct Bench {
    learner: Learner,
    images: Activation,
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
        super::warm::compile_kernels(plan, &heads, &device);
        let chain = chain(plan, &heads, &device);
        let learner = learner(plan, &heads, chain, device, counts);
        let learning_rate = plan.train.optimizer.lr();
        Ok(Self { learner, images: Activation::Map(images), targets, learning_rate, steps: 0 })
    }

    /// Takes a step and returns the sum of the heads' losses.
    ///
    /// # Errors
    /// When a loss or gradient is not finite, or the device fails.
    pub fn step(&mut self) -> Result<f64, LearnError> {
        let images = self.images.clone();
        let sums = self.learner.step_on(images, &self.targets, self.steps, self.learning_rate)?;
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

    /// The most bytes in use on the device in a further step; `None` on the CPU.
    pub fn most_bytes(&mut self) -> Option<u64> {
        #[cfg(feature = "cuda")]
        if let Some(gpu) = crate::ops::cuda::Gpu::of(&self.learner.device) {
            return Some(gpu.most_bytes_in(|| {
                let _ = self.step();
            }));
        }
        None
    }

    /// Bytes that the allocator holds on the device; `None` on the CPU.
    pub fn reserved_bytes(&self) -> Option<u64> {
        #[cfg(feature = "cuda")]
        return crate::ops::cuda::Gpu::of(&self.learner.device).map(|gpu| gpu.reserved_bytes());
        #[cfg(not(feature = "cuda"))]
        None
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
