//! Comma- and tab-separated text, plain or gzip'd.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use csv::StringRecord;
use flate2::read::MultiGzDecoder;

use super::{DataError, MOST_BYTES, Record, Records, malformed, most_unpacked, refused, too_much};
use crate::data::opened::note_file;
use crate::paths::open_file;

type Reader = csv::Reader<Box<dyn Read>>;

pub(super) fn read(
    path: &Path,
    delimiter: u8,
    gzipped: bool,
    missing: impl FnOnce() -> String,
) -> Result<(Vec<String>, Vec<Record>), DataError> {
    let (mut reader, header) = begin(path, delimiter, gzipped, missing)?;
    let unreadable = |error: csv::Error| said_of(path, error, gzipped, &header);
    // Rows that are not packed are bounded by the file's length.
    let most = if gzipped { most_unpacked(packed_bytes(path)?) } else { u64::MAX };
    let mut records = Records::of_at_most(most);
    let mut record = StringRecord::new();
    while reader.read_record(&mut record).map_err(unreadable)? {
        let line = line_of(&reader, &record);
        // Spreadsheets write rows of separators alone below a table.
        if record.iter().all(|field| field.trim().is_empty()) {
            continue;
        }
        if record.len() != header.len() {
            let (expected, found) = (header.len(), record.len());
            return Err(DataError::WrongRowLength {
                table: path.to_owned(),
                line,
                expected,
                found,
            });
        }
        let record = Record::of(line, record.iter().map(str::trim));
        records.push(record).map_err(|reason| malformed(path, Some(line), reason))?;
    }
    Ok((header, records.kept))
}

/// Opens a table and reads its header, separated by `delimiter` or by what separates it in fact.
pub(super) fn begin(
    path: &Path,
    delimiter: u8,
    gzipped: bool,
    missing: impl FnOnce() -> String,
) -> Result<(Reader, Vec<String>), DataError> {
    let (reader, header) = begin_with(path, delimiter, gzipped, missing)?;
    if let Some(told) = told_delimiter(&header, delimiter) {
        let (mut reader, _) = begin_with(path, told, gzipped, String::new)?;
        let mut names = StringRecord::new();
        reader.read_record(&mut names).map_err(|error| said(path, error, gzipped))?;
        return Ok((reader, trimmed(&names)));
    }
    match other_delimiter(&header).filter(|other| *other != delimiter) {
        None => Ok((reader, header)),
        Some(other) => begin_with(path, other, gzipped, String::new),
    }
}

fn begin_with(
    path: &Path,
    delimiter: u8,
    gzipped: bool,
    missing: impl FnOnce() -> String,
) -> Result<(Reader, Vec<String>), DataError> {
    let mut reader = csv::ReaderBuilder::new()
        .delimiter(delimiter)
        .flexible(true)
        .from_reader(open(path, gzipped, missing)?);
    let header = trimmed(reader.headers().map_err(|error| said(path, error, gzipped))?);
    match header.is_empty() {
        true => Err(malformed(path, None, "the file is empty")),
        false => Ok((reader, header)),
    }
}

/// The separator that a first line says it is which names no columns, as Excel's `sep=;` does.
fn told_delimiter(first: &[String], delimiter: u8) -> Option<u8> {
    let text = first.first()?.to_lowercase();
    match (text.strip_prefix("sep=")?.as_bytes(), first) {
        ([told], [_]) => Some(*told),
        // A tab is trimmed from a field.
        ([], [_]) => Some(b'\t'),
        // The line was split at the separator that it names.
        ([], [_, others @ ..]) if others.iter().all(String::is_empty) => Some(delimiter),
        _ => None,
    }
}

/// The separator that a header of a single field seems to have: where the comma is the decimal sign,
/// spreadsheets write semicolons, and tabs are found under any name.
fn other_delimiter(header: &[String]) -> Option<u8> {
    let [only] = header else { return None };
    let count = |delimiter: &u8| only.bytes().filter(|byte| byte == delimiter).count();
    [b',', b'\t', b';'].into_iter().filter(|delimiter| count(delimiter) > 0).max_by_key(count)
}

/// The text of a file, unpacked where it is `gzipped`, with lines that can be counted.
pub(in crate::data) fn open(
    path: &Path,
    gzipped: bool,
    missing: impl FnOnce() -> String,
) -> Result<Box<dyn Read>, DataError> {
    let file = open_file(path).map_err(|error| refused(path, error, missing))?;
    note_file(path);
    if !gzipped {
        return Ok(Box::new(UnixLines::new(file)));
    }
    let packed = packed_bytes(path)?;
    let bytes = MultiGzDecoder::new(io::BufReader::new(file));
    Ok(Box::new(UnixLines::of_at_most(bytes, most_unpacked(packed))))
}

