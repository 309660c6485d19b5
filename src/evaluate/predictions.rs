//! The table of predictions: one row an image, for people and their scripts.
//!
//! Its columns are `path`, `patient`, and for each label `<head>/<label>` (the probability, or the
//! number of a `regression` head), `<head>/<label>/decision` (1 or 0; where decisions are made) and
//! `<head>/<label>/truth` (where the truth is told; empty where it is unknown). What follows the first
//! slash is the label, which may hold slashes itself.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use csv::StringRecord;

use crate::data::{UnixLines, line_of};

pub(super) const DECISION: &str = "/decision";
const TRUTH: &str = "/truth";

/// What is told of one label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PredictionColumns {
    /// The head's name, without a slash.
    pub head: String,
    /// The label's.
    pub label: String,
    /// Whether a decision is told.
    pub decision: bool,
    /// Whether the truth is told.
    pub truth: bool,
}

impl PredictionColumns {
    fn name(&self) -> String {
        format!("{}/{}", self.head, self.label)
    }

    /// The columns of the table, the value's first.
    fn names(&self) -> Vec<String> {
        let told = [(self.decision, DECISION), (self.truth, TRUTH)];
        let more = told.into_iter().filter(|(told, _)| *told);
        let more = more.map(|(_, ending)| self.name() + ending);
        [self.name()].into_iter().chain(more).collect()
    }
}

/// One image.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// The image's file, as the data set names it.
    pub path: String,
    /// Whose image it is.
    pub patient: String,
    /// One for each of the [`PredictionColumns`], in their order.
    pub labels: Vec<PredictedLabel>,
}

/// What is predicted of one label of one image.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PredictedLabel {
    /// The probability, or the number.
    pub value: f64,
    /// Whether it is decided positive; `None` where no decision is told.
    pub decision: Option<bool>,
    /// The truth; `None` where it is unknown or not told.
    pub truth: Option<f64>,
}

/// A table of predictions that cannot be used, or not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PredictionError {
    /// A file that the system refuses to read or write, or that is no CSV in UTF-8.
    #[error("`{}`{}: {reason}", file.display(), line.map(|line| format!(", line {line}")).unwrap_or_default())]
    Malformed {
        /// The file.
        file: PathBuf,
        /// The line, where known.
        line: Option<u64>,
        /// What is wrong.
        reason: String,
    },
    /// A header that is not that of such a table.
    #[error("`{}`, line 1, column `{column}`: {reason}", file.display())]
    Header {
        /// The file.
        file: PathBuf,
        /// The column's name.
        column: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A row with fewer or more fields than the header.
    #[error("`{}`, line {line}: the row has {found} columns, the header has {expected}", file.display())]
    WrongRowLength {
        /// The file.
        file: PathBuf,
        /// The line, counted from 1 with the header.
        line: u64,
        /// Columns of the header.
        expected: usize,
        /// Columns of the row.
        found: usize,
    },
    /// A field whose value means nothing.
    #[error("`{}`, line {line}, column `{column}`: `{value}` is not {expected}", file.display())]
    BadValue {
        /// The file.
        file: PathBuf,
        /// The line, counted from 1 with the header.
        line: u64,
        /// The column's name.
        column: String,
        /// The field as it stands there.
        value: String,
        /// What may stand there.
        expected: &'static str,
    },
    /// An image that has two rows with different patients or truths. The same row again is no error: a
    /// data set may list an image twice.
    #[error(
        "`{}`, line {line}: image `{path}` has another patient or another truth than in line {first}",
        file.display()
    )]
    Twice {
        /// The file.
        file: PathBuf,
        /// The line of the second row.
        line: u64,
        /// The image.
        path: String,
        /// The line of the first.
        first: u64,
    },
}

/// Writes predictions row by row.
pub struct PredictionWriter<W: Write> {
    writer: csv::Writer<W>,
    columns: Vec<PredictionColumns>,
    file: PathBuf,
}

impl<W: Write> PredictionWriter<W> {
    /// Writes the header. `file` is only named in errors.
    ///
    /// # Errors
    /// What the system refuses to write.
    pub fn new(
        into: W,
        columns: &[PredictionColumns],
        file: &Path,
    ) -> Result<Self, PredictionError> {
        let mut writer = csv::Writer::from_writer(into);
        let names = columns.iter().flat_map(PredictionColumns::names);
        let first = ["path", "patient"].map(str::to_owned);
        writer.write_record(first.into_iter().chain(names)).map_err(|e| malformed(file, &e))?;
        Ok(Self { writer, columns: columns.to_vec(), file: file.to_owned() })
    }

