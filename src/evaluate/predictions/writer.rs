//! Writes the table of predictions.

use std::io::{self, Write};

use super::{
    ERROR, PredictedLabel, Prediction, PredictionColumns, PredictionError, PredictionHeader,
};

/// Writes predictions row by row.
pub struct PredictionWriter<W: Write> {
    writer: csv::Writer<W>,
    header: PredictionHeader,
}

impl<W: Write> PredictionWriter<W> {
    /// Writes the header.
    ///
    /// # Errors
    /// What the system refuses to write.
    pub fn new(into: W, header: &PredictionHeader) -> Result<Self, PredictionError> {
        let mut writer = csv::Writer::from_writer(into);
        let names = header.labels.iter().flat_map(PredictionColumns::names);
        let first = ["path", "patient"].map(str::to_owned);
        let last = header.error.then(|| ERROR.to_owned());
        writer.write_record(first.into_iter().chain(names).chain(last)).map_err(unwritable)?;
        Ok(Self { writer, header: header.clone() })
    }

    /// Writes the row of an image. Numbers are written with as many digits as it takes to read the
    /// same number back.
    ///
    /// # Errors
    /// What the system refuses to write.
    ///
    /// # Panics
    /// If the labels are not as many as there are columns for, or nothing is predicted and the table has
    /// no column for the reason.
    pub fn write(&mut self, prediction: &Prediction) -> Result<(), PredictionError> {
        let mut record = vec![prediction.path.clone(), prediction.patient.clone()];
        match &prediction.told {
            Ok(labels) => {
                assert_eq!(labels.len(), self.header.labels.len(), "one value for each label");
                let labels = self.header.labels.iter().zip(labels);
                record.extend(labels.flat_map(|(columns, label)| fields(columns, label)));
                record.extend(self.header.error.then(String::new));
            }
            Err(reason) => {
                assert!(self.header.error, "the reason has a column");
                let columns = self.header.labels.iter().map(|columns| columns.names().len());
                record.extend(std::iter::repeat_n(String::new(), columns.sum()));
                record.push(reason.clone());
            }
        }
        self.writer.write_record(record).map_err(unwritable)
    }

    /// Hands on what was written.
    ///
    /// # Errors
    /// What the system refuses to write.
    pub fn flush(&mut self) -> Result<(), PredictionError> {
        Ok(self.writer.flush()?)
    }

    /// Writes what is left and gives back what was written into.
    ///
    /// # Errors
    /// What the system refuses to write.
    pub fn finish(self) -> Result<W, PredictionError> {
        Ok(self.writer.into_inner().map_err(csv::IntoInnerError::into_error)?)
    }
}

/// The fields of a label, in the order of its columns.
fn fields(columns: &PredictionColumns, label: &PredictedLabel) -> Vec<String> {
    let number = |number: Option<f64>| number.map(|number| number.to_string()).unwrap_or_default();
    let decision = label.decision.map(|decision| u8::from(decision).to_string());
    let set = label.conformal.map(|set| set.to_string());
    let fields = [
        decision.unwrap_or_default(),
        number(label.truth),
        number(label.spread),
        set.unwrap_or_default(),
    ];
    let told = columns.told().into_iter().zip(fields).filter(|((told, _), _)| *told);
    [label.value.to_string()].into_iter().chain(told.map(|(_, field)| field)).collect()
}

fn unwritable(error: csv::Error) -> PredictionError {
    io::Error::from(error).into()
}
