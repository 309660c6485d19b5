//! Gradients of a share of a batch, on one device.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use burn::tensor::{Tensor, TensorData};

use super::{BatchPart, Evaluating, Images, Inference, LossSums, TrainError};
use crate::data::Targets;
use crate::loss::{AucMargin, AucVariables, Loss};
use crate::memory::executor::StepKey;
use crate::memory::offload::Store;
use crate::memory::{
    Activation, Gradients, OutOfMemory, Placement, Statistics, Strategy, executor, statistics,
};
use crate::parallel::{Link, Member, Part};

/// A model on one device with its losses: computes gradients, and evaluates. It changes no weights.
pub struct Replica {
    /// The model.
    pub inference: Inference,
    /// How a share is taken: in which parts, and what is kept of each.
    pub strategy: Strategy,
    /// Where its passes are to lie, as long as there is no memory for that yet.
    pub passes: Option<Placement>,
    /// One for each head.
    losses: Vec<Box<dyn Loss>>,
    /// Where what the strategy moves off the device waits.
    store: Store,
    /// The run's seed.
    pub(super) seed: u64,
}

/// The images of a global batch that one replica takes.
#[derive(Debug, Clone, Copy)]
pub struct Share<'a> {
    /// The images of the global batch.
    pub images: Images<'a>,
    /// Their targets, one for each head, in the labels' own units.
    pub targets: &'a [Targets],
    /// Which images the replica takes, in the parts in which it computes them. Randomness follows from
    /// their places in the batch.
    pub parts: &'a [Part],
    /// The replica's place among those over whose images norms are taken; none where norms are taken over
    /// its own.
    pub synced: Option<&'a Arc<Member>>,
    /// The replica's place among those that share the batch, to which gradients of stages are given as soon as they are there; none
    /// where nobody adds them up, or only afterwards.
    pub row: Option<&'a Member>,
    /// What the replica takes first of the batch after this one, where that is known.
    pub next: Option<&'a BatchPart>,
    /// What connects the replica with the other devices of its pipeline, where it has a part of the model
    /// only.
    pub link: Option<Link<'a>>,
}

/// What a share of a step gives before any weight is changed.
#[derive(Debug)]
pub struct StepGradients {
    /// The gradient of the scaled loss, by bucket of parameters.
    pub gradients: Gradients,
    /// What running statistics move towards.
    pub statistics: Statistics,
    /// The heads' losses, not scaled.
    pub losses: LossSums,
    /// For each head whose loss learns numbers of its own ([`AucMargin::centres`]), the gradient of its
    /// sum with respect to them, not scaled.
    pub centres: Vec<Option<Tensor<1>>>,
}

impl Replica {
    /// A replica with the loss of each head, and with `store` for what `strategy` moves off the device.
    pub fn new(
        inference: Inference,
        losses: Vec<Box<dyn Loss>>,
        strategy: Strategy,
        store: Store,
        seed: u64,
    ) -> Self {
        Self { inference, strategy, passes: None, losses, store, seed }
    }

    /// Takes the memory of [`Replica::passes`].
    ///
    /// # Errors
    /// When there is not so much; it is yet to be taken then.
    pub fn reserve(&mut self) -> Result<(), OutOfMemory> {
        if let Some(passes) = &self.passes {
            self.inference.reserve(passes)?;
            self.passes = None;
        }
        Ok(())
    }

    /// What connects it with the other devices of its pipeline, where it has a part of the model only;
    /// `member` is its place among them.
    pub fn link<'a>(&'a self, member: &'a Member) -> Option<Link<'a>> {
        let part = self.strategy.part?;
        let room = self.inference.chain.stages()[0].room();
        Some(Link::new(member, part.place, self.inference.device(), room))
    }

    /// Whether it has the heads, as all have but in a pipeline.
    pub fn has_heads(&self) -> bool {
        self.strategy.part.is_none_or(|part| part.place.is_last())
    }

    /// What each head's loss is divided by, over the global batch whose targets these are; 0 for a
    /// head without a known label.
    pub fn normalizers(&self, targets: &[Targets]) -> Vec<f64> {
        let heads = self.losses.iter().zip(targets);
        heads.map(|(loss, targets)| loss.normalizer(targets)).collect()
    }