    /// Writes the row of an image. Numbers are written with as many digits as it takes to read the
    /// same number back.
    ///
    /// # Errors
    /// What the system refuses to write.
    ///
    /// # Panics
    /// If the labels are not as many as there are columns for.
    pub fn write(&mut self, prediction: &Prediction) -> Result<(), PredictionError> {
        assert_eq!(prediction.labels.len(), self.columns.len(), "one value for each label");
        let mut fields = vec![prediction.path.clone(), prediction.patient.clone()];
        for (columns, label) in self.columns.iter().zip(&prediction.labels) {
            fields.push(label.value.to_string());
            if columns.decision {
                let decision = label.decision.map(|decision| u8::from(decision).to_string());
                fields.push(decision.unwrap_or_default());
            }
            if columns.truth {
                fields.push(label.truth.map(|truth| truth.to_string()).unwrap_or_default());
            }
        }
        self.writer.write_record(fields).map_err(|error| malformed(&self.file, &error))
    }

    /// Writes what is left and gives back what was written into.
    ///
    /// # Errors
    /// What the system refuses to write.
    pub fn finish(self) -> Result<W, PredictionError> {
        let reason = |error: String| PredictionError::Malformed {
            file: self.file.clone(),
            line: None,
            reason: error,
        };
        self.writer.into_inner().map_err(|error| reason(error.error().to_string()))
    }
}

/// What the first row of an image says, and its line.
struct First {
    line: u64,
    patient: String,
    truth: Vec<Option<f64>>,
}

/// Reads predictions row by row; after an error there are no more.
pub struct PredictionReader<R: Read> {
    reader: csv::Reader<UnixLines<R>>,
    header: StringRecord,
    columns: Vec<PredictionColumns>,
    file: PathBuf,
    /// The first row of each image.
    first: HashMap<String, First>,
    ended: bool,
}

impl<R: Read> PredictionReader<R> {
    /// Reads the header. `file` is only named in errors.
    ///
    /// # Errors
    /// A file that is unreadable, or a header that is not that of a table of predictions.
    pub fn new(from: R, file: &Path) -> Result<Self, PredictionError> {
        let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(UnixLines::new(from));
        let header = reader.headers().map_err(|error| malformed(file, &error))?.clone();
        let columns = columns_of(&header, file)?;
        let (file, first) = (file.to_owned(), HashMap::new());
        Ok(Self { reader, header, columns, file, first, ended: false })
    }

    /// The labels that the table has.
    pub fn columns(&self) -> &[PredictionColumns] {
        &self.columns
    }

    fn row(&mut self, record: &StringRecord) -> Result<Prediction, PredictionError> {
        let line = line_of(&self.reader, record);
        let (file, expected, found) = (self.file.clone(), self.header.len(), record.len());
        if expected != found {
            return Err(PredictionError::WrongRowLength { file, line, expected, found });
        }
        let row = Row { record, header: &self.header, file: &self.file, line };
        let (path, patient) = (row.text(0)?.to_owned(), row.text(1)?.to_owned());
        let mut place = 2;
        let mut next = || {
            place += 1;
            place - 1
        };
        let mut labels = Vec::with_capacity(self.columns.len());
        for columns in &self.columns {
            let value = row.number(next())?;
            let decision = columns.decision.then(|| row.decision(next())).transpose()?.flatten();
            let truth = columns.truth.then(|| row.truth(next())).transpose()?.flatten();
            labels.push(PredictedLabel { value, decision, truth });
        }
        let truth: Vec<_> = labels.iter().map(|label| label.truth).collect();
        match self.first.get(&path) {
            Some(first) if first.patient != patient || first.truth != truth => {
                return Err(PredictionError::Twice { file, line, path, first: first.line });
            }
            Some(_) => {}
            None => {
                let first = First { line, patient: patient.clone(), truth };
                self.first.insert(path.clone(), first);
            }
        }
        Ok(Prediction { path, patient, labels })
    }
}

