//! Gradients of a share of a batch, on one device.

use std::ops::Range;

use burn::tensor::{Tensor, TensorData};

use super::{HeadLoss, Images, Inference, LossSums, TrainError};
use crate::data::Targets;
use crate::loss::Loss;
use crate::memory::executor::StepKey;
use crate::memory::offload::Store;
use crate::memory::{Activation, Gradients, Statistics, Strategy, executor, statistics};

/// A model on one device with its losses: computes gradients, and evaluates. It changes no weights.
pub struct Replica {
    /// The model.
    pub inference: Inference,
    /// How a share is taken: in which parts, and what is kept of each.
    pub strategy: Strategy,
    /// One for each head.
    losses: Vec<Box<dyn Loss>>,
    /// Where what the strategy moves off the device waits.
    store: Store,
    /// The run's seed.
    seed: u64,
}

/// The part of a global batch that one replica takes.
#[derive(Debug, Clone, Copy)]
pub struct Share<'a> {
    /// Its images.
    pub images: Images<'a>,
    /// Their targets, one for each head, in the labels' own units.
    pub targets: &'a [Targets],
    /// The place of its first image in the global batch: what randomness follows from.
    pub first_image: usize,
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
        Self { inference, strategy, losses, store, seed }
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
    /// batch's. Nothing changes.
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
        let Share { images, targets, first_image } = share;
        let targets = self.inference.standardized(targets);
        let parts = self.strategy.parts(images.count());
        let first_images: Vec<u64> =
            parts.iter().map(|part| (first_image + part.start) as u64).collect();
        let key = StepKey { seed: self.seed, step: step as u64, first_images: &first_images };
        let mut losses = LossSums::new(normalizers);
        let result = executor::train(
            &self.store,
            &self.inference.chain,
            &self.strategy.schedule(parts.len()),
            key,
            |micro| self.inference.input(images, parts[micro].clone()),
            |micro, outputs| {
                let outputs = outputs.into_outputs();
                let targets = part_of(&targets, parts[micro].clone());
                let each = self.backward(outputs, &targets, normalizers, loss_scale);
                let (gradients, sums): (Vec<_>, Vec<_>) = each.into_iter().unzip();
                losses.add(sums);
                Activation::Outputs(gradients)
            },
        )?;
        let statistics = result.statistics.into_iter().zip(&parts);
        let statistics = statistics.map(|(found, part)| (found, part.len())).collect();
        let statistics = statistics::combine(statistics, self.strategy.batch_norm);
        Ok(StepGradients { gradients: result.gradients, statistics, losses })
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
            let leaf = output.autodiff().require_grad();
            let sum = self.loss(loss.as_ref(), leaf.clone(), targets);
            let weight = loss_scale * head.config.weight / normalizer;
            let mut gradients = sum.clone().mul_scalar(weight).backward();
            let gradient = leaf.grad_remove(&mut gradients);
            let gradient = gradient.unwrap_or_else(|| leaf.without_autodiff().zeros_like());
            (gradient, Some(sum.without_autodiff()))
        })
        .collect()
    }

    /// `[1]`: the sum of a head's loss over some images.
    fn loss(&self, loss: &dyn Loss, outputs: Tensor<2>, targets: &Targets) -> Tensor<1> {
        let shape = [targets.values.len() / targets.width, targets.width];
        let upload = |numbers: &[f32]| {
            Tensor::from_data(TensorData::new(numbers.to_vec(), shape), self.inference.device())
        };
        loss.sum(outputs, upload(&targets.values), upload(&targets.mask))
    }

    /// Each head's outputs as [`Inference::outputs`] gives them, and its loss.
    ///
    /// # Errors
    /// When the device fails.
    pub fn evaluate(
        &self,
        images: Images<'_>,
        targets: &[Targets],
    ) -> Result<(Vec<Vec<f32>>, Vec<HeadLoss>), TrainError> {
        let targets = self.inference.standardized(targets);
        let normalizers = self.normalizers(&targets);
        let mut losses = LossSums::new(&normalizers);
        let parts = self.strategy.parts(images.count());
        let rows = self.inference.outputs_of_parts(images, &parts, |part, outputs| {
            let targets = part_of(&targets, part);
            let heads = self.losses.iter().zip(outputs).zip(&targets).zip(&normalizers);
            let sums = heads.map(|(((loss, output), targets), &normalizer)| {
                (normalizer > 0.0).then(|| self.loss(loss.as_ref(), output.clone(), targets))
            });
            losses.add(sums.collect());
        })?;
        Ok((rows, losses.read()?))
    }
}

/// The targets of some of the images.
fn part_of(targets: &[Targets], images: Range<usize>) -> Vec<Targets> {
    targets.iter().map(|targets| targets.part(images.clone())).collect()
}