    /// The gradients of `share` in optimizer step number `step` (from 0). The loss is the sum of the
    /// heads' losses, each divided by its normalizer of the global batch and multiplied by the head's
    /// weight; it is scaled by `loss_scale`. The gradients of all shares of a batch add up to the
    /// batch's. In a pipeline they are those of the replica's own stages, and losses those of the device
    /// that has the heads. Nothing changes.
    ///
    /// # Errors
    /// When something cannot be moved off the device or back.
    pub fn gradients(
        &self,
        share: Share<'_>,
        normalizers: &[f64],
        step: usize,
        loss_scale: f64,
    ) -> Result<StepGradients, TrainError> {
        let Share { images, targets, parts, synced, row, next, link } = share;
        let targets = self.inference.standardized(targets);
        let key = StepKey { seed: self.seed, step: step as u64, parts, synced, row };
        let mut losses = LossSums::new(normalizers);
        let mut centres: Vec<Option<Tensor<1>>> = vec![None; self.losses.len()];
        let result = executor::train_part(
            &self.store,
            &self.inference.chain,
            link,
            &self.strategy.schedule(parts.len()),
            key,
            |micro| {
                let input = self.inference.input(images, parts[micro].images.clone());
                let following = parts.get(micro + 1).map(|part| part.images.clone());
                self.inference.send_ahead(images, following, next);
                input
            },
            |micro, outputs| {
                let outputs = outputs.into_outputs();
                let targets = part_of(&targets, parts[micro].images.clone());
                for (place, sum) in centres.iter_mut().enumerate() {
                    let part = self.centres(place, &outputs[place], &targets[place]);
                    *sum = add(sum.take(), part);
                }
                let each = self.backward(outputs, &targets, normalizers, loss_scale);
                let (gradients, sums): (Vec<_>, Vec<_>) = each.into_iter().unzip();
                losses.add(sums);
                Activation::Outputs(gradients)
            },
        )?;
        let normalised = |part: &Part| match synced {
            Some(_) => part.together.len(),
            None => part.images.len(),
        };
        let statistics = result.statistics.into_iter().zip(parts);
        let statistics = statistics.map(|(found, part)| (found, normalised(part))).collect();
        let statistics = statistics::combine(statistics, self.strategy.batch_norm);
        Ok(StepGradients { gradients: result.gradients, statistics, losses, centres })
    }

    /// For each head, the gradient of the scaled loss with respect to its outputs for a part of a
    /// batch, and the sum of its loss over that part. A head whose normalizer is 0 has a gradient of 0.
    fn backward(
        &self,
        outputs: Vec<Tensor<2>>,
        targets: &[Targets],
        normalizers: &[f64],
        loss_scale: f64,
    ) -> Vec<(Tensor<2>, Option<Tensor<1>>)> {
        let heads = self.inference.heads.iter().zip(&self.losses);
        let each = heads.zip(outputs).zip(targets).zip(normalizers);
        each.map(|((((head, loss), output), targets), &normalizer)| {
            if normalizer == 0.0 {
                return (output.zeros_like(), None);
            }
            let [values, mask] = self.upload(targets);
            let factor = loss_scale * head.config.weight / normalizer;
            let (sum, gradient) = loss.sum_and_gradient(output, values, mask, factor);
            (gradient, Some(sum))
        })
        .collect()
    }

    /// The sum of each head's loss over some images; of heads with a normalizer of 0, none.
    pub(super) fn sums(
        &self,
        outputs: &[Tensor<2>],
        targets: &[Targets],
        normalizers: &[f64],
    ) -> Vec<Option<Tensor<1>>> {
        let heads = self.losses.iter().zip(outputs).zip(targets).zip(normalizers);
        let sums = heads.map(|(((loss, output), targets), &normalizer)| {
            (normalizer > 0.0).then(|| self.loss(loss.as_ref(), output.clone(), targets))
        });
        sums.collect()
    }

    /// `[1]`: the sum of a head's loss over some images.
    fn loss(&self, loss: &dyn Loss, outputs: Tensor<2>, targets: &Targets) -> Tensor<1> {
        let [values, mask] = self.upload(targets);
        loss.sum(outputs, values, mask)
    }

    /// The gradient of the loss of the head at `place` with respect to the numbers that it learns.
    fn centres(&self, place: usize, outputs: &Tensor<2>, targets: &Targets) -> Option<Tensor<1>> {
        let loss = self.losses[place].auc_margin()?;
        let [values, mask] = self.upload(targets);
        Some(loss.gradient(outputs.clone(), values, mask))
    }

