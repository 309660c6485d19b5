//! How an evaluation is made.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Scale;
use crate::metric::RESAMPLES;

/// Where the interval of a label's AUROC comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AurocMethod {
    /// DeLong's with images of a patient taken together (Obuchowski 1997).
    #[default]
    ClusteredDelong,
    /// DeLong's with every image by itself: too narrow where patients have several.
    Delong,
    /// The bootstrap over patients.
    Bootstrap,
}

/// How an evaluation is made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// Where the interval of a label's AUROC comes from.
    pub auroc: AurocMethod,
    /// How it is formed, and that of a difference, where by DeLong's method.
    pub scale: Scale,
    /// Resamples of the bootstrap.
    pub resamples: usize,
    /// Fixes the draws of the bootstrap.
    pub seed: u64,
    /// Bins of the reliability curve, at least 1.
    pub bins: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            auroc: AurocMethod::default(),
            scale: Scale::default(),
            resamples: RESAMPLES,
            seed: 0,
            bins: 15,
        }
    }
}
