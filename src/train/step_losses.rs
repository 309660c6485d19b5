//! The losses of a step that has been taken, or that a GPU has yet to take.

use burn::tensor::ExecutionError;

use super::HeadLoss;
use super::loss::losses_of;
use crate::ops::gpu::{Buffer, Reading};

/// Each head's loss in a step.
#[derive(Debug)]
pub enum StepLosses {
    /// They are known, and the step is taken.
    Known(Vec<HeadLoss>),
    /// A GPU is about to find them, and whether the step is taken.
    OnGpu(Outcome),
}

impl StepLosses {
    /// What a GPU decides about the step, where it does.
    pub fn decided(&self) -> Option<&Buffer> {
        match self {
            Self::Known(_) => None,
            Self::OnGpu(outcome) => Some(&outcome.decided),
        }
    }

    /// Waits for them, or to hear that the step was left out: something is not finite, of this step or of one before it
    /// that the GPU decided about.
    ///
    /// # Errors
    /// When the device fails.
    pub fn wait(self) -> Result<Result<Vec<HeadLoss>, LeftOut>, ExecutionError> {
        match self {
            Self::Known(losses) => Ok(Ok(losses)),
            Self::OnGpu(outcome) => outcome.wait(),
        }
    }
}

/// What a GPU decides about a step: see `Gpu::step_factor`.
#[derive(Debug)]
pub struct Outcome {
    /// What it writes.
    pub(super) decided: Buffer,
    /// The same, on its way to the host.
    pub(super) reading: Reading,
    /// What each head's loss is divided by; `None` where no label of it is known.
    pub(super) normalizers: Vec<Option<f64>>,
    /// The parameters whose steps the optimizer has counted.
    pub(super) names: Vec<String>,
}

/// A step that a GPU has left out: nothing has changed but the count of the optimizer's steps.
#[derive(Debug)]
pub struct LeftOut {
    /// The parameters whose steps have been counted.
    pub(super) names: Vec<String>,
}

impl Outcome {
    fn wait(self) -> Result<Result<Vec<HeadLoss>, LeftOut>, ExecutionError> {
        let read = self.reading.wait().map_err(ExecutionError::with_context)?;
        let mut read = read.into_iter().skip(1);
        let taken = read.next().is_some_and(|left_out| left_out == 0.0);
        let losses = losses_of(self.normalizers, read);
        let names = self.names;
        Ok(if taken { Ok(losses) } else { Err(LeftOut { names }) })
    }
}
