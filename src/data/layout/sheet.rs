//! Published tables: CSV with a header, perhaps gzip'd, read row by row and blamed by line and
//! column.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use csv::StringRecord;

use crate::data::error::DataError;

/// A table that is being read.
pub(super) struct Sheet {
    pub path: Arc<Path>,
    pub header: StringRecord,
    reader: csv::Reader<Box<dyn Read>>,
}

/// A row and where it stands.
pub(super) struct Fields<'a> {
    pub table: &'a Arc<Path>,
    pub line: u64,
    pub record: &'a StringRecord,
}

impl Sheet {
    /// Opens the table at `path` and reads its header. `missing` tells what to do where there is no
    /// such file.
    pub fn open(path: &Path, missing: impl FnOnce() -> String) -> Result<Self, DataError> {
        let file = open(path, missing)?;
        let mut reader =
            csv::ReaderBuilder::new().flexible(true).trim(csv::Trim::All).from_reader(file);
        let path: Arc<Path> = path.into();
        let header = reader.headers().map_err(|error| malformed(&path, error))?.clone();
        if header.is_empty() {
            let reason = "the file is empty".to_owned();
            return Err(DataError::MalformedTable {
                table: path.to_path_buf(),
                line: None,
                reason,
            });
        }
        Ok(Self { path, header, reader })
    }

    /// Where a column stands.
    pub fn place(&self, name: &str) -> Option<usize> {
        self.header.iter().position(|column| column == name)
    }

    /// Refuses a table without one of the `needed` columns. `expected` says which columns such a
    /// table has.
    pub fn require<'a>(
        &self,
        needed: impl IntoIterator<Item = &'a str>,
        expected: &str,
    ) -> Result<(), DataError> {
        let mut missing: Vec<String> = Vec::new();
        for name in needed {
            if self.place(name).is_none() && !missing.iter().any(|known| known == name) {
                missing.push(name.to_owned());
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        Err(DataError::MissingColumns {
            table: self.path.to_path_buf(),
            missing,
            found: self.header.iter().map(str::to_owned).collect(),
            help: format!("the first line of the table must name the columns as {expected}"),
        })
    }

    /// Gives every row to `take`, in order.
    pub fn rows(
        mut self,
        mut take: impl FnMut(&Fields) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        let mut record = StringRecord::new();
        let mut rows = 0_u64;
        while self.reader.read_record(&mut record).map_err(|error| malformed(&self.path, error))? {
            let line = record.position().map_or(0, csv::Position::line);
            let (expected, found) = (self.header.len(), record.len());
            if found != expected {
                let table = self.path.to_path_buf();
                return Err(DataError::WrongRowLength { table, line, expected, found });
            }
            take(&Fields { table: &self.path, line, record: &record })?;
            rows += 1;
        }
        if rows == 0 {
            let reason = "it has no row below its header".to_owned();
            return Err(DataError::NoImages { table: self.path.to_path_buf(), reason });
        }
        Ok(())
    }
}

/// The bytes of a file, unpacked where its name ends in `.gz`.
pub(super) fn open(
    path: &Path,
    missing: impl FnOnce() -> String,
) -> Result<Box<dyn Read>, DataError> {
    match File::open(path) {
        Ok(file) if path.extension().is_some_and(|extension| extension == "gz") => {
            Ok(Box::new(flate2::read::MultiGzDecoder::new(io::BufReader::new(file))))
        }
        Ok(file) => Ok(Box::new(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(DataError::NoTable { table: path.to_owned(), help: missing() })
        }
        Err(error) => Err(DataError::io("read", path)(error)),
    }
}

fn malformed(table: &Path, error: csv::Error) -> DataError {
    let line = error.position().map(csv::Position::line);
    let text = error.to_string();
    let reason = match error.into_kind() {
        csv::ErrorKind::Io(source) => return DataError::io("read", table)(source),
        csv::ErrorKind::Utf8 { err, .. } => format!("it is not UTF-8 text ({err})"),
        _ => text,
    };
    DataError::MalformedTable { table: table.to_owned(), line, reason }
}

impl Fields<'_> {
    /// Empty for a column that the table lacks.
    pub fn at(&self, column: Option<usize>) -> &str {
        column.and_then(|column| self.record.get(column)).unwrap_or_default()
    }

    /// The number in a field; NaN for an empty one.
    pub fn number(
        &self,
        column: Option<usize>,
        name: &str,
        expected: &'static str,
        allowed: impl Fn(f32) -> bool,
    ) -> Result<f32, DataError> {
        match self.at(column) {
            "" => Ok(f32::NAN),
            text => match text.parse() {
                Ok(number) if allowed(number) => Ok(number),
                _ => Err(self.bad(name, text, expected)),
            },
        }
    }

    /// The error for a field that means nothing.
    pub fn bad(&self, column: &str, value: &str, expected: impl Into<String>) -> DataError {
        DataError::BadValue {
            table: self.table.to_path_buf(),
            line: self.line,
            column: column.to_owned(),
            value: value.to_owned(),
            expected: expected.into(),
        }
    }
}
