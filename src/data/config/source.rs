//! `[[data.sources]]`: several data sets in one run.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{DataConfig, LayoutTables};

/// `[[data.sources]]`: one of several data sets; exactly one layout table must be given in it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SourceConfig {
    /// The heads that this data set supplies labels for; all heads that it has a label of when this
    /// is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = ["findings"])]
    pub heads: Option<Vec<String>>,
    /// What this data set calls a head's label, or a class of a `multiclass` head, where the names
    /// differ.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(example = serde_json::json!({ "Pleural Effusion": "Effusion" }))]
    pub labels: BTreeMap<String, String>,
    /// Its layout.
    #[serde(flatten)]
    pub layout: LayoutTables,
}

impl DataConfig {
    /// The same data with `labels`: what they call a head's label where the names differ. A layout
    /// that stands directly below `[data]` becomes the only one of `[[data.sources]]`.
    ///
    /// `None` where there are several data sets, which each have names of their own.
    pub fn with_labels(mut self, labels: BTreeMap<String, String>) -> Option<Self> {
        if let [source] = &mut self.sources[..] {
            source.labels.extend(labels);
            return Some(self);
        }
        if !self.sources.is_empty() {
            return labels.is_empty().then_some(self);
        }
        let layout = std::mem::take(&mut self.layout);
        self.sources.push(SourceConfig { heads: None, labels, layout });
        Some(self)
    }
}
