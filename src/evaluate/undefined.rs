//! Why there is no value.

use serde::{Serialize, Serializer};

use crate::screen::counted;

/// The reason why a metric, an interval or a fit has no value.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Undefined {
    /// The label is known for none of the images.
    #[error("no known label")]
    NoKnownLabel,
    /// All images are positive, or all are negative.
    #[error("one class only: {} of {images}", counted(*positives, "positive", "positives"))]
    OneClass {
        /// How many images are positive.
        positives: usize,
        /// Images whose label is known.
        images: usize,
    },
    /// The model gave no number.
    #[error("an output is NaN or infinite")]
    NotFinite,
    /// Calibration is about probabilities.
    #[error("a probability is not from 0 to 1")]
    NotProbability,
    /// One patient (or image) says nothing about how far others would differ.
    #[error("only one patient or image is {class}")]
    OneCluster {
        /// "positive" or "negative".
        class: &'static str,
    },
    /// No uncertainty is found, as where positives and negatives are wholly apart.
    #[error("the variance is 0, so no interval can be given")]
    NoVariance,
    /// A share of nothing.
    #[error("no image is {0}")]
    NoImage(
        /// What no image is, such as "positive" or "decided positive".
        &'static str,
    ),
    /// No threshold among the scores does what is asked for.
    #[error("no threshold reaches a {measure} of {at_least}")]
    Unreachable {
        /// "sensitivity" or "specificity".
        measure: &'static str,
        /// The share that was asked for.
        at_least: f64,
    },
    /// The likelihood grows without end as the outputs are scaled up.
    #[error("the outputs separate the classes, so that no finite scale is best")]
    Separable,
    /// Scaling cannot mend outputs that rank the wrong way.
    #[error("the outputs do not rank the true classes first")]
    Unordered,
    /// Every output is the same number.
    #[error("all outputs are the same")]
    ConstantOutputs,
    /// Every target is the same number.
    #[error("all targets are the same")]
    ConstantTargets,
    /// Newton's method came to no end.
    #[error("the fit did not converge")]
    NotConverged,
    /// A method that is not made for such a head.
    #[error("{method} is not defined for a {task} head")]
    NotForTask {
        /// The method.
        method: &'static str,
        /// The head's task, such as "multiclass".
        task: &'static str,
    },
    /// A mean over labels none of which has a value.
    #[error("undefined for every label")]
    EveryLabel,
    /// A difference of two values, of which one or both are not there.
    #[error("one of the two values, or both, are undefined")]
    OneOfTwo,
    /// No resample of the bootstrap has a value.
    #[error("undefined in every resample")]
    EveryResample,
}

impl Serialize for Undefined {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
