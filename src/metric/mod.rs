//! Metrics of a head's predictions; one file each. Undefined is `None`, never a guess.
//!
//! All of it is host arithmetic in 64-bit, O(n log n) in the number of images. What holds of every
//! metric:
//!
//! - Missing labels are left out.
//! - Soft targets count as positive from 0.5 up.
//! - A metric without the labels it needs is `None`: AUROC and AUPRC of a label that is only ever
//!   positive or only ever negative, F1 of a label without positives. A mean over labels is over
//!   those where the metric is defined, and `None` if it is nowhere.
//! - A label with an output that is NaN or infinite where the label is known has no metrics, and
//!   then neither has the head: a mean over the labels that happened to survive would flatter a
//!   model that is broken.

mod accuracy;
pub(crate) mod auprc;
pub(crate) mod auroc;
mod bootstrap;
mod f1;
pub(crate) mod interval;
mod jackknife;
mod names;
mod predictions;
pub(crate) mod ranking;
pub(crate) mod regression;

pub use bootstrap::{RESAMPLES, Resampler};
pub use interval::{Interval, Link, satterthwaite, welch};
pub use jackknife::Jackknife;
pub use names::{INTERVAL, higher_is_better, metric_names};
pub use predictions::HeadPredictions;

/// One known label of one image: for a `multiclass` head, whether the image is of one class.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Example {
    /// The position of the image among the predictions.
    pub image: usize,
    /// Ranks the images; the higher, the likelier positive.
    pub score: f64,
    /// What the model decides.
    pub predicted: bool,
    /// What is true.
    pub positive: bool,
}

/// The mean of `values`; `None` of nothing.
pub(crate) fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0_usize), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / count as f64)
}

#[cfg(test)]
mod tests;