impl<R: Read> Iterator for PredictionReader<R> {
    type Item = Result<Prediction, PredictionError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let mut record = StringRecord::new();
        let read = match self.reader.read_record(&mut record) {
            Ok(true) => Some(self.row(&record)),
            Ok(false) => None,
            Err(error) => Some(Err(malformed(&self.file, &error))),
        };
        self.ended = !matches!(read, Some(Ok(_)));
        read
    }
}

/// A row with what its errors name.
struct Row<'a> {
    record: &'a StringRecord,
    header: &'a StringRecord,
    file: &'a Path,
    line: u64,
}

impl Row<'_> {
    fn bad(&self, place: usize, expected: &'static str) -> PredictionError {
        PredictionError::BadValue {
            file: self.file.to_owned(),
            line: self.line,
            column: self.header[place].to_owned(),
            value: shortened(&self.record[place]),
            expected,
        }
    }

    fn text(&self, place: usize) -> Result<&str, PredictionError> {
        let text = &self.record[place];
        if text.is_empty() { Err(self.bad(place, "a name")) } else { Ok(text) }
    }

    fn number(&self, place: usize) -> Result<f64, PredictionError> {
        let number = self.record[place].parse::<f64>().ok().filter(|number| number.is_finite());
        number.ok_or_else(|| self.bad(place, "a finite number"))
    }

    fn decision(&self, place: usize) -> Result<Option<bool>, PredictionError> {
        match &self.record[place] {
            "1" => Ok(Some(true)),
            "0" => Ok(Some(false)),
            "" => Ok(None),
            _ => Err(self.bad(place, "1, 0 or empty")),
        }
    }

    fn truth(&self, place: usize) -> Result<Option<f64>, PredictionError> {
        match &self.record[place] {
            "" => Ok(None),
            _ => self.number(place).map(Some),
        }
    }
}

/// The labels that a header has columns for.
fn columns_of(
    header: &StringRecord,
    file: &Path,
) -> Result<Vec<PredictionColumns>, PredictionError> {
    let fault = |column: &str, reason: String| PredictionError::Header {
        file: file.to_owned(),
        column: shortened(column),
        reason,
    };
    for (place, expected) in ["path", "patient"].into_iter().enumerate() {
        let found = header.get(place).unwrap_or_default();
        if found != expected {
            let reason = format!("column {} of a table of predictions is `{expected}`", place + 1);
            return Err(fault(found, reason));
        }
    }
    let mut columns: Vec<PredictionColumns> = Vec::new();
    let mut places = HashMap::new();
    for (place, name) in header.iter().enumerate() {
        if let Some(first) = places.insert(name, place) {
            let reason = format!("columns {} and {} have this name", first + 1, place + 1);
            return Err(fault(name, reason));
        }
    }
    let mut names = header.iter().skip(2).peekable();
    while let Some(name) = names.next() {
        let named =
            name.split_once('/').filter(|(head, label)| !head.is_empty() && !label.is_empty());
        let Some((head, label)) = named else {
            let reason = "the columns after `patient` are called `<head>/<label>`".to_owned();
            return Err(fault(name, reason));
        };
        let mut follows = |ending: &str| {
            names.next_if(|next| next.strip_suffix(ending).is_some_and(|of| of == name)).is_some()
        };
        let (decision, truth) = (follows(DECISION), follows(TRUTH));
        let (head, label) = (head.to_owned(), label.to_owned());
        columns.push(PredictionColumns { head, label, decision, truth });
    }
    if columns.is_empty() {
        return Err(fault("patient", "no column of predictions follows it".to_owned()));
    }
    Ok(columns)
}

/// As much of a field as an error shows.
fn shortened(text: &str) -> String {
    const MOST: usize = 60;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn malformed(file: &Path, error: &csv::Error) -> PredictionError {
    let (line, reason) = match error.kind() {
        csv::ErrorKind::Utf8 { pos, err } => {
            let line = pos.as_ref().map(csv::Position::line);
            (line, format!("column {} is no text in UTF-8", err.field() + 1))
        }
        csv::ErrorKind::Io(error) => (None, error.to_string()),
        _ => (error.position().map(csv::Position::line), error.to_string()),
    };
    PredictionError::Malformed { file: file.to_owned(), line, reason }
}

#[cfg(test)]
#[path = "predictions_tests.rs"]
mod tests;
