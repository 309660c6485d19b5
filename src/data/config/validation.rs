//! `data.validation`: how images are set aside.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `data.validation`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ValidationConfig {
    /// The share of patients of the training list set aside for validation. When absent, the
    /// layout's own validation list is used, or a share of 0.1 where it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fraction: Option<f64>,
    /// The layout's list to validate on, in place of a share of the training list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub list: Option<ValidationList>,
    /// What is kept whole by the split: every image of a patient is on one side.
    pub by: SplitBy,
}

impl Default for ValidationConfig {
    fn default() -> Self {
        Self { fraction: None, list: None, by: SplitBy::Patient }
    }
}

/// What a split keeps whole.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SplitBy {
    /// All images of a patient are on one side.
    #[default]
    Patient,
}

/// A list of images that a layout sets aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ValidationList {
    /// The official validation list.
    Validation,
    /// The official test list.
    Test,
}
