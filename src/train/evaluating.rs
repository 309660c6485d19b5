//! What a model finds for a batch that it evaluates, or what a GPU has yet to find.

use burn::tensor::ExecutionError;

use super::HeadLoss;
use super::loss::losses_of;
use crate::data::Standardizer;
use crate::ops::gpu::Reading;

/// Each head's outputs, row by row and in the labels' own units, and its loss.
pub type Evaluated = (Vec<Vec<f32>>, Vec<HeadLoss>);

/// An evaluation that has begun.
#[derive(Debug)]
pub enum Evaluating {
    /// It has ended.
    Known(Evaluated),
    /// A GPU is at it.
    OnGpu(OnGpu),
}

/// Outputs and losses that a GPU is about to find.
#[derive(Debug)]
pub struct OnGpu {
    /// Each head's outputs, one head after another, and then the sums of the losses of those that have one.
    pub(super) reading: Reading,
    /// How many outputs each head has, and how these are brought into the labels' own units.
    pub(super) heads: Vec<(usize, Option<Standardizer>)>,
    /// What each head's loss is divided by; `None` where no label of it is known.
    pub(super) normalizers: Vec<Option<f64>>,
}

impl Evaluating {
    /// Waits for its end.
    ///
    /// # Errors
    /// When the device fails.
    pub fn wait(self) -> Result<Evaluated, ExecutionError> {
        match self {
            Self::Known(evaluated) => Ok(evaluated),
            Self::OnGpu(on_gpu) => on_gpu.wait(),
        }
    }
}

impl OnGpu {
    fn wait(self) -> Result<Evaluated, ExecutionError> {
        let read = self.reading.wait().map_err(ExecutionError::with_context)?;
        let mut read = read.into_iter();
        let rows = self.heads.into_iter().map(|(outputs, standardizer)| {
            let mut rows: Vec<f32> = read.by_ref().take(outputs).collect();
            if let Some(standardizer) = standardizer {
                standardizer.undo(&mut rows);
            }
            rows
        });
        let rows = rows.collect();
        Ok((rows, losses_of(self.normalizers, read)))
    }
}
