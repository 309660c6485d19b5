//! Tables with a row for each image: CSV, tab-separated, either of them gzip'd, and Parquet.

mod parquet;
pub(super) mod text;
mod thrift;

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use super::error::DataError;
use crate::screen::Bytes;

/// What stands for an unknown value, beside an empty field: the strings that pandas' `read_csv` takes
/// for NaN (`na_values`, pandas 3.1).
const UNKNOWN: [&str; 18] = [
    "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>",
    "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null",
];

/// A table in memory, every field as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Table {
    path: Arc<Path>,
    header: Vec<String>,
    /// The place of each column by its name.
    places: HashMap<String, usize>,
    records: Vec<Record>,
    /// Whether its numbers have a decimal comma.
    decimal_comma: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Record {
    /// Counted from 1 with the header; in a Parquet file the row's number plus 1, so that a table
    /// has the same lines in either form.
    line: u64,
    /// The fields one after another, and where each of them ends: a table has millions.
    text: Box<str>,
    ends: Box<[u32]>,
}

impl Record {
    /// A row whose fields are `fields`.
    fn of(line: u64, fields: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let (mut text, mut ends) = (String::new(), Vec::new());
        for field in fields {
            text.push_str(field.as_ref());
            // A table has at most 4 GiB of text.
            ends.push(u32::try_from(text.len()).unwrap_or(u32::MAX));
        }
        Self { line, text: text.into(), ends: ends.into() }
    }

    fn field(&self, place: usize) -> &str {
        let begin = place.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[begin as usize..self.ends[place] as usize]
    }

    /// The bytes that it takes of memory.
    fn bytes(&self) -> u64 {
        (size_of::<Self>() + self.text.len() + size_of_val(&*self.ends)) as u64
    }
}

/// The rows of a table as they are read.
struct Records {
    kept: Vec<Record>,
    /// The bytes that they may take of memory, and those that they take.
    most: u64,
    bytes: u64,
}

impl Records {
    fn of_at_most(most: u64) -> Self {
        Self { kept: Vec::new(), most, bytes: 0 }
    }

    /// An error that says why there may be no more.
    fn push(&mut self, record: Record) -> Result<(), String> {
        self.bytes += record.bytes();
        if self.bytes > self.most {
            return Err(too_much(self.most));
        }
        self.kept.push(record);
        Ok(())
    }
}

/// A table of labels is smaller than this, also unpacked.
const MOST_BYTES: u64 = 4 << 30;

/// The bytes that a file of `packed` bytes may unpack to, as text and as rows in memory: tables of labels unpack to ten
/// or thirty times their size, and what is made to fill the memory to a thousand times and more.
fn most_unpacked(packed: u64) -> u64 {
    packed.saturating_mul(100).saturating_add(64 << 20).min(MOST_BYTES)
}

/// Why a table is refused that unpacks to more than that.
fn too_much(most: u64) -> String {
    let most = Bytes(most);
    format!(
        "it unpacks to more than {most}; packed tables may unpack to 64 MiB and 100 times their size"
    )
}

/// How a table is written, told by its file's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Text { delimiter: u8, gzipped: bool },
    Parquet,
}

impl Format {
    fn of(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_string_lossy().to_lowercase();
        let (stem, gzipped) = match name.strip_suffix(".gz") {
            Some(stem) => (stem, true),
            None => (name.as_str(), false),
        };
        match stem.rsplit_once('.')?.1 {
            "csv" | "txt" => Some(Self::Text { delimiter: b',', gzipped }),
            "tsv" | "tab" => Some(Self::Text { delimiter: b'\t', gzipped }),
            "parquet" | "pq" if !gzipped => Some(Self::Parquet),
            _ => None,
        }
    }
}

impl Table {
    /// Reads a table whose first line names its columns. Fields are trimmed, lines without a single
    /// field that is not empty passed over.
    ///
    /// `missing` says what to do when there is no such file.
    ///
    /// # Errors
    /// A file that is missing, unreadable, empty, of no known format, or malformed at some line.
    pub fn read(path: &Path, missing: impl FnOnce() -> String) -> Result<Self, DataError> {
        let shared: Arc<Path> = path.into();
        let (header, records) = match format(path)? {
            Format::Text { delimiter, gzipped } => text::read(path, delimiter, gzipped, missing)?,
            Format::Parquet => parquet::read(path, missing)?,
        };
        let mut places = HashMap::with_capacity(header.len());
        for (place, name) in header.iter().enumerate() {
            if places.insert(name.clone(), place).is_some() {
                let reason = format!("two columns are called `{name}`");
                return Err(malformed(path, Some(1), reason));
            }
        }
        if records.is_empty() {
            let reason = "it has no row below its header".to_owned();
            return Err(DataError::NoImages { table: path.to_owned(), reason });
        }
        Ok(Self { path: shared, header, places, records, decimal_comma: false })
    }

    /// The same, read with a decimal comma where `comma` is true. The numbers of a Parquet file are no
    /// text, and have none.
    pub fn with_decimal_comma(self, comma: bool) -> Self {
        let is_text = matches!(Format::of(&self.path), Some(Format::Text { .. }));
        Self { decimal_comma: comma && is_text, ..self }
    }

    /// Whether a file of that name is a table.
    pub fn is_one(path: &Path) -> bool {
        Format::of(path).is_some()
    }

    /// The names of a table's columns; its rows are not read.
    ///
    /// # Errors
    /// As [`Table::read`], of the header.
    pub fn header(path: &Path, missing: impl FnOnce() -> String) -> Result<Vec<String>, DataError> {
        match format(path)? {
            Format::Text { delimiter, gzipped } => {
                text::begin(path, delimiter, gzipped, missing).map(|(_, header)| header)
            }
            Format::Parquet => parquet::header(path, missing),
        }
    }

