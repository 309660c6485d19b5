//! What evaluation on the validation images gathers.

use std::collections::BTreeMap;

use super::tally::Tally;
use crate::data::{Batch, Dataset};
use crate::evaluate::PredictionTable;
use crate::metric::{HeadPredictions, INTERVAL, RESAMPLES};
use crate::model::HeadConfig;
use crate::report::Values;
use crate::train::HeadLoss;

/// What evaluation has gathered.
pub(super) struct Validation {
    /// The outputs of each head.
    pub predictions: PredictionTable,
    /// The losses.
    pub tally: Tally,
    /// Of every image of the list.
    names: Vec<String>,
    patients: Vec<String>,
}

impl Validation {
    pub fn new(heads: &[HeadConfig], dataset: &Dataset) -> Self {
        Self {
            predictions: PredictionTable::new(heads),
            tally: Tally::default(),
            names: dataset.names(),
            patients: dataset.patients(),
        }
    }

    /// Adds a batch: the outputs of each head, in the order of `heads`, and the losses.
    pub fn add(
        &mut self,
        heads: &[HeadConfig],
        batch: &Batch,
        outputs: &[Vec<f32>],
        losses: &[HeadLoss],
    ) {
        self.predictions.add(heads, outputs, &batch.targets);
        for &index in &batch.indices {
            self.predictions.paths.push(self.names[index].clone());
            self.predictions.patients.push(self.patients[index].clone());
        }
        self.tally.add(losses, batch.indices.len());
    }

    /// Each head with its predictions.
    fn heads<'a>(
        &'a self,
        heads: &'a [HeadConfig],
    ) -> impl Iterator<Item = (&'a HeadConfig, &'a HeadPredictions)> {
        heads.iter().filter_map(|head| Some((head, self.predictions.heads.get(&head.name)?)))
    }

    /// Losses and metrics, by `loss`, `<head>/loss`, `<head>/<metric>`, `<head>/<metric>/<label>`.
    pub fn values(&self, heads: &[HeadConfig]) -> Values {
        let mut values = self.tally.values(heads);
        for (head, predictions) in self.heads(heads) {
            let metrics = predictions.metrics().into_iter();
            values.extend(metrics.map(|(name, value)| (format!("{}/{name}", head.name), value)));
        }
        values
    }

    /// The 95% interval of each head's AUROC, as `<head>/auroc_low` and `<head>/auroc_high`.
    pub fn intervals(&self, heads: &[HeadConfig], seed: u64) -> Values {
        let mut values = Values::new();
        let patients = self.predictions.patient_numbers();
        for (head, predictions) in self.heads(heads) {
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
        for (head, predictions) in self.heads(heads) {
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
