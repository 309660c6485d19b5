//! Apache Parquet: flat columns of text, numbers and booleans.

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

use parquet::basic::Repetition;
use parquet::data_type::ByteArray;
use parquet::errors::{self, ParquetError};
use parquet::file::reader::{ChunkReader, FileReader, Length, SerializedFileReader};
use parquet::record::Field;
use parquet::schema::types::Type;
use prost::bytes::Bytes;

use super::thrift::{self, walk_struct};
use super::{DataError, Record, Records, malformed, most_unpacked, refused};
use crate::contain::contained;
use crate::data::opened::note_file;
use crate::paths::open_file;

pub(super) fn read(
    path: &Path,
    missing: impl FnOnce() -> String,
) -> Result<(Vec<String>, Vec<Record>), DataError> {
    let file = open_file(path).map_err(|error| refused(path, error, missing))?;
    note_file(path);
    decoding(path, || decode(path, file))
}

/// The names of the columns.
pub(super) fn header(
    path: &Path,
    missing: impl FnOnce() -> String,
) -> Result<Vec<String>, DataError> {
    let file = open_file(path).map_err(|error| refused(path, error, missing))?;
    decoding(path, || begin(path, file).map(|(_, header)| header))
}

/// What `decode` gives; an error where it panics.
fn decoding<T>(path: &Path, decode: impl FnOnce() -> Result<T, DataError>) -> Result<T, DataError> {
    contained(decode).unwrap_or_else(|panic| {
        Err(malformed(path, None, format!("it does not decode (the decoder failed: {panic})")))
    })
}

fn broken(path: &Path, line: Option<u64>, error: &ParquetError) -> DataError {
    malformed(path, line, format!("it does not decode ({error})"))
}

/// A file with an end: `parquet` skips what a page's header claims to hold, element by element, and goes on for
/// hours where the file is over.
struct Ended {
    file: File,
    /// What a page may unpack to.
    most: u64,
}

impl Length for Ended {
    fn len(&self) -> u64 {
        Length::len(&self.file)
    }
}

impl ChunkReader for Ended {
    type T = EndedReader<<File as ChunkReader>::T>;

    /// From here on a page's header is read, or the last bytes, which say how long the footer is. (Columns of many
    /// values a row, which look at headers ahead, are refused before.)
    fn get_read(&self, start: u64) -> errors::Result<Self::T> {
        if start.checked_add(TAIL) != Some(Length::len(&self.file)) {
            check_page(&mut EndedReader(self.file.get_read(start)?), self.most)?;
        }
        self.file.get_read(start).map(EndedReader)
    }

    fn get_bytes(&self, start: u64, length: usize) -> errors::Result<Bytes> {
        self.file.get_bytes(start, length)
    }
}

/// It is an error to read on at the end.
struct EndedReader<R>(R);

impl<R: Read> Read for EndedReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer)? {
            0 if !buffer.is_empty() => Err(ErrorKind::UnexpectedEof.into()),
            read => Ok(read),
        }
    }
}

/// The bytes at a file's end: how long its footer is, and `PAR1`.
const TAIL: u64 = 8;

/// An error where the footer cannot be read to its end in a time that its length bounds. Where there is no footer,
/// `parquet` says so.
fn check_footer(mut file: &File) -> errors::Result<()> {
    let Some(end) = Length::len(file).checked_sub(TAIL) else { return Ok(()) };
    let mut length = [0; 4];
    file.seek(SeekFrom::Start(end))?;
    file.read_exact(&mut length)?;
    let length = u64::from(u32::from_le_bytes(length));
    let Some(begin) = end.checked_sub(length) else { return Ok(()) };
    file.seek(SeekFrom::Start(begin))?;
    let mut footer = BufReader::new(file.take(length));
    walk_struct(&mut footer, type_in_footer, |_, _| Ok(())).map_err(general)
}

/// An error where a page's header cannot be read so, or announces a dictionary that takes more memory than `most` bytes:
/// `parquet` takes that memory before it looks at the values.
fn check_page(input: &mut impl Read, most: u64) -> errors::Result<()> {
    let values = most / size_of::<ByteArray>() as u64;
    let note = |place: &[i16], number: i64| match place {
        [7, 1] if u64::try_from(number).is_ok_and(|number| number > values) => Err(io::Error::new(
            ErrorKind::InvalidData,
            format!("a dictionary of {number} values is more than such a file holds"),
        )),
        _ => Ok(()),
    };
    walk_struct(input, type_in_page, note).map_err(general)
}

#[expect(clippy::needless_pass_by_value, reason = "it is called by `map_err`")]
fn general(error: io::Error) -> ParquetError {
    ParquetError::General(error.to_string())
}