    /// The file.
    pub fn path(&self) -> &Arc<Path> {
        &self.path
    }

    /// The place of a column, if there is one of that name.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.places.get(name).copied()
    }

    /// The names of the columns.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.header.iter().map(String::as_str)
    }

    /// The first column that has one of `texts` in one of its fields, and that text.
    pub fn column_with<'a>(&'a self, texts: &[&str]) -> Option<(&'a str, &'a str)> {
        let columns = self.header.iter().enumerate();
        columns.into_iter().find_map(|(place, name)| {
            let fields = self.records.iter().map(|record| record.field(place));
            Some((name.as_str(), fields.into_iter().find(|field| texts.contains(field))?))
        })
    }

    /// The places of columns that must be there; `help` says what to do where some are not.
    ///
    /// # Errors
    /// Names all that are missing.
    pub fn columns(
        &self,
        names: &[&str],
        help: impl FnOnce(&[String]) -> String,
    ) -> Result<Vec<usize>, DataError> {
        let places: Vec<Option<usize>> = names.iter().map(|name| self.column(name)).collect();
        let mut known = HashSet::new();
        let missing = names
            .iter()
            .zip(&places)
            .filter(|(name, place)| place.is_none() && known.insert(**name));
        let missing: Vec<String> = missing.map(|(name, _)| (*name).to_owned()).collect();
        if missing.is_empty() {
            return Ok(places.into_iter().flatten().collect());
        }
        let found = self.header.clone();
        let (table, help) = (self.path.to_path_buf(), help(&missing));
        Err(DataError::MissingColumns { table, missing, found, help })
    }

    /// The rows, in their order.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = TableRow<'_>> {
        self.records.iter().map(|record| TableRow { table: self, record })
    }
}

/// A row of a table.
#[derive(Debug, Clone, Copy)]
pub(super) struct TableRow<'a> {
    table: &'a Table,
    record: &'a Record,
}

impl<'a> TableRow<'a> {
    /// Its line, counted from 1 with the header.
    pub fn line(&self) -> u64 {
        self.record.line
    }

    /// The field in `column`.
    pub fn at(&self, column: usize) -> &'a str {
        self.record.field(column)
    }

    /// Whether the field in `column` says that its value is unknown: it is empty, or what pandas takes
    /// for NaN.
    pub fn is_unknown(&self, column: usize) -> bool {
        let text = self.at(column);
        text.is_empty() || UNKNOWN.contains(&text)
    }

    /// The number in `column`, NaN where it is unknown.
    ///
    /// # Errors
    /// A field that is no number or not `allowed`; `expected` says what may stand there.
    pub fn number(
        &self,
        column: usize,
        expected: &'static str,
        allowed: impl Fn(f32) -> bool,
    ) -> Result<f32, DataError> {
        if self.is_unknown(column) {
            return Ok(f32::NAN);
        }
        let text = self.at(column);
        let with_point = text.replacen(',', ".", 1);
        let numbers = (text.parse::<f32>(), with_point.parse::<f32>());
        if self.table.decimal_comma {
            return match numbers {
                (_, Ok(number)) if allowed(number) && !text.contains('.') => Ok(number),
                (Ok(_), _) if text.contains('.') => {
                    let help = "under `decimal = \",\"` every number has a decimal comma";
                    Err(self.bad(column, expected).helped(help))
                }
                _ => Err(self.bad(column, expected)),
            };
        }
        match numbers {
            (Ok(number), _) if allowed(number) => Ok(number),
            (Err(_), Ok(_)) => {
                let hint = "numbers are written with a decimal point";
                let help = "where all numbers of the table have a comma, write `decimal = \",\"` \
                            beside `table`";
                Err(self.bad(column, format!("{expected}; {hint}: `{with_point}`")).helped(help))
            }
            _ => Err(self.bad(column, expected)),
        }
    }

    /// All rows of the table whose field in `column` is known.
    pub fn all(&self, column: usize) -> impl Iterator<Item = TableRow<'a>> {
        self.table.rows().filter(move |row| !row.is_unknown(column))
    }

    /// Says that the field in `column` means nothing.
    pub fn bad(&self, column: usize, expected: impl Into<String>) -> DataError {
        DataError::BadValue {
            table: self.table.path.to_path_buf(),
            line: self.record.line,
            column: self.table.header[column].clone(),
            value: self.at(column).to_owned(),
            expected: expected.into().into_boxed_str(),
            help: None,
        }
    }
}

fn format(path: &Path) -> Result<Format, DataError> {
    let ending = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
    let reason = match ending.as_str() {
        "xlsx" | "xlsm" | "xls" | "ods" | "numbers" => {
            "it is a spreadsheet's own file; save the table as CSV (in Excel \"CSV UTF-8\"), and write \
             the name of that file"
        }
        _ => "its name ends in none of .csv, .csv.gz, .tsv, .tsv.gz and .parquet",
    };
    Format::of(path).ok_or_else(|| malformed(path, None, reason))
}

fn malformed(path: &Path, line: Option<u64>, reason: impl Into<String>) -> DataError {
    DataError::MalformedTable { table: path.to_owned(), line, reason: reason.into() }
}

/// A table that the system refuses to read.
fn refused(path: &Path, error: std::io::Error, missing: impl FnOnce() -> String) -> DataError {
    match error.kind() {
        std::io::ErrorKind::NotFound => {
            DataError::NoTable { table: path.to_owned(), help: missing() }
        }
        _ => DataError::io("read", path)(error),
    }
}

#[cfg(test)]
mod tests;
