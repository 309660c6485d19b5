//! `data.validation`: how images are set aside.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `data.validation`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ValidationConfig {
    /// The share of the training list's patients that is set aside; above 0 and below 1. When
    /// neither this nor `list` or `folds` is given, the layout's own validation list is used, or a share of
    /// 0.1 where it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = 0.2)]
    pub fraction: Option<f64>,
    /// The layout's list to validate on, in place of a share of the training list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub list: Option<ValidationList>,
    /// The number of parts into which the training list's patients are cut, for cross-validation: 2 to
    /// 100. Each fold is validated on once, by a model that is trained on the others: `trainer run
    /// --fold 2` trains one, `--fold all` all of them. Sizes differ by one patient at most, and labels
    /// are spread evenly. `run.seed` decides which patient is where.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = 5)]
    #[schemars(range(min = 2, max = 100))]
    pub folds: Option<usize>,
    /// The fold that is validated on, counted from 1; `trainer run --fold` sets it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = 2)]
    #[schemars(range(min = 1))]
    pub fold: Option<usize>,
    /// What the split keeps whole.
    #[schemars(example = &"patient")]
    pub by: SplitBy,
}

impl ValidationConfig {
    /// The fold that is validated on, counted from 1, of how many; the first where none is named.
    pub fn fold(&self) -> Option<(usize, usize)> {
        Some((self.fold.unwrap_or(1), self.folds?))
    }
}

impl Default for ValidationConfig {
    fn default() -> Self {
        Self { fraction: None, list: None, folds: None, fold: None, by: SplitBy::Patient }
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