/// The type of a field of `FileMetaData`, of those that `parquet` reads
/// (<https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift>).
fn type_in_footer(place: &[i16]) -> Option<thrift::Type> {
    use thrift::Type::{Binary, Bool, Byte, Double, Integer, List, Struct};
    Some(match place {
        [1 | 3] => Integer,
        [2 | 4 | 5 | 7] => List(&Struct),
        [6] => Binary,
        // The schema's elements, and their logical types.
        [2, 4] => Binary,
        [2, 10] => Struct,
        [2, 1..=9] => Integer,
        [2, 10, 1..=18] => Struct,
        [2, 10, 5, 1 | 2] => Integer,
        [2, 10, 7 | 8, 1] => Bool,
        [2, 10, 7 | 8, 2] | [2, 10, 7 | 8, 2, 1..=3] => Struct,
        [2, 10, 10 | 16, 1] => Byte,
        [2, 10, 10, 2] => Bool,
        [2, 10, 17 | 18, 1] => Binary,
        [2, 10, 18, 2] => Integer,
        // The groups of rows, what they are sorted by, and their columns.
        [4, 1 | 4] => List(&Struct),
        [4, 2 | 3 | 5..=7] => Integer,
        [4, 4, 1] => Integer,
        [4, 4, 2 | 3] => Bool,
        [4, 1, 1] => Binary,
        [4, 1, 3] => Struct,
        [4, 1, 2 | 4..=7] => Integer,
        [4, 1, 3, 2] => List(&Integer),
        [4, 1, 3, 3] => List(&Binary),
        [4, 1, 3, 8 | 13] => List(&Struct),
        [4, 1, 3, 12 | 16 | 17] => Struct,
        [4, 1, 3, 1..=15] | [4, 1, 3, 13, 1..=3] => Integer,
        [4, 1, 3, 12, field] => return type_in_statistics(*field),
        [4, 1, 3, 16, 1] => Integer,
        [4, 1, 3, 16, 2 | 3] => List(&Integer),
        [4, 1, 3, 17, 1] => Struct,
        [4, 1, 3, 17, 1, 1..=8] => Double,
        [4, 1, 3, 17, 2] => List(&Integer),
        // Keys and values, and the orders of the columns.
        [5, 1 | 2] | [4, 1, 3, 8, 1 | 2] => Binary,
        [7, 1..=3] => Struct,
        _ => return None,
    })
}

/// The type of a field of `PageHeader`.
fn type_in_page(place: &[i16]) -> Option<thrift::Type> {
    use thrift::Type::{Bool, Integer, Struct};
    Some(match place {
        [1..=4] => Integer,
        [5..=8] => Struct,
        [5, 5] | [8, 8] => Struct,
        [7, 3] | [8, 7] => Bool,
        [5, 1..=4] | [7, 1 | 2] | [8, 1..=6] => Integer,
        [5, 5, field] | [8, 8, field] => return type_in_statistics(*field),
        _ => return None,
    })
}

/// The type of a field of `Statistics`.
fn type_in_statistics(field: i16) -> Option<thrift::Type> {
    use thrift::Type::{Binary, Bool, Integer};
    Some(match field {
        1 | 2 | 5 | 6 => Binary,
        3 | 4 | 9 => Integer,
        7 | 8 => Bool,
        _ => return None,
    })
}

fn is_nested(field: &Type) -> bool {
    let info = field.get_basic_info();
    field.is_group() || (info.has_repetition() && info.repetition() == Repetition::REPEATED)
}

fn begin(path: &Path, file: File) -> Result<(SerializedFileReader<Ended>, Vec<String>), DataError> {
    check_footer(&file).map_err(|error| broken(path, None, &error))?;
    let most = most_unpacked(Length::len(&file));
    let reader = SerializedFileReader::new(Ended { file, most })
        .map_err(|error| broken(path, None, &error))?;
    let schema = reader.metadata().file_metadata().schema();
    let header: Vec<String> =
        schema.get_fields().iter().map(|field| field.name().to_owned()).collect();
    if header.is_empty() {
        return Err(malformed(path, None, "it has no columns".to_owned()));
    }
    if let Some(nested) = schema.get_fields().iter().find(|field| is_nested(field)) {
        let reason = format!("its column `{}` holds more than one value a row", nested.name());
        return Err(malformed(path, None, reason));
    }
    Ok((reader, header))
}

fn decode(path: &Path, file: File) -> Result<(Vec<String>, Vec<Record>), DataError> {
    let most = most_unpacked(Length::len(&file));
    let (reader, header) = begin(path, file)?;
    let mut records = Records::of_at_most(most);
    let rows = reader.get_row_iter(None).map_err(|error| broken(path, None, &error))?;
    for (place, row) in rows.enumerate() {
        let line = place as u64 + 2;
        let row = row.map_err(|error| broken(path, Some(line), &error))?;
        let fields = row.get_column_iter().map(|(name, field)| {
            text(field).ok_or_else(|| {
                let reason = format!("column `{name}` holds {field}, which is no text or number");
                malformed(path, Some(line), reason)
            })
        });
        let record = Record::of(line, fields.collect::<Result<Vec<String>, _>>()?);
        records.push(record).map_err(|reason| malformed(path, Some(line), reason))?;
    }
    Ok((header, records.kept))
}

/// The field as CSV would have it; empty for null and NaN.
fn text(field: &Field) -> Option<String> {
    let text = match field {
        Field::Null => String::new(),
        Field::Bool(value) => value.to_string(),
        Field::Byte(value) => value.to_string(),
        Field::Short(value) => value.to_string(),
        Field::Int(value) => value.to_string(),
        Field::Long(value) => value.to_string(),
        Field::UByte(value) => value.to_string(),
        Field::UShort(value) => value.to_string(),
        Field::UInt(value) => value.to_string(),
        Field::ULong(value) => value.to_string(),
        Field::Float16(value) => number(f64::from(f32::from(*value))),
        Field::Float(value) => number(f64::from(*value)),
        Field::Double(value) => number(*value),
        Field::Str(value) => value.trim().to_owned(),
        // Text that the writer did not mark as such.
        Field::Bytes(bytes) => std::str::from_utf8(bytes.data()).ok()?.trim().to_owned(),
        _ => return None,
    };
    Some(text)
}

fn number(value: f64) -> String {
    if value.is_nan() { String::new() } else { value.to_string() }
}
