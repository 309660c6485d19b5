//! What evaluation on the validation images gathers.

use std::collections::BTreeMap;

use super::tally::Tally;
use crate::metric::{HeadPredictions, INTERVAL, RESAMPLES};
use crate::model::HeadConfig;
use crate::report::Values;

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
                let ends = [interval.map(|found| found.low), interval.map(|found| found.high)];
                let names = INTERVAL.map(|name| format!("{}/{name}", head.name));
                values.extend(names.into_iter().zip(ends));
            }
        }
        values
    }

    /// Why those of `values` that are undefined are so.
    pub fn reasons(&self, heads: &[HeadConfig], values: &Values) -> BTreeMap<String, String> {
        let mut reasons = BTreeMap::new();
        if values.get("loss") == Some(&None) {
            reasons.insert("loss".to_owned(), "no known label".to_owned());
        }
        for (head, predictions) in heads.iter().zip(&self.heads) {
            let prefix = format!("{}/", head.name);
            let own = values
                .iter()
                .filter_map(|(name, value)| Some((name.strip_prefix(&prefix)?.to_owned(), *value)));
            let found = predictions.reasons(&own.collect());
            reasons.extend(found.into_iter().map(|(name, why)| (format!("{prefix}{name}"), why)));
        }
        reasons
    }
}
