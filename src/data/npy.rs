//! NumPy arrays (`.npy`, and members of `.npz` archives), read in place.
//!
//! The format: <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use npyz::{DType, Endianness, NpyHeader, Order, TypeChar};
use zip::{CompressionMethod, ZipArchive};

use super::image::{RawImage, Samples};
use crate::contain::contained;
use crate::paths::open_file;

/// An array of targets holds fewer numbers than this.
const MOST_NUMBERS: u64 = 1 << 28;
/// What one image may hold, as for other formats.
const MOST_IMAGE_BYTES: u64 = 256 << 20;

/// No longer header is read; NumPy's own limit.
const MOST_HEADER_BYTES: u32 = 10_000;
/// Brackets within brackets: those of a structured array's fields with sides of their own.
const MOST_BRACKETS: usize = 4;

/// An array whose numbers stay in its file until they are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Array {
    file: PathBuf,
    /// Where its numbers begin in the file.
    start: u64,
    shape: Vec<u64>,
    element: Element,
    big_endian: bool,
}

/// The kind of an array's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Element {
    Boolean,
    Unsigned(u64),
    Signed(u64),
    Float(u64),
    /// Of so many characters, each of one byte or of four.
    Text {
        characters: u64,
        wide: bool,
    },
}

impl Element {
    fn bytes(self) -> u64 {
        match self {
            Self::Boolean => 1,
            Self::Unsigned(bytes) | Self::Signed(bytes) | Self::Float(bytes) => bytes,
            Self::Text { characters, wide: false } => characters,
            Self::Text { characters, wide: true } => characters.saturating_mul(4),
        }
    }
}

impl Array {
    /// Opens `images.npy`, `data.npz:images`, or `data.npz` when it holds one array.
    ///
    /// # Errors
    /// The reason, in words that follow "array `…`: ".
    pub fn open(name: &Path) -> Result<Self, String> {
        contained(|| Self::open_uncontained(name))
            .unwrap_or_else(|panic| Err(format!("it cannot be read (the reader failed: {panic})")))
    }

