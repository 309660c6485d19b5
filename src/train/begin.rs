//! The optimizer's kernels, launched before the host knows of the gradients.

use burn::tensor::{DType, Tensor};

use super::update::Looked;
use super::{Inference, StepGradients, Updater};
use crate::memory::{OutOfMemory, fault, measure};
use crate::ops::gpu::{Buffer, Gpu};
use crate::optim::{GradientNorm, Optimizer, Update};

impl Updater {
    /// Lets the GPU find the clip factor and whether all is finite, and launches the optimizer's kernels, which
    /// change nothing where it is not; reads meanwhile what the host has to know. `None` where the GPU cannot
    /// decide: the loss is scaled, the state of the optimizer is elsewhere, or it has no kernel.
    ///
    /// Unwinds where memory has not sufficed; nothing is launched then.
    pub(super) fn begin(
        &mut self,
        model: &Inference,
        found: &StepGradients,
        learning_rate: f64,
    ) -> Option<Looked> {
        let gpu = Gpu::of(model.device())?;
        let able = self.loss_scale.is_none()
            && !self.optimizer.waits_away()
            && self.optimizer.kernel().is_some()
            && found.gradients.iter().all(|(_, gradient)| gradient.dtype() == DType::F32);
        // A record of memory has the optimizer in a place of its own.
        if !able || measure::is_recording() {
            return None;
        }
        let losses = Buffer::of_tensor(found.losses.together()?);
        let names: Vec<String> = found.gradients.iter().map(|(name, _)| name.to_owned()).collect();
        let gradients: Vec<Tensor<1>> =
            found.gradients.iter().map(|(_, each)| each.clone()).collect();
        let squares = gpu.squares(gradients);
        let decided = gpu.step_factor(&squares, &losses, self.clip_norm)?;
        let mut made: Vec<Buffer> =
            found.statistics.values().cloned().map(Buffer::of_tensor).collect();
        made.push(decided.clone());
        if let Err(failed) = gpu.check(&made) {
            // Else it shows where the gradients are read in the usual way.
            return OutOfMemory::in_text(&failed).and_then(|out_of_memory| out_of_memory.throw());
        }
        fault::check();
        let take = |optimizer: &mut Optimizer, rate: f64, updates: Vec<Update>| {
            optimizer.step_decided(rate, &decided, updates)
        };
        let launch = || self.at_rates(&model.chain, &found.gradients, learning_rate, take);
        let (begun, read) = gpu.read_beside(&squares, &losses, launch);
        let Ok([squares, losses]) = read else {
            self.optimizer.untake(begun.keys());
            return None;
        };
        let size = GradientNorm::of(&names.into_iter().zip(squares).collect());
        Some(Looked { size, losses: found.losses.of_read(&losses), begun: Some(begun) })
    }
}
