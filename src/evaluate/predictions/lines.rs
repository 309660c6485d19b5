//! Predictions as JSON lines.

use std::io::Write;

use serde_json::json;

use super::{
    PredictedLabel, PredictedSet, Prediction, PredictionColumns, PredictionError, PredictionHeader,
};
use crate::model::{HeadConfig, Task};

/// Writes predictions as JSON, an object on each line: `path`, `patient`, and `heads` with what is told of
/// each label, in the order of the heads; or `error`.
pub struct PredictionLines<W: Write> {
    to: W,
    heads: Vec<HeadConfig>,
    header: PredictionHeader,
}

impl<W: Write> PredictionLines<W> {
    /// For predictions of these heads, of which `header` has every label.
    pub fn new(to: W, heads: &[HeadConfig], header: &PredictionHeader) -> Self {
        Self { to, heads: heads.to_vec(), header: header.clone() }
    }

    /// Writes the line of an image.
    ///
    /// # Errors
    /// What the system refuses to write.
    pub fn write(&mut self, prediction: &Prediction) -> Result<(), PredictionError> {
        let Prediction { path, patient, told } = prediction;
        let (name, told) = match told {
            Ok(labels) => ("heads", self.heads(labels)),
            Err(reason) => ("error", json!(reason).to_string()),
        };
        let [path, patient] = [path, patient].map(|text| json!(text).to_string());
        let line = object([("path", path), ("patient", patient), (name, told)].into_iter());
        Ok(writeln!(self.to, "{line}")?)
    }

    /// Hands on what was written.
    ///
    /// # Errors
    /// What the system refuses to write.
    pub fn flush(&mut self) -> Result<(), PredictionError> {
        Ok(self.to.flush()?)
    }

    fn heads(&self, labels: &[PredictedLabel]) -> String {
        let mut told = self.header.labels.iter().zip(labels).peekable();
        let mut heads = Vec::with_capacity(self.heads.len());
        for head in &self.heads {
            let of_head = std::iter::from_fn(|| told.next_if(|(of, _)| of.head == head.name));
            let of_head = of_head.map(|(of, label)| (of.label.as_str(), member(head, of, label)));
            heads.push((head.name.as_str(), object(of_head)));
        }
        object(heads.into_iter())
    }
}

/// A label as JSON.
fn member(head: &HeadConfig, told: &PredictionColumns, label: &PredictedLabel) -> String {
    let name = if head.task == Task::Regression { "value" } else { "probability" };
    let mut members = vec![(name, json!(label.value))];
    if told.decision {
        members.push(("decision", json!(label.decision.map(u8::from))));
    }
    if told.truth {
        members.push(("truth", json!(label.truth)));
    }
    if told.spread {
        members.push(("spread", json!(label.spread)));
    }
    if let (Some(set), true) = (label.conformal, told.conformal) {
        let set = match set {
            PredictedSet::Class(is) => json!(u8::from(is)),
            PredictedSet::Decisions(set) => {
                let decisions = [(set.negative, 0), (set.positive, 1)].into_iter();
                decisions.filter(|(is, _)| *is).map(|(_, decision)| decision).collect()
            }
        };
        members.push(("conformal", set));
    }
    object(members.into_iter().map(|(name, value)| (name, value.to_string())))
}

/// A JSON object of members whose values are JSON already, in their order.
fn object<'a>(members: impl Iterator<Item = (&'a str, String)>) -> String {
    let members: Vec<String> =
        members.map(|(name, value)| format!("{}:{value}", json!(name))).collect();
    format!("{{{}}}", members.join(","))
}
