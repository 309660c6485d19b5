//! Published tables: CSV with a header, perhaps gzip'd, read row by row and blamed by line and
//! column.

use std::cell::Cell;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use csv::StringRecord;

use super::Row;
use crate::data::error::DataError;
use crate::data::labels::nearest;
use crate::data::table::text::{self, line_of, said};

/// What a row may take at most: a quotation mark that is never closed, or a small file that unpacks
/// to a line without end, must not fill the memory.
const LONGEST_ROW: usize = 16 << 20;

/// A table that is being read.
pub(super) struct Sheet {
    pub path: Arc<Path>,
    pub header: StringRecord,
    gzipped: bool,
    reader: csv::Reader<Metered>,
    left: Rc<Cell<usize>>,
}

/// A reader that refuses to go on when `left` bytes have been read.
struct Metered {
    inner: Box<dyn Read>,
    left: Rc<Cell<usize>>,
}

impl Read for Metered {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.left.get();
        if left == 0 && !buffer.is_empty() {
            let reason = "a row is longer than 16 MiB; is a quotation mark not closed?";
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        let count = self.inner.read(buffer)?;
        self.left.set(left.saturating_sub(count));
        Ok(count)
    }
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
        let mut sheet = Self::start(path, true, missing)?;
        let header = sheet.reader.headers().map_err(|error| said(path, error, sheet.gzipped))?;
        sheet.header = header.clone();
        sheet.header.trim();
        match sheet.header.is_empty() {
            false => Ok(sheet),
            true => {
                let (table, reason) = (path.to_owned(), "the file is empty".to_owned());
                Err(DataError::MalformedTable { table, line: None, reason })
            }
        }
    }

    /// Opens a table without a header, whose only column is called `column` in messages.
    pub fn open_bare(
        path: &Path,
        column: &str,
        missing: impl FnOnce() -> String,
    ) -> Result<Self, DataError> {
        let sheet = Self::start(path, false, missing)?;
        Ok(Self { header: StringRecord::from(vec![column]), ..sheet })
    }

    fn start(
        path: &Path,
        headed: bool,
        missing: impl FnOnce() -> String,
    ) -> Result<Self, DataError> {
        let gzipped = path.extension().is_some_and(|extension| extension == "gz");
        let left = Rc::new(Cell::new(LONGEST_ROW));
        let inner = text::open(path, gzipped, missing)?;
        let mut builder = csv::ReaderBuilder::new();
        let builder = builder.flexible(true).has_headers(headed);
        let reader = builder.from_reader(Metered { inner, left: left.clone() });
        Ok(Self { path: path.into(), header: StringRecord::new(), gzipped, reader, left })
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
            if self.header.iter().filter(|column| *column == name).count() > 1 {
                let reason = format!("two columns are called `{name}`");
                let table = self.path.to_path_buf();
                return Err(DataError::MalformedTable { table, line: Some(1), reason });
            }
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
        self.left.set(LONGEST_ROW);
        let unreadable = |error| said(&self.path, error, self.gzipped);
        while self.reader.read_record(&mut record).map_err(unreadable)? {
            let line = line_of(&self.reader, &record);
            let (expected, found) = (self.header.len(), record.len());
            if found != expected {
                let table = self.path.to_path_buf();
                if self.reader.has_headers() {
                    return Err(DataError::WrongRowLength { table, line, expected, found });
                }
                let reason = format!("the row has {found} columns, not {expected}");
                return Err(DataError::MalformedTable { table, line: Some(line), reason });
            }
            take(&Fields { table: &self.path, line, record: &record })?;
            rows += 1;
            self.left.set(LONGEST_ROW);
        }
        if rows == 0 {
            let headed = self.reader.has_headers();
            let reason = if headed { "it has no row below its header" } else { "it is empty" };
            let reason = reason.to_owned();
            return Err(DataError::NoImages { table: self.path.to_path_buf(), reason });
        }
        Ok(())
    }
}

impl Fields<'_> {
    /// Empty for a column that the table lacks.
    pub fn at(&self, column: Option<usize>) -> &str {
        column.and_then(|column| self.record.get(column)).unwrap_or_default().trim()
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

    /// A field that must not be empty.
    pub fn text(
        &self,
        column: Option<usize>,
        name: &str,
        expected: &str,
    ) -> Result<&str, DataError> {
        match self.at(column) {
            "" => Err(self.bad(name, "", expected)),
            text => Ok(text),
        }
    }

    /// The row of an image whose path is made by the layout.
    pub fn row(&self, path: PathBuf, patient: &str, values: Vec<f32>) -> Row {
        Row {
            path,
            item: None,
            table: self.table.clone(),
            line: self.line,
            patient: patient.to_owned(),
            values,
        }
    }

    /// The error for a row that repeats another; `what` is what it is about, such as "the study `7`".
    pub fn twice(&self, what: &str) -> DataError {
        DataError::MalformedTable {
            table: self.table.to_path_buf(),
            line: Some(self.line),
            reason: format!("{what} stands in the table twice"),
        }
    }

    /// The error for a field that means nothing.
    pub fn bad(&self, column: &str, value: &str, expected: impl Into<String>) -> DataError {
        DataError::BadValue {
            table: self.table.to_path_buf(),
            line: self.line,
            column: column.to_owned(),
            value: value.to_owned(),
            expected: expected.into().into_boxed_str(),
            help: None,
        }
    }
}

/// What may stand in a field that names one of many, for [`Fields::bad`].
pub(super) fn one_of(what: &str, value: &str, known: &[&str]) -> String {
    match nearest(value, known) {
        Some(meant) => format!("{what}; did you mean `{meant}`?"),
        None => what.to_owned(),
    }
}

/// The first of `names` that is a file below `root`, or the first of all.
pub(super) fn first_file(root: &Path, names: &[&str]) -> PathBuf {
    let mut paths = names.iter().map(|name| root.join(name));
    let found = paths.clone().find(|path| path.is_file());
    found.or_else(|| paths.next()).unwrap_or_else(|| root.to_owned())
}

/// What a folder holds, for who named the wrong one; `expected` describes the right one.
pub(super) fn expected_folder(root: &Path, expected: &str, mark: &str) -> String {
    // That there is no such folder at all was seen before.
    let Ok(entries) = fs::read_dir(root) else { return expected.to_owned() };
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    if let Some(inner) = names.iter().find(|name| root.join(name).join(mark).is_file()) {
        return format!("{expected}; did you mean `{}`?", root.join(inner).display());
    }
    if names.is_empty() {
        return format!("{expected}; the folder is empty");
    }
    let more = if names.len() > 5 { ", …" } else { "" };
    names.truncate(5);
    format!("{expected}; the folder holds {}{more}", names.join(", "))
}