    fn open_uncontained(name: &Path) -> Result<Self, String> {
        let (file, member) = parts(name);
        let opened = open_file(&file).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => "the file does not exist".to_owned(),
            _ => format!("the file cannot be read: {error}"),
        })?;
        let length = opened.metadata().map_err(|error| error.to_string())?.len();
        let mut reader = BufReader::new(opened);
        if let Some(member) = member {
            let start = member_start(&mut reader, member.as_deref())?;
            reader.seek(SeekFrom::Start(start)).map_err(|error| error.to_string())?;
        }
        check_header(&mut reader)?;
        let header = NpyHeader::from_reader(&mut reader)
            .map_err(|error| format!("it is no NumPy array ({error})"))?;
        let start = reader.stream_position().map_err(|error| error.to_string())?;
        Self::described(file, start, length, &header)
    }

    fn described(
        file: PathBuf,
        start: u64,
        length: u64,
        header: &NpyHeader,
    ) -> Result<Self, String> {
        let DType::Plain(kind) = header.dtype() else {
            return Err("it is a structured array; save its fields one by one".to_owned());
        };
        let element = match (kind.type_char(), kind.size_field()) {
            (TypeChar::Bool, 1) => Element::Boolean,
            (TypeChar::Uint, bytes @ (1 | 2 | 4 | 8)) => Element::Unsigned(bytes),
            (TypeChar::Int, bytes @ (1 | 2 | 4 | 8)) => Element::Signed(bytes),
            (TypeChar::Float, bytes @ (4 | 8)) => Element::Float(bytes),
            (TypeChar::ByteStr, characters @ 1..) => Element::Text { characters, wide: false },
            (TypeChar::UnicodeStr, characters @ 1..) => Element::Text { characters, wide: true },
            _ => {
                let kind = kind.to_string();
                return Err(format!("it holds numbers of the type {kind}; save it as float32"));
            }
        };
        let shape = header.shape().to_vec();
        if header.order() == Order::Fortran && shape.len() > 1 {
            return Err("it is in Fortran order; save numpy.ascontiguousarray(…) of it".to_owned());
        }
        let numbers = shape.iter().try_fold(1_u64, |product, side| product.checked_mul(*side));
        let end = numbers
            .and_then(|numbers| numbers.checked_mul(element.bytes()))
            .and_then(|bytes| bytes.checked_add(start));
        if end.is_none_or(|end| end > length) {
            return Err(format!("it is cut off: its header claims the shape {shape:?}"));
        }
        let big_endian = kind.endianness() == Endianness::Big;
        Ok(Self { file, start, shape, element, big_endian })
    }

    /// Its sides.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// All its numbers, row by row. Integers beyond 2⁵³ are rounded.
    ///
    /// # Errors
    /// An array too large for targets, or a file that ends early.
    pub fn numbers(&self) -> Result<Vec<f64>, String> {
        let count: u64 = self.shape.iter().product();
        if count > MOST_NUMBERS {
            return Err(format!("it holds {count} numbers, more than targets do"));
        }
        self.check_numbers()?;
        let bytes = self.bytes(0, count)?;
        Ok(bytes.chunks_exact(self.element.bytes() as usize).map(|one| self.number(one)).collect())
    }

    fn check_numbers(&self) -> Result<(), String> {
        match self.element {
            Element::Text { .. } => Err("it holds text where numbers are needed".to_owned()),
            _ => Ok(()),
        }
    }

    /// All that it holds as names: text, and integers with every digit.
    ///
    /// # Errors
    /// Floating-point numbers, an array too large, or a file that ends early.
    pub fn names(&self) -> Result<Vec<String>, String> {
        let count: u64 = self.shape.iter().product();
        if count > MOST_NUMBERS {
            return Err(format!("it holds {count} names, more than there may be images"));
        }
        let name = |bytes: &[u8]| match self.element {
            Element::Text { wide: false, .. } => String::from_utf8_lossy(bytes).into_owned(),
            Element::Text { wide: true, .. } => bytes
                .chunks_exact(4)
                .map(|one| char::from_u32(self.unsigned(one) as u32).unwrap_or('\u{FFFD}'))
                .collect(),
            Element::Signed(_) => self.signed(bytes).to_string(),
            _ => self.unsigned(bytes).to_string(),
        };
        if let Element::Float(_) = self.element {
            return Err(
                "it holds floating-point numbers, and large ones of them are rounded to the \
                        same; save integers (`.astype(numpy.int64)`) or text"
                    .to_owned(),
            );
        }
        let bytes = self.bytes(0, count)?;
        let names = bytes.chunks_exact(self.element.bytes() as usize).map(name);
        // NumPy fills text up with zeros.
        Ok(names.map(|name| name.trim_end_matches('\0').to_owned()).collect())
    }

    /// Image `index` of an array `[images, height, width]` or `[images, channels, height, width]`.
    ///
    /// 8- and 16-bit unsigned integers span black to white; other numbers stay as they are.
    ///
    /// # Errors
    /// Another shape, or a file that ends early.
    pub fn image(&self, index: usize) -> Result<RawImage, String> {
        let (images, planes, height, width) = match self.shape[..] {
            [images, height, width] => (images, 1, height, width),
            [images, planes, height, width] => (images, planes, height, width),
            _ => return Err(format!("its shape {:?} is not [images, height, width]", self.shape)),
        };
        if index as u64 >= images {
            let number = index.saturating_add(1);
            return Err(format!("it holds {images} images, and this is number {number}"));
        }
        self.check_numbers()?;
        // Fits, since the file is as long as its shape claims and has at least one image.
        let size = planes * height * width;
        if size == 0 || size * self.element.bytes() > MOST_IMAGE_BYTES {
            return Err(format!("an image of {planes}×{height}×{width} numbers is not read"));
        }
        let bytes = self.bytes(index as u64 * size, size)?;
        let numbers = |bytes: &[u8]| -> Vec<f32> {
            let each = bytes.chunks_exact(self.element.bytes() as usize);
            each.map(|one| self.number(one) as f32).collect()
        };
        let samples = match self.element {
            Element::Unsigned(1) => Samples::U8(bytes),
            Element::Unsigned(2) => {
                let pair = |two: &[u8]| match self.big_endian {
                    true => u16::from_be_bytes([two[0], two[1]]),
                    false => u16::from_le_bytes([two[0], two[1]]),
                };
                Samples::U16(bytes.chunks_exact(2).map(pair).collect())
            }
            _ => Samples::F32(numbers(&bytes)),
        };
        if let Samples::F32(values) = &samples
            && let Some(place) = values.iter().position(|value| !value.is_finite())
        {
            let (row, column) = (place as u64 / width % height, place as u64 % width);
            return Err(format!("its pixel in row {row}, column {column} is {}", values[place]));
        }
        let (width, height, planes) = (width as usize, height as usize, planes as usize);
        let depth = (self.element.bytes() * 8) as u8;
        Ok(RawImage { width, height, planes, samples, depth })
    }

    fn bytes(&self, first: u64, count: u64) -> Result<Vec<u8>, String> {
        let size = self.element.bytes();
        let read = || -> io::Result<Vec<u8>> {
            let mut file = open_file(&self.file)?;
            file.seek(SeekFrom::Start(self.start + first * size))?;
            // `described` has checked that the file is that long.
            let mut bytes = vec![0; (count * size) as usize];
            file.read_exact(&mut bytes)?;
            Ok(bytes)
        };
        read().map_err(|error| format!("the file cannot be read: {error}"))
    }

    fn unsigned(&self, bytes: &[u8]) -> u64 {
        let mut eight = [0; 8];
        eight[..bytes.len()].copy_from_slice(bytes);
        if self.big_endian {
            eight[..bytes.len()].reverse();
        }
        u64::from_le_bytes(eight)
    }

    fn signed(&self, bytes: &[u8]) -> i64 {
        let unused = 64 - 8 * bytes.len() as u32;
        (self.unsigned(bytes) << unused) as i64 >> unused
    }

    fn number(&self, bytes: &[u8]) -> f64 {
        match self.element {
            Element::Boolean => f64::from(u8::from(self.unsigned(bytes) != 0)),
            Element::Unsigned(_) => self.unsigned(bytes) as f64,
            Element::Signed(_) => self.signed(bytes) as f64,
            Element::Float(4) => f64::from(f32::from_bits(self.unsigned(bytes) as u32)),
            Element::Float(_) => f64::from_bits(self.unsigned(bytes)),
            Element::Text { .. } => f64::NAN,
        }
    }
}

