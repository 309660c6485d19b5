//! Reads the table of predictions.

use std::collections::HashMap;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

use csv::StringRecord;

use super::{
    CONFORMAL, DECISION, ERROR, PredictedLabel, PredictedSet, Prediction, PredictionColumns,
    PredictionError, PredictionHeader, SPREAD, TRUTH,
};
use crate::data::{UnixLines, line_of};

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
    told: PredictionHeader,
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
        let told = told_by(&header, file)?;
        let (file, first) = (file.to_owned(), HashMap::new());
        Ok(Self { reader, header, told, file, first, ended: false })
    }

    /// What the table tells.
    pub fn header(&self) -> &PredictionHeader {
        &self.told
    }

    /// The labels that the table has.
    pub fn columns(&self) -> &[PredictionColumns] {
        &self.told.labels
    }

    fn row(&mut self, record: &StringRecord) -> Result<Prediction, PredictionError> {
        let line = line_of(&self.reader, record);
        let (file, expected, found) = (self.file.clone(), self.header.len(), record.len());
        if expected != found {
            return Err(PredictionError::WrongRowLength { file, line, expected, found });
        }
        let row = Row { record, header: &self.header, file: &self.file, line };
        let (path, patient) = (row.text(0)?.to_owned(), row.text(1)?.to_owned());
        let reason = self.told.error.then(|| &record[record.len() - 1]);
        let told = match reason.filter(|reason| !reason.is_empty()) {
            Some(reason) => {
                row.nothing(2..record.len() - 1)?;
                Err(reason.to_owned())
            }
            None => Ok(row.labels(&self.told.labels)?),
        };
        let truth = told.iter().flatten().map(|label| label.truth).collect();
        let first = First { line, patient, truth };
        match self.first.get(&path) {
            Some(of) if of.patient != first.patient || of.truth != first.truth => {
                Err(PredictionError::Twice { file, line, path, first: of.line })
            }
            Some(of) => Ok(Prediction { path, patient: of.patient.clone(), told }),
            None => {
                let patient = first.patient.clone();
                self.first.insert(path.clone(), first);
                Ok(Prediction { path, patient, told })
            }
        }
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

    /// The labels that follow path and patient.
    fn labels(
        &self,
        columns: &[PredictionColumns],
    ) -> Result<Vec<PredictedLabel>, PredictionError> {
        let mut places = 2..;
        let mut next = || places.next().unwrap_or_default();
        let mut labels = Vec::with_capacity(columns.len());
        for columns in columns {
            let mut label = PredictedLabel { value: self.number(next())?, ..Default::default() };
            if columns.decision {
                label.decision = self.decision(next())?;
            }
            if columns.truth {
                label.truth = self.number_or_none(next())?;
            }
            if columns.spread {
                label.spread = self.number_or_none(next())?;
            }
            if columns.conformal {
                label.conformal = self.set(next())?;
            }
            labels.push(label);
        }
        Ok(labels)
    }

    /// Checks that a row with an error says nothing else.
    fn nothing(&self, mut places: Range<usize>) -> Result<(), PredictionError> {
        match places.find(|&place| !self.record[place].is_empty()) {
            Some(place) => Err(self.bad(place, "empty, though the row has an error")),
            None => Ok(()),
        }
    }

    fn set(&self, place: usize) -> Result<Option<PredictedSet>, PredictionError> {
        let text = &self.record[place];
        match PredictedSet::read(text) {
            None if !text.is_empty() => Err(self.bad(place, "{}, {0}, {1}, {0,1}, 1, 0 or empty")),
            set => Ok(set),
        }
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

    fn number_or_none(&self, place: usize) -> Result<Option<f64>, PredictionError> {
        match &self.record[place] {
            "" => Ok(None),
            _ => self.number(place).map(Some),
        }
    }
}

/// What a table with this header tells.
fn told_by(header: &StringRecord, file: &Path) -> Result<PredictionHeader, PredictionError> {
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
    let mut told = PredictionHeader::default();
    let mut places = HashMap::new();
    for (place, name) in header.iter().enumerate() {
        if let Some(first) = places.insert(name, place) {
            let reason = format!("columns {} and {} have this name", first + 1, place + 1);
            return Err(fault(name, reason));
        }
    }
    let mut names = header.iter().skip(2).peekable();
    while let Some(name) = names.next() {
        if name == ERROR && names.peek().is_none() {
            told.error = true;
            break;
        }
        let named =
            name.split_once('/').filter(|(head, label)| !head.is_empty() && !label.is_empty());
        let Some((head, label)) = named else {
            let reason = "the columns after `patient` are called `<head>/<label>`".to_owned();
            return Err(fault(name, reason));
        };
        let ends =
            |ending: &str| name.strip_suffix(ending).is_some_and(|of| places.contains_key(of));
        if [DECISION, TRUTH, SPREAD, CONFORMAL].into_iter().any(ends) {
            let reason = format!(
                "the columns of a label have this order: `<head>/<label>`, `{DECISION}`, \
                 `{TRUTH}`, `{SPREAD}`, `{CONFORMAL}`"
            );
            return Err(fault(name, reason));
        }
        let mut follows = |ending: &str| {
            names.next_if(|next| next.strip_suffix(ending).is_some_and(|of| of == name)).is_some()
        };
        told.labels.push(PredictionColumns {
            head: head.to_owned(),
            label: label.to_owned(),
            decision: follows(DECISION),
            truth: follows(TRUTH),
            spread: follows(SPREAD),
            conformal: follows(CONFORMAL),
        });
    }
    if told.labels.is_empty() {
        return Err(fault("patient", "no column of predictions follows it".to_owned()));
    }
    Ok(told)
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
