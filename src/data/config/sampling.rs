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
    /// Every image comes once, in an order that each epoch draws anew.
    Shuffle(NoSettings),
    /// Every image comes once, in the order of the tables.
    Sequential(NoSettings),
    /// As many images as there are come, drawn with replacement so that the classes of a head come
    /// up equally often. For a `multilabel` head these are the positives of each label and the
    /// images without any.
    Balanced(BalancedConfig),
    /// As many images as there are come, drawn with replacement by weights of their labels.
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
    /// The head whose labels are balanced; the first head when this is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"view")]
    pub head: Option<String>,
}

/// `[data.sampler.weighted]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WeightedConfig {
    /// The head whose labels are weighted; the first head when this is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"findings")]
    pub head: Option<String>,
    /// How many times as often an image with a label (or of a class) is drawn as an image with none
    /// of the labels named here; of several labels the largest number counts.
    #[schemars(example = serde_json::json!({ "Edema": 3.0 }))]
    pub labels: BTreeMap<String, f64>,
}