/// The file of an array, and the member when the file is an archive: `Some(None)` when it is not
/// named.
pub(super) fn parts(name: &Path) -> (PathBuf, Option<Option<String>>) {
    let text = name.to_string_lossy();
    match text.rfind(".npz:") {
        Some(at) => (text[..at + 4].into(), Some(Some(text[at + 5..].to_owned()))),
        None if text.ends_with(".npz") => (name.to_owned(), Some(None)),
        None => (name.to_owned(), None),
    }
}

/// Where in the archive a member's bytes begin.
fn member_start(reader: &mut BufReader<File>, member: Option<&str>) -> Result<u64, String> {
    let no_archive = |error: zip::result::ZipError| format!("it is no .npz archive ({error})");
    let mut archive = ZipArchive::new(reader).map_err(no_archive)?;
    let names = archive.file_names().flatten();
    let arrays: Vec<String> =
        names.filter_map(|name| name.strip_suffix(".npy").map(str::to_owned)).collect();
    let member = match (member, arrays.as_slice()) {
        (Some(member), _) => member,
        (None, [only]) => only,
        (None, _) => return Err(format!("it holds {}: write `….npz:NAME`", listed(&arrays))),
    };
    if !arrays.iter().any(|array| array == member) {
        return Err(format!("it holds no array `{member}`, but {}", listed(&arrays)));
    }
    let entry = archive.by_name(&format!("{member}.npy")).map_err(no_archive)?;
    if entry.compression() != CompressionMethod::Stored {
        return Err("it is compressed, so images cannot be read one by one; save it with \
                    numpy.savez instead of numpy.savez_compressed"
            .to_owned());
    }
    entry.data_start().ok_or_else(|| "it is no .npz archive (a member has no start)".to_owned())
}

/// Checks a header before it is parsed, and goes back to its beginning: for each bracket within a bracket the parser
/// takes several times as long.
///
/// # Errors
/// When it is longer or deeper than any that NumPy writes.
fn check_header(reader: &mut (impl Read + Seek)) -> Result<(), String> {
    let failed = |error: io::Error| error.to_string();
    let begin = reader.stream_position().map_err(failed)?;
    let mut header = Vec::new();
    reader.by_ref().take(12).read_to_end(&mut header).map_err(failed)?;
    // What begins otherwise, the parser refuses.
    if let &[0x93, b'N', b'U', b'M', b'P', b'Y', version, _, low, high, ref upper @ ..] = &*header {
        let upper = if version == 1 { [0; 2] } else { upper.try_into().unwrap_or_default() };
        let length = u32::from_le_bytes([low, high, upper[0], upper[1]]);
        if length > MOST_HEADER_BYTES {
            return Err(format!("its header claims {length} bytes; {MOST_HEADER_BYTES} are read"));
        }
        reader.by_ref().take(length.into()).read_to_end(&mut header).map_err(failed)?;
        let mut depth: usize = 0;
        for byte in &header[10..] {
            match byte {
                b'(' | b'[' | b'{' => depth += 1,
                b')' | b']' | b'}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth > MOST_BRACKETS {
                return Err(format!(
                    "its header has more than {MOST_BRACKETS} brackets in each other"
                ));
            }
        }
    }
    reader.seek(SeekFrom::Start(begin)).map(drop).map_err(failed)
}

fn listed(arrays: &[String]) -> String {
    match arrays {
        [] => "no array".to_owned(),
        [only] => format!("the array `{only}`"),
        several => format!("the arrays `{}`", several.join("`, `")),
    }
}

#[cfg(test)]
mod tests;
