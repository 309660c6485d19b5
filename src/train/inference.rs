//! The model alone: outputs for images.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use burn::tensor::{Device, ExecutionError, Tensor};

use super::ahead::Ahead;
use super::{BatchPart, Images, TrainError};
use crate::data::{Batch, Dataset, Standardizer, Targets};
use crate::memory::{Activation, Chain, Precision, Strategy, catch_out_of_memory, executor};
use crate::model::HeadConfig;
use crate::parallel::{Flow, Link};

/// A head of the model.
#[derive(Debug, Clone)]
pub struct Head {
    /// Its configuration.
    pub config: HeadConfig,
    /// How its numbers are standardised for training, where they are.
    pub standardizer: Option<Standardizer>,
}

/// A model on a device. It needs no optimizer, no losses and no labels.
pub struct Inference {
    /// The network.
    pub chain: Chain,
    /// Its heads, in the order of the configuration.
    pub heads: Vec<Head>,
    device: Device,
    precision: Precision,
    ahead: Ahead,
}

impl Inference {
    /// The model of `chain`, which is on `device` and ends in these heads. Its weights are rounded to
    /// what `precision` holds them in.
    pub fn new(chain: Chain, heads: &[HeadConfig], device: Device, precision: Precision) -> Self {
        let heads = heads.iter().map(|config| Head { config: config.clone(), standardizer: None });
        let chain = chain.cast(precision.parameters());
        let ahead = Ahead::new(&device, precision);
        Self { chain, heads: heads.collect(), device, precision, ahead }
    }

    /// Where it is.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// What activations, weights and products are held in.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Each head's outputs for `images`, `[images, outputs]` row by row, with running statistics and
    /// without dropout: logits, and for `regression` numbers in the labels' own units. At most
    /// `micro_batch` images go through the network at once.
    ///
    /// # Errors
    /// When the device fails.
    pub fn outputs(
        &self,
        images: Images<'_>,
        micro_batch: usize,
    ) -> Result<Vec<Vec<f32>>, ExecutionError> {
        self.outputs_before(images, micro_batch, None)
    }

    /// [`Inference::outputs`] where `next` will be asked for afterwards.
    fn outputs_before(
        &self,
        images: Images<'_>,
        micro_batch: usize,
        next: Option<&BatchPart>,
    ) -> Result<Vec<Vec<f32>>, ExecutionError> {
        let strategy = Strategy::plain(self.chain.stages().len(), micro_batch);
        self.outputs_of_parts(images, &strategy.parts(images.count()), next, None, |_, _| {})
    }

    /// [`Inference::outputs`] with `at_once` images at most, of which there are half as many from then on
    /// whenever memory does not suffice. `next` is the batch that will be asked about afterwards, where it is
    /// known.
    ///
    /// # Errors
    /// When memory does not suffice for one image, or the device fails.
    pub fn outputs_within_memory(
        &self,
        images: Images<'_>,
        at_once: &mut usize,
        next: Option<&Arc<Batch>>,
    ) -> Result<Vec<Vec<f32>>, TrainError> {
        loop {
            let together = (*at_once).clamp(1, images.count().max(1));
            let first = |batch: &Arc<Batch>| {
                Images::from(batch).batch_part(0..batch.shape[0].min(*at_once))
            };
            let next = next.and_then(first);
            match catch_out_of_memory(|| self.outputs_before(images, together, next.as_ref())) {
                Ok(outputs) => return Ok(outputs?),
                Err(out_of_memory) if together == 1 => {
                    let advice = "Only smaller images or another device can help: see \
                                  `data.image.size` and `device.use`."
                        .to_owned();
                    return Err(TrainError::OutOfMemory { at_once: 1, out_of_memory, advice });
                }
                Err(_) => {
                    self.free_memory();
                    *at_once = together / 2;
                }
            }
        }
    }

    /// [`Inference::outputs`] for images that are taken in `parts`, which together are all of them in
    /// order. `look` is shown each part's outputs while they are on the device, `[images, outputs]` for
    /// each head, standardised where the head is. `next` is what will be asked for afterwards. Of a part of a
    /// pipeline, which `link` connects with the others, only the last has outputs.
    pub(super) fn outputs_of_parts(
        &self,
        images: Images<'_>,
        parts: &[Range<usize>],
        next: Option<&BatchPart>,
        link: Option<Link<'_>>,
        mut look: impl FnMut(Range<usize>, &[Tensor<2>]),
    ) -> Result<Vec<Vec<f32>>, ExecutionError> {
        let mut rows = vec![Vec::new(); self.heads.len()];
        for (place, part) in parts.iter().enumerate() {
            let input = match link.filter(|link| !link.place().is_first()) {
                Some(link) => link.receive(Flow::Value, place),
                None => {
                    let input = self.input(images, part.clone());
                    self.send_ahead(images, parts.get(place + 1).cloned(), next);
                    input
                }
            };
            let output = executor::evaluate(&self.chain, input);
            if let Some(link) = link.filter(|link| !link.place().is_last()) {
                link.send(Flow::Value, place, output);
                continue;
            }
            let outputs = output.into_outputs();
            look(part.clone(), &outputs);
            for (rows, output) in rows.iter_mut().zip(outputs) {
                rows.extend(output.try_into_data()?.iter::<f32>());
            }
        }
        for (head, rows) in self.heads.iter().zip(&mut rows) {
            if let Some(standardizer) = &head.standardizer {
                standardizer.undo(rows);
            }
        }
        Ok(rows)
    }

    /// Some of the images as the network takes them.
    pub(super) fn input(&self, images: Images<'_>, part: Range<usize>) -> Activation {
        let sent = images.batch_part(part.clone()).and_then(|part| self.ahead.take(&part));
        let images = sent.unwrap_or_else(|| images.part(part, &self.device));
        Activation::Map(images.cast(self.precision.activations()))
    }

    /// Whether images can be copied to the device while it computes others.
    pub fn sends_ahead(&self) -> bool {
        self.ahead.is_on()
    }

    /// Begins to copy what is used next to the device: the images at `following` of `images`, or `next`
    /// after the last of these.
    pub(super) fn send_ahead(
        &self,
        images: Images<'_>,
        following: Option<Range<usize>>,
        next: Option<&BatchPart>,
    ) {
        let following = match following {
            Some(part) => images.batch_part(part),
            None => next.cloned(),
        };
        self.ahead.send(following);
    }

    /// Gives back memory of the device that is not in use, after it has not sufficed.
    pub fn free_memory(&self) {
        self.ahead.send(None);
        // Pages as large as what did not fit are of no more use.
        self.device.memory_cleanup();
    }

    /// The targets, standardised where heads are.
    pub(super) fn standardized<'a>(&self, targets: &'a [Targets]) -> Cow<'a, [Targets]> {
        if self.heads.iter().all(|head| head.standardizer.is_none()) {
            return Cow::Borrowed(targets);
        }
        let standardized = |(head, targets): (&Head, &Targets)| match &head.standardizer {
            Some(standardizer) => standardizer.apply(targets),
            None => targets.clone(),
        };
        self.heads.iter().zip(targets).map(standardized).collect()
    }

    /// Standardises the numbers of the heads that ask for it by the labels in `train`. Returns what a
    /// person should know of labels that have one value only.
    pub fn fit_standardizers(&mut self, train: &Dataset) -> Vec<String> {
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
}