    /// Values and mask, `[images, width]`.
    fn upload(&self, targets: &Targets) -> [Tensor<2>; 2] {
        let shape = [targets.values.len() / targets.width, targets.width];
        [&targets.values, &targets.mask].map(|numbers| {
            Tensor::from_data(TensorData::new(numbers.clone(), shape), self.inference.device())
        })
    }

    /// The losses that learn numbers of their own, each with the place of its head and what the
    /// optimizer knows its numbers by.
    pub(super) fn learning(&mut self) -> impl Iterator<Item = (usize, String, &mut AucMargin)> {
        let heads = self.inference.heads.iter().zip(&mut self.losses).enumerate();
        heads.filter_map(|(place, (head, loss))| {
            Some((place, centres_key(&head.config.name), loss.auc_margin_mut()?))
        })
    }

    /// What the optimizer knows the numbers of losses by that it changes, and how many there are.
    pub fn centre_sizes(&self) -> Vec<(String, usize)> {
        self.learned().map(|(head, loss)| (centres_key(head), loss.centres().len())).collect()
    }

    /// What the heads' losses have learned, by the names of the heads.
    pub fn variables(&self) -> BTreeMap<String, AucVariables> {
        self.learned().map(|(head, loss)| (head.to_owned(), loss.variables().clone())).collect()
    }

    /// The names of the heads whose losses learn numbers of their own, and these losses.
    fn learned(&self) -> impl Iterator<Item = (&str, &AucMargin)> {
        let heads = self.inference.heads.iter().zip(&self.losses);
        heads.filter_map(|(head, loss)| Some((head.config.name.as_str(), loss.auc_margin()?)))
    }

    /// Lets the heads' losses go on from what they have learned; the first head that `variables` do
    /// not fit.
    pub fn set_variables(&mut self, variables: &BTreeMap<String, AucVariables>) -> Option<String> {
        let heads = self.inference.heads.iter().zip(&mut self.losses);
        let mut learning =
            heads.filter_map(|(head, loss)| Some((&head.config.name, loss.auc_margin_mut()?)));
        let fits = |(name, loss): &mut (&String, &mut AucMargin)| {
            variables.get(*name).is_some_and(|found| loss.set_variables(found.clone()))
        };
        learning.find_map(|mut each| (!fits(&mut each)).then(|| each.0.clone()))
    }

    /// Each head's outputs for the images of `parts` of a batch, as [`Inference::outputs`] gives them, and the
    /// sum of its loss over them, with the normalizers of the batch. `next` are the images that will be
    /// evaluated first of the batch after it, where they are known. In a pipeline, whose other devices are
    /// reached by `link`, those of the device that has the heads count; the others have none.
    ///
    /// A GPU that computes alone is not waited for, but for the answer whether memory has sufficed.
    ///
    /// # Errors
    /// When the device fails.
    pub fn evaluate(
        &self,
        images: Images<'_>,
        targets: &[Targets],
        parts: &[Part],
        next: Option<&BatchPart>,
        link: Option<Link<'_>>,
    ) -> Result<Evaluating, TrainError> {
        let targets = self.inference.standardized(targets);
        let normalizers = self.normalizers(&targets);
        let mut losses = LossSums::new(&normalizers);
        let parts: Vec<Range<usize>> = parts.iter().map(|part| part.images.clone()).collect();
        let outputs =
            self.inference.outputs_of_parts(images, &parts, next, link, |part, outputs| {
                let targets = part_of(&targets, part);
                losses.add(self.sums(outputs, &targets, &normalizers));
            });
        Ok(match link {
            None => self.inference.begin_read(outputs, losses)?,
            Some(_) => Evaluating::Known((self.inference.read(outputs)?, losses.read()?)),
        })
    }
}

/// What the optimizer knows the numbers by that the loss of a head learns.
fn centres_key(head: &str) -> String {
    format!("loss.{head}.centres")
}

fn add(sum: Option<Tensor<1>>, part: Option<Tensor<1>>) -> Option<Tensor<1>> {
    match (sum, part) {
        (Some(sum), Some(part)) => Some(sum + part),
        (sum, part) => sum.or(part),
    }
}

/// The targets of some of the images.
pub(super) fn part_of(targets: &[Targets], images: Range<usize>) -> Vec<Targets> {
    targets.iter().map(|targets| targets.part(images.clone())).collect()
}
