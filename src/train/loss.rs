//! The heads' losses over a batch.

use burn::tensor::{ExecutionError, Tensor};
use serde::{Deserialize, Serialize};

/// The loss of one head over some images: a sum over known labels and what it is divided by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct HeadLoss {
    /// The sum over known labels.
    pub sum: f64,
    /// What it is divided by; 0 when no label is known.
    pub normalizer: f64,
}

impl HeadLoss {
    /// The mean loss; `None` when no label is known.
    pub fn mean(&self) -> Option<f64> {
        (self.normalizer > 0.0).then(|| self.sum / self.normalizer)
    }
}

/// Each head's loss, of what it is divided by and the sums of those of which labels are known.
pub(super) fn losses_of(
    normalizers: Vec<Option<f64>>,
    sums: impl IntoIterator<Item = f32>,
) -> Vec<HeadLoss> {
    let mut sums = sums.into_iter();
    let loss = |normalizer: Option<f64>| {
        let known = normalizer.and_then(|normalizer| Some((normalizer, sums.next()?)));
        let known = known.map(|(normalizer, sum)| HeadLoss { sum: f64::from(sum), normalizer });
        known.unwrap_or_default()
    };
    normalizers.into_iter().map(loss).collect()
}

/// Each head's loss, still on the device.
#[derive(Debug)]
pub struct LossSums {
    /// `[1]` for each head; `None` without a known label.
    sums: Vec<Option<Tensor<1>>>,
    normalizers: Vec<f64>,
}

impl LossSums {
    /// Of no image yet, in a batch of these normalizers, one for each head.
    pub(super) fn new(normalizers: &[f64]) -> Self {
        Self { sums: vec![None; normalizers.len()], normalizers: normalizers.to_vec() }
    }

    /// The sums, and the normalizers of the batch that they are parts of.
    pub(super) fn into_parts(self) -> (Vec<Option<Tensor<1>>>, Vec<f64>) {
        (self.sums, self.normalizers)
    }

    /// Of these sums and normalizers, one of each for each head.
    pub(super) fn of_parts(sums: Vec<Option<Tensor<1>>>, normalizers: Vec<f64>) -> Self {
        Self { sums, normalizers }
    }

    /// Adds each head's sum over one more part of the batch.
    pub(super) fn add(&mut self, part: Vec<Option<Tensor<1>>>) {
        for (sum, more) in self.sums.iter_mut().zip(part) {
            *sum = match (sum.take(), more) {
                (Some(sum), Some(more)) => Some(sum + more),
                (sum, more) => sum.or(more),
            };
        }
    }

    /// Those that there are, one after another, `[n]`; and what each head's is divided by where it is one of them.
    #[cfg(feature = "cuda")]
    pub(super) fn together(self) -> (Option<Tensor<1>>, Vec<Option<f64>>) {
        let known = |(sum, normalizer): (&Option<Tensor<1>>, f64)| sum.as_ref().map(|_| normalizer);
        let normalizers = self.sums.iter().zip(self.normalizers).map(known).collect();
        let sums: Vec<Tensor<1>> = self.sums.into_iter().flatten().collect();
        ((!sums.is_empty()).then(|| Tensor::cat(sums, 0)), normalizers)
    }

    /// Reads them from the device.
    ///
    /// # Errors
    /// When the device fails.
    pub fn read(self) -> Result<Vec<HeadLoss>, ExecutionError> {
        let read = |(sum, normalizer): (Option<Tensor<1>>, f64)| match sum {
            Some(sum) => Ok(HeadLoss { sum: sum.try_into_data()?.iter::<f64>().sum(), normalizer }),
            None => Ok(HeadLoss::default()),
        };
        self.sums.into_iter().zip(self.normalizers).map(read).collect()
    }
}
