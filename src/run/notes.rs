//! What other programs need to know of a model, beside its weights.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::data::ImageConfig;
use crate::model::{HeadConfig, Task};

/// The key of what images become before a model sees them.
pub const PREPROCESSING: &str = "preprocessing";

/// What a head's outputs are.
#[derive(Debug, Serialize)]
struct HeadNote<'a> {
    name: &'a str,
    task: Task,
    labels: &'a [String],
    /// What makes probabilities of the outputs: `sigmoid` or `softmax`; none for `regression`.
    activation: Option<&'static str>,
}

/// What travels in the metadata of a file of weights, as JSON by key: `heads` (names, tasks and labels in
/// the order of the outputs) and `preprocessing` (`data.image`, and as `input` whether the model takes
/// `levels` from 0 to 1 or levels that are `normalized`).
pub fn notes(
    heads: &[HeadConfig],
    image: &ImageConfig,
    takes_levels: bool,
) -> BTreeMap<String, String> {
    let note = |head: &HeadConfig| {
        serde_json::json!(HeadNote {
            name: &head.name,
            task: head.task,
            labels: &head.labels,
            activation: match head.task {
                Task::Multilabel | Task::Binary => Some("sigmoid"),
                Task::Multiclass => Some("softmax"),
                Task::Regression => None,
            },
        })
    };
    let heads: Vec<_> = heads.iter().map(note).collect();
    let mut preprocessing = serde_json::json!(image);
    preprocessing["input"] = if takes_levels { "levels" } else { "normalized" }.into();
    [("heads", heads.into()), (PREPROCESSING, preprocessing)]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.to_string()))
        .collect()
}
