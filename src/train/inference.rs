//! The model alone: outputs for images.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

#[cfg(feature = "cuda")]
use burn::tensor::DType;
use burn::tensor::{Device, ExecutionError, Tensor};

use super::ahead::Ahead;
#[cfg(feature = "cuda")]
use super::evaluating::OnGpu;
use super::{BatchPart, Evaluating, Images, LossSums, TrainError};
use crate::data::{Batch, Dataset, Standardizer, Targets};
#[cfg(feature = "cuda")]
use crate::memory::check_allocated;
use crate::memory::{
    Activation, Chain, OutOfMemory, Placement, Precision, Strategy, catch_out_of_memory, executor,
};
use crate::model::HeadConfig;
#[cfg(feature = "cuda")]
use crate::ops::gpu::{Buffer, Gpu, Reserved};
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
    /// The memory of passes.
    #[cfg(feature = "cuda")]
    reserved: Option<Reserved>,
}

impl Inference {
    /// The model of `chain`, which is on `device` and ends in these heads. Its weights are rounded to
    /// what `precision` holds them in.
    pub fn new(chain: Chain, heads: &[HeadConfig], device: Device, precision: Precision) -> Self {
        let heads = heads.iter().map(|config| Head { config: config.clone(), standardizer: None });
        let chain = chain.cast(precision.parameters());
        let ahead = Ahead::new(&device, precision);
        Self {
            chain,
            heads: heads.collect(),
            device,
            precision,
            ahead,
            #[cfg(feature = "cuda")]
            reserved: None,
        }
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
        Ok(self.begin_outputs(images, micro_batch, None)?.wait()?.0)
    }

    /// Begins to find what [`Inference::outputs`] gives, where `next` will be asked for afterwards. There are no losses.
    fn begin_outputs(
        &self,
        images: Images<'_>,
        micro_batch: usize,
        next: Option<&BatchPart>,
    ) -> Result<Evaluating, ExecutionError> {
        let strategy = Strategy::plain(self.chain.stages().len(), micro_batch);
        let parts = strategy.parts(images.count());
        let outputs = self.outputs_of_parts(images, &parts, next, None, |_, _| {});
        self.begin_read(outputs, LossSums::new(&[]))
    }

    /// [`Inference::begin_outputs_within_memory`] and its end.
    ///
    /// # Errors
    /// As there.
    pub fn outputs_within_memory(
        &self,
        images: Images<'_>,
        at_once: &mut usize,
        next: Option<&Arc<Batch>>,
    ) -> Result<Vec<Vec<f32>>, TrainError> {
        Ok(self.begin_outputs_within_memory(images, at_once, next)?.wait()?.0)
    }

