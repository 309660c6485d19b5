//! A model and its training step without data: what is measured when the step itself is.

use std::collections::BTreeMap;
use std::path::Path;

use burn::tensor::{Tensor, TensorData};

use super::{BuildError, chain, learner, resolve_device};
use crate::data::{LabelCounts, Targets};
use crate::memory::{Activation, split_tensors};
use crate::model::weights::{self, NamedTensor};
use crate::model::{HeadConfig, Task};
use crate::optim::{OptimizerConfig, SgdConfig};
use crate::plan::Plan;
use crate::run::{LearnError, Learner};

/// Training steps of a plan's model on one batch that stays on the device.
pub struct Bench {
    /// The model and what changes it.
    pub learner: Learner,
    images: Activation,
    shape: [usize; 4],
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
        let images = Activation::Map(Tensor::from_data(TensorData::new(values, shape), &device));
        let targets = heads.iter().map(|head| targets(head, shape[0])).collect();
        let counts = |head: usize| {
            let labels = heads[head].labels.len();
            LabelCounts { positives: vec![1.0; labels], negatives: vec![1.0; labels] }
        };
        let chain = chain(plan, &heads, &device);
        let learner = learner(plan, &heads, chain, device, counts);
        let learning_rate = plan.train.optimizer.lr();
        Ok(Self { learner, images, shape, targets, learning_rate, steps: 0 })
    }

    /// Starts from the weights in `path`, and returns the names of the heads' that it has not.
    ///
    /// # Errors
    /// When the file cannot be read or is of another model.
    pub fn start_from(&mut self, path: &Path) -> Result<Vec<String>, BuildError> {
        super::start_from(&mut self.learner.chain, path, &self.learner.device)
    }

    /// Takes the tensor `images` in the SafeTensors file `path`, `[batch, channels, height, width]`,
    /// for the batch.
    ///
    /// # Errors
    /// When the file cannot be read or has no such tensor of the plan's shape.
    pub fn take_images(&mut self, path: &Path) -> Result<(), BuildError> {
        let fits = |tensor: &NamedTensor| tensor.name == "images" && tensor.shape == self.shape;
        let found = weights::read(path)?.tensors.into_iter().find(fits);
        let Some(NamedTensor { data, .. }) = found else {
            return Err(BuildError::OtherImages { path: path.to_owned(), shape: self.shape });
        };
        let data = TensorData::new(data, self.shape);
        self.images = Activation::Map(Tensor::from_data(data, &self.learner.device));
        Ok(())
    }

    /// The gradients of a step as the optimizer is given them (but unclipped), by parameter, and the
    /// sum of the heads' losses. No weight is changed.
    ///
    /// # Errors
    /// As [`Bench::step`].
    pub fn gradients(mut self) -> Result<(Vec<NamedTensor>, f64), LearnError> {
        // The momentum of SGD starts as the first gradient.
        let witness = OptimizerConfig::Sgd(SgdConfig { momentum: 1.0, ..SgdConfig::default() });
        let packs = self.learner.chain.packs();
        let trained = packs.iter().filter(|pack| pack.trained);
        let sizes = trained.map(|pack| (pack.key().to_owned(), pack.value.dims()[0]));
        self.learner.optimizer = witness.init(sizes);
        self.learner.clip_norm = None;
        self.learning_rate = 0.0;
        let loss = self.step()?;
        let kept = split_tensors(&packs, self.learner.optimizer.state()?.tensors);
        let mut kept: BTreeMap<String, TensorData> = kept.into_iter().collect();
        let parameters = self.learner.chain.parameters().into_iter();
        let named = parameters.filter_map(|parameter| {
            let gradient = kept.remove(&format!("{}/momentum_buffer", parameter.name))?;
            let (name, shape) = (parameter.name, parameter.shape);
            Some(NamedTensor { name, shape, data: gradient.iter::<f32>().collect() })
        });
        Ok((named.collect(), loss))
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
