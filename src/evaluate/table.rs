//! What a model said of a list of images, beside the truth.

use std::collections::BTreeMap;
use std::path::Path;

use super::{
    PredictedLabel, Prediction, PredictionColumns, PredictionError, PredictionHeader,
    PredictionReader, PredictionWriter,
};
use crate::data::Targets;
use crate::metric::HeadPredictions;
use crate::model::{HeadConfig, Task};

/// The outputs of every head for a list of images, with the truth where it is known. Outputs are as the
/// network gives them, before calibration: logits, and for `regression` numbers in the labels' unit.
#[derive(Debug, Clone, PartialEq)]
pub struct PredictionTable {
    /// The images' names.
    pub paths: Vec<String>,
    /// Whose image each is.
    pub patients: Vec<String>,
    /// By the head's name; each with as many images as there are paths.
    pub heads: BTreeMap<String, HeadPredictions>,
}

impl PredictionTable {
    /// The name, in a saved state, of that of the validation images.
    pub const FILE: &str = "validation.csv";

    /// No images yet, of a model with these heads.
    pub fn new(heads: &[HeadConfig]) -> Self {
        let heads = heads.iter().map(|head| (head.name.clone(), HeadPredictions::new(head)));
        Self { paths: Vec::new(), patients: Vec::new(), heads: heads.collect() }
    }

    /// How many images there are.
    pub fn images(&self) -> usize {
        self.paths.len()
    }

    /// Adds the outputs and targets of some images, head by head in the order of `heads`, which are those
    /// of the table. Their names and patients are added by themselves.
    pub fn add(&mut self, heads: &[HeadConfig], outputs: &[Vec<f32>], targets: &[Targets]) {
        for ((head, outputs), targets) in heads.iter().zip(outputs).zip(targets) {
            if let Some(predictions) = self.heads.get_mut(&head.name) {
                predictions.extend(outputs, targets);
            }
        }
    }

    /// The number of each image's patient, from 0, in the order in which patients appear.
    pub fn patient_numbers(&self) -> Vec<usize> {
        let mut numbers = BTreeMap::new();
        let number = |patient| {
            let next = numbers.len();
            *numbers.entry(patient).or_insert(next)
        };
        self.patients.iter().map(number).collect()
    }

    /// A CSV table with the columns of [`PredictionWriter`], whose values are the outputs, and the truth:
    /// 1 or 0 for labels (of soft labels the number itself) and classes, empty where it is unknown.
    /// [`PredictionTable::from_csv`] gives the same table back, bit for bit.
    ///
    /// # Errors
    /// None but where memory runs out.
    pub fn to_csv(&self) -> Result<Vec<u8>, PredictionError> {
        let mut writer = PredictionWriter::new(Vec::new(), &self.header())?;
        for image in 0..self.images() {
            let labels = self.heads.values().flat_map(|head| row(head, image)).collect();
            let (path, patient) = (self.paths[image].clone(), self.patients[image].clone());
            writer.write(&Prediction { path, patient, told: Ok(labels) })?;
        }
        writer.finish()
    }

    pub(super) fn header(&self) -> PredictionHeader {
        let column = |(name, label): (&String, &String)| PredictionColumns {
            head: name.clone(),
            label: label.clone(),
            truth: true,
            ..Default::default()
        };
        let labels = |(name, head): (_, &HeadPredictions)| {
            head.labels.iter().map(move |label| column((name, label))).collect::<Vec<_>>()
        };
        PredictionHeader { labels: self.heads.iter().flat_map(labels).collect(), error: false }
    }

    /// Reads what [`PredictionTable::to_csv`] wrote of a model with these heads. `file` is only named in
    /// errors.
    ///
    /// # Errors
    /// A table that is malformed, or of other heads or labels.
    pub fn from_csv(
        bytes: &[u8],
        heads: &[HeadConfig],
        file: &Path,
    ) -> Result<Self, PredictionError> {
        let mut table = Self::new(heads);
        let reader = PredictionReader::new(bytes, file)?;
        if reader.header().error {
            return Err(PredictionError::Header {
                file: file.to_owned(),
                column: "error".to_owned(),
                reason: "outputs of images that were read are expected".to_owned(),
            });
        }
        let (found, expected) = (reader.columns().to_vec(), table.header().labels);
        let differs = (0..found.len().max(expected.len()))
            .find(|&place| found.get(place) != expected.get(place));
        if let Some(place) = differs {
            let name = |columns: Option<&PredictionColumns>| {
                columns.map_or("nothing".to_owned(), |of| format!("`{}/{}`", of.head, of.label))
            };
            return Err(PredictionError::Header {
                file: file.to_owned(),
                column: found.get(place).map(|of| of.label.clone()).unwrap_or_default(),
                reason: format!(
                    "{} with its truth is expected, and {} is there",
                    name(expected.get(place)),
                    name(found.get(place))
                ),
            });
        }
        for prediction in reader {
            let prediction = prediction?;
            let mut labels = prediction.labels();
            for head in table.heads.values_mut() {
                let (own, others) = labels.split_at(head.labels.len());
                labels = others;
                let outputs: Vec<f32> = own.iter().map(|label| label.value as f32).collect();
                head.extend(&outputs, &truth(head, own));
            }
            table.paths.push(prediction.path);
            table.patients.push(prediction.patient);
        }
        Ok(table)
    }
}

/// A head's part of an image's row.
pub(super) fn row(head: &HeadPredictions, image: usize) -> Vec<PredictedLabel> {
    let (labels, width) = (head.labels.len(), head.targets.width);
    let outputs = &head.outputs[image * labels..(image + 1) * labels];
    let (values, mask) =
        (&head.targets.values[image * width..], &head.targets.mask[image * width..]);
    let truth = |label: usize| match head.task {
        Task::Multiclass => {
            (mask[0] != 0.0).then(|| f64::from(u8::from(values[0] as usize == label)))
        }
        _ => (mask[label] != 0.0).then(|| f64::from(values[label])),
    };
    let predicted = |(label, &output): (usize, &f32)| PredictedLabel {
        value: f64::from(output),
        truth: truth(label),
        ..Default::default()
    };
    outputs.iter().enumerate().map(predicted).collect()
}

/// The targets of an image with these labels.
fn truth(head: &HeadPredictions, labels: &[PredictedLabel]) -> Targets {
    let width = head.targets.width;
    let known = |label: &PredictedLabel| f32::from(u8::from(label.truth.is_some()));
    if head.task == Task::Multiclass {
        let class = labels.iter().position(|label| label.truth == Some(1.0));
        let mask = vec![f32::from(u8::from(class.is_some()))];
        return Targets { values: vec![class.unwrap_or(0) as f32], mask, width };
    }
    let value = |label: &PredictedLabel| label.truth.unwrap_or(0.0) as f32;
    Targets {
        values: labels.iter().map(value).collect(),
        mask: labels.iter().map(known).collect(),
        width,
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