fn packed_bytes(path: &Path) -> Result<u64, DataError> {
    fs::metadata(path).map(|metadata| metadata.len()).map_err(DataError::io("read", path))
}

/// The line at which the record begins that `reader`, over [`UnixLines`], has just read.
pub(crate) fn line_of<R: Read>(reader: &csv::Reader<R>, record: &StringRecord) -> u64 {
    // Where the reader says that the record begins, it may still pass over empty lines.
    let within = record.iter().flat_map(str::bytes).filter(|byte| *byte == b'\n').count();
    reader.position().line().saturating_sub(1 + within as u64)
}

fn trimmed(record: &StringRecord) -> Vec<String> {
    record.iter().map(|field| field.trim().to_owned()).collect()
}

/// The error of a reader over what [`open`] gives.
pub(in crate::data) fn said(path: &Path, error: csv::Error, gzipped: bool) -> DataError {
    said_of(path, error, gzipped, &[])
}

/// The same where the names of the columns are known.
fn said_of(path: &Path, error: csv::Error, gzipped: bool, header: &[String]) -> DataError {
    let line = error.position().map(csv::Position::line);
    let reason = match error.kind() {
        csv::ErrorKind::Utf8 { .. } if !gzipped && is_utf_16(path) => {
            "it is UTF-16 text (Excel's \"Unicode Text\"); save it as UTF-8 (in Excel \"CSV UTF-8\")"
                .to_owned()
        }
        csv::ErrorKind::Utf8 { err, .. } => {
            let column = match header.get(err.field()) {
                Some(name) => format!("`{name}`"),
                None => (err.field() + 1).to_string(),
            };
            format!(
                "it is not UTF-8 text (in column {column}); save it as UTF-8 (in Excel \"CSV UTF-8\")"
            )
        }
        csv::ErrorKind::Io(source) if gzipped => format!("it does not unpack ({source})"),
        csv::ErrorKind::Io(_) => match error.into_kind() {
            csv::ErrorKind::Io(source) => return DataError::io("read", path)(source),
            other => format!("{other:?}"),
        },
        _ => error.to_string(),
    };
    malformed(path, line, reason)
}

/// Whether a file begins with UTF-16's mark.
fn is_utf_16(path: &Path) -> bool {
    let mut mark = [0; 2];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut mark));
    read.is_ok() && matches!(mark, [0xFF, 0xFE] | [0xFE, 0xFF])
}

/// Text whose every line ends in one line feed, the last too, so that lines can be counted; an
/// error where it would go on past a limit.
pub(crate) struct UnixLines<R> {
    bytes: R,
    /// The bytes that there may be, and those that there may still be.
    most: u64,
    left: u64,
    last: u8,
    /// Whether `last` is a carriage return that was not handed on yet.
    held: bool,
}

impl<R> UnixLines<R> {
    pub fn new(bytes: R) -> Self {
        Self::of_at_most(bytes, MOST_BYTES)
    }

    fn of_at_most(bytes: R, most: u64) -> Self {
        Self { bytes, most, left: most, last: b'\n', held: false }
    }
}

impl<R: Read> Read for UnixLines<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // One place is left for a carriage return that turns out to stand alone.
        let Some(room) = buffer.len().checked_sub(1).filter(|room| *room > 0) else {
            return Err(io::Error::other("the buffer is too small"));
        };
        loop {
            let mut raw = vec![0; room.div_ceil(2)];
            let read = self.bytes.read(&mut raw)?;
            self.left = self
                .left
                .checked_sub(read as u64)
                .ok_or_else(|| io::Error::other(too_much(self.most)))?;
            if read == 0 {
                let ended = std::mem::replace(&mut self.last, b'\n') == b'\n';
                self.held = false;
                buffer[0] = b'\n';
                return Ok(usize::from(!ended));
            }
            let mut written = 0;
            for &byte in &raw[..read] {
                if self.held && byte != b'\n' {
                    buffer[written] = b'\r';
                    written += 1;
                }
                self.held = byte == b'\r';
                self.last = byte;
                if !self.held {
                    buffer[written] = byte;
                    written += 1;
                }
            }
            if written > 0 {
                return Ok(written);
            }
        }
    }
}