    /// Begins to find what [`Inference::outputs`] gives with `at_once` images at most, of which there are half as many from
    /// then on whenever memory does not suffice. `next` is the batch that will be asked about afterwards, where it is
    /// known. A GPU is not waited for; there are no losses.
    ///
    /// # Errors
    /// When memory does not suffice for one image, or the device fails.
    pub fn begin_outputs_within_memory(
        &self,
        images: Images<'_>,
        at_once: &mut usize,
        next: Option<&Arc<Batch>>,
    ) -> Result<Evaluating, TrainError> {
        loop {
            let together = (*at_once).clamp(1, images.count().max(1));
            let first = |batch: &Arc<Batch>| {
                Images::from(batch).batch_part(0..batch.shape[0].min(*at_once))
            };
            let next = next.and_then(first);
            match catch_out_of_memory(|| self.begin_outputs(images, together, next.as_ref())) {
                Ok(begun) => return Ok(begun?),
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

    /// The outputs for images that are taken in `parts`, which together are all of them in order: each head's for each
    /// part, `[images, outputs]`, on the device and standardised where the head is. `look` is shown each part's. `next` is
    /// what will be asked for afterwards. Of a part of a pipeline, which `link` connects with the others, only the last has
    /// outputs.
    pub(super) fn outputs_of_parts(
        &self,
        images: Images<'_>,
        parts: &[Range<usize>],
        next: Option<&BatchPart>,
        link: Option<Link<'_>>,
        mut look: impl FnMut(Range<usize>, &[Tensor<2>]),
    ) -> Vec<Vec<Tensor<2>>> {
        let mut all = vec![Vec::new(); self.heads.len()];
        for (place, part) in parts.iter().enumerate() {
            let input = match link.filter(|link| !link.place().is_first()) {
                Some(link) => {
                    let next = parts.get(place + 1).map(Range::len);
                    link.receive(Flow::Value, place, next)
                }
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
            all.iter_mut().zip(outputs).for_each(|(parts, output)| parts.push(output));
        }
        all
    }

    /// Reads what [`Inference::outputs_of_parts`] gives: each head's outputs, row by row and in the labels' own units.
    ///
    /// # Errors
    /// When the device fails.
    pub(super) fn read(
        &self,
        outputs: Vec<Vec<Tensor<2>>>,
    ) -> Result<Vec<Vec<f32>>, ExecutionError> {
        let read = |(parts, head): (Vec<Tensor<2>>, &Head)| {
            let mut rows = Vec::new();
            for part in parts {
                rows.extend(part.try_into_data()?.iter::<f32>());
            }
            if let Some(standardizer) = &head.standardizer {
                standardizer.undo(&mut rows);
            }
            Ok(rows)
        };
        outputs.into_iter().zip(&self.heads).map(read).collect()
    }

    /// The same, with the losses. A GPU is not waited for, but for the answer whether memory has sufficed.
    ///
    /// # Errors
    /// When the device fails.
    pub(super) fn begin_read(
        &self,
        outputs: Vec<Vec<Tensor<2>>>,
        losses: LossSums,
    ) -> Result<Evaluating, ExecutionError> {
        #[cfg(feature = "cuda")]
        if let Some(gpu) = crate::ops::gpu::Gpu::of(&self.device)
            && outputs.iter().any(|parts| !parts.is_empty())
        {
            return Ok(self.begin_read_from(&gpu, outputs, losses));
        }
        Ok(Evaluating::Known((self.read(outputs)?, losses.read()?)))
    }

    #[cfg(feature = "cuda")]
    fn begin_read_from(
        &self,
        gpu: &crate::ops::gpu::Gpu,
        outputs: Vec<Vec<Tensor<2>>>,
        losses: LossSums,
    ) -> Evaluating {
        let (sums, normalizers) = losses.together();
        let lengths = outputs
            .iter()
            .map(|parts| parts.iter().map(|part| part.shape().num_elements()).sum::<usize>());
        let standardizers = self.heads.iter().map(|head| head.standardizer.clone());
        let heads = lengths.zip(standardizers).collect();
        let outputs = outputs.into_iter().flatten().map(|part| part.flatten::<1>(0, 1));
        let all = outputs.chain(sums).map(|values| values.cast(DType::F32)).collect();
        // It follows from all that has been launched.
        let all = Tensor::cat(all, 0);
        let allocated = check_allocated([all.clone()]);
        allocated.unwrap_or_else(|out_of_memory| out_of_memory.throw());
        let reading = gpu.begin_read(&Buffer::of_tensor(all));
        Evaluating::OnGpu(OnGpu { reading, heads, normalizers })
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

    /// Takes memory of a GPU in which the passes of the steps that the current thread takes lie as `passes` has it; none where that is
    /// empty. What it had for them before goes.
    ///
    /// # Errors
    /// When there is not so much memory; then passes take theirs from the allocator.
    pub fn reserve(&mut self, passes: &Placement) -> Result<(), OutOfMemory> {
        // The weights that the last pass has read lie there.
        self.chain.map_buckets(|_, value| value);
        #[cfg(feature = "cuda")]
        {
            self.reserved = None;
            if passes.bytes > 0
                && let Some(gpu) = Gpu::of(&self.device)
            {
                let failed = |text: String| OutOfMemory::in_text(&text);
                self.reserved = match gpu.reserve(passes) {
                    Ok(reserved) => Some(reserved),
                    Err(text) => return failed(text).map_or(Ok(()), Err),
                };
            }
        }
        let _ = passes;
        Ok(())
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
