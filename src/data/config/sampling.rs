//! `data.sampler`: which training images an epoch is made of.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::choice::NoSettings;

/// `data.sampler`: which training images an epoch is made of, and in which order.
///
/// All draw from (seed, epoch), so an epoch can be gone on with at any batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SamplerConfig {
    /// Every image once, in an order of each epoch's own.
    Shuffle(NoSettings),
    /// Every image once, in the order of the tables.
    Sequential(NoSettings),
    /// As many images as there are, drawn with replacement so that the classes of a head (for
    /// `multilabel`, the positives of its labels and the images without any) come up equally often.
    Balanced(BalancedConfig),
    /// As many images as there are, drawn with replacement by weights of their labels.
    Weighted(WeightedConfig),
}

impl Default for SamplerConfig {
    fn default() -> Self {
        Self::Shuffle(NoSettings {})
    }
}

/// `[data.sampler.balanced]`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BalancedConfig {
    /// The head whose labels are balanced; the first when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<String>,
}

/// `[data.sampler.weighted]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WeightedConfig {
    /// The head whose labels are weighted; the first when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<String>,
    /// How many times as often an image with that label (or of that class) is drawn as one with no
    /// label named here; the largest counts.
    pub labels: BTreeMap<String, f64>,
}
