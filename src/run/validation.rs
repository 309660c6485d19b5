//! What evaluation on the validation images gathers.

use std::collections::BTreeMap;

use super::tally::Tally;
use crate::metric::HeadPredictions;
use crate::model::HeadConfig;
use crate::report::Values;

/// Resamples behind the interval of a metric.
const RESAMPLES: usize = 1000;

/// What evaluation has gathered.
pub(super) struct Validation {
    /// The outputs of each head.
    pub heads: Vec<HeadPredictions>,
    /// The losses.
    pub tally: Tally,
    /// The patient of each image.
    pub patients: Vec<String>,
}

impl Validation {
    pub fn new(heads: &[HeadConfig]) -> Self {
        let heads = heads.iter().map(HeadPredictions::new).collect();
        Self { heads, tally: Tally::default(), patients: Vec::new() }
    }

    /// Losses and metrics, by `loss`, `<head>/loss`, `<head>/<metric>`, `<head>/<metric>/<label>`.
    pub fn values(&self, heads: &[HeadConfig]) -> Values {
        let mut values = self.tally.values(heads);
        for (head, predictions) in heads.iter().zip(&self.heads) {
            let metrics = predictions.metrics().into_iter();
            values.extend(metrics.map(|(name, value)| (format!("{}/{name}", head.name), value)));
        }
        values
    }

    /// The 95% interval of each head's AUROC, as `<head>/auroc_low` and `<head>/auroc_high`.
    pub fn intervals(&self, heads: &[HeadConfig], seed: u64) -> Values {
        let mut values = Values::new();
        let mut numbers = BTreeMap::new();
        let patients = self.patients.iter().map(|patient| {
            let next = numbers.len();
            *numbers.entry(patient).or_insert(next)
        });
        let patients: Vec<usize> = patients.collect();
        for (head, predictions) in heads.iter().zip(&self.heads) {
            let mut found = predictions.intervals(seed, RESAMPLES, Some(&patients));
            if let Some(interval) = found.remove("auroc") {
                let low = interval.map(|interval| interval.low);
                let high = interval.map(|interval| interval.high);
                values.insert(format!("{}/auroc_low", head.name), low);
                values.insert(format!("{}/auroc_high", head.name), high);
            }
        }
        values
    }

    /// Why `metric`, such as `val/loss` or `val/findings/auroc`, has no value: to follow "because".
    pub fn why_undefined(&self, heads: &[HeadConfig], metric: &str) -> String {
        let name = metric.strip_prefix("val/").unwrap_or(metric);
        let of = heads.iter().zip(&self.heads).find_map(|(head, predictions)| {
            let rest = name.strip_prefix(&head.name)?.strip_prefix('/')?;
            Some((predictions, rest))
        });
        match of {
            None => "no label is known".to_owned(),
            Some((_, "loss")) => "no label of the head is known".to_owned(),
            Some((predictions, name)) => predictions.why_undefined(name),
        }
    }
}
