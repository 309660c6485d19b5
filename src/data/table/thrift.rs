//! Whether a struct of Apache Thrift's compact protocol is one that can be read to its end
//! (<https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md>).

use std::io::{self, ErrorKind, Read};

/// How deep a struct may be in others.
const MOST_DEPTH: u32 = 64;

/// What a byte says of the type that follows.
mod kind {
    pub(super) const STOP: u8 = 0;
    pub(super) const TRUE: u8 = 1;
    pub(super) const FALSE: u8 = 2;
    pub(super) const BYTE: u8 = 3;
    pub(super) const I16: u8 = 4;
    pub(super) const I64: u8 = 6;
    pub(super) const DOUBLE: u8 = 7;
    pub(super) const BINARY: u8 = 8;
    pub(super) const LIST: u8 = 9;
    pub(super) const SET: u8 = 10;
    pub(super) const MAP: u8 = 11;
    pub(super) const STRUCT: u8 = 12;
    pub(super) const UUID: u8 = 13;
}

/// The type of a field or of a list's elements. All integers of more than a byte are written the same way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    Bool,
    Byte,
    Integer,
    Double,
    Binary,
    Struct,
    List(&'static Type),
}

impl Type {
    fn holds(self, field: u8) -> bool {
        match self {
            Self::Bool => matches!(field, kind::TRUE | kind::FALSE),
            Self::Byte => field == kind::BYTE,
            Self::Integer => (kind::I16..=kind::I64).contains(&field),
            Self::Double => field == kind::DOUBLE,
            Self::Binary => field == kind::BINARY,
            Self::Struct => field == kind::STRUCT,
            Self::List(_) => field == kind::LIST,
        }
    }
}

/// Reads one struct, keeps nothing of it, and notes its integers. Its time is bounded by the input's length, since each
/// element takes at least a byte.
///
/// `parquet` skips a field that it does not know without such a bound: a list of booleans takes no byte there, and six
/// bytes announce two thousand million of them. No footer and no page's header of Parquet has a list of booleans. And
/// it reads a field that it knows as the type that it expects, whatever the file says of the type: `types` gives the
/// expected type of a field, told by the numbers of the structs around it and its own, and `None` where there is none.
///
/// # Errors
///
/// `InvalidData` where it holds such a list, a field of another type than is expected, a type that is none, or too much
/// in one another; what `note` says of a field's integer; those of `input`, which include `UnexpectedEof`.
pub(super) fn walk_struct(
    input: &mut impl Read,
    types: fn(&[i16]) -> Option<Type>,
    note: impl Fn(&[i16], i64) -> io::Result<()>,
) -> io::Result<()> {
    Walk { input, types, note, place: Vec::new() }.fields(MOST_DEPTH)
}

struct Walk<'input, Input, Note> {
    input: &'input mut Input,
    types: fn(&[i16]) -> Option<Type>,
    note: Note,
    /// The numbers of the fields that are being read, the outermost first.
    place: Vec<i16>,
}

impl<Input: Read, Note: Fn(&[i16], i64) -> io::Result<()>> Walk<'_, Input, Note> {
    fn fields(&mut self, depth: u32) -> io::Result<()> {
        let mut number = 0_i16;
        loop {
            let header = byte(self.input)?;
            let (delta, field) = (header >> 4, header & 15);
            if field == kind::STOP {
                return Ok(());
            }
            let next = match delta {
                0 => i16::try_from(signed(integer(self.input)?)).ok(),
                delta => number.checked_add(i16::from(delta)),
            };
            number = next.ok_or_else(|| invalid("it has a field with a number beyond 16 bits"))?;
            self.place.push(number);
            let expected = (self.types)(&self.place);
            // A boolean field is in its header.
            if matches!(field, kind::TRUE | kind::FALSE) {
                self.check(field, expected)?;
            } else {
                self.value(field, expected, depth)?;
            }
            self.place.pop();
        }
    }

    fn check(&self, field: u8, expected: Option<Type>) -> io::Result<()> {
        if expected.is_none_or(|expected| expected.holds(field)) {
            return Ok(());
        }
        let place: Vec<String> = self.place.iter().map(i16::to_string).collect();
        Err(invalid(&format!("its field {} is of another type than it should be", place.join("."))))
    }

    fn value(&mut self, field: u8, expected: Option<Type>, depth: u32) -> io::Result<()> {
        let depth = depth.checked_sub(1).ok_or_else(|| invalid("it is nested too deep"))?;
        self.check(field, expected)?;
        match field {
            kind::BYTE => skip(self.input, 1),
            kind::I16..=kind::I64 => {
                let value = signed(integer(self.input)?);
                (self.note)(&self.place, value)
            }
            kind::DOUBLE => skip(self.input, 8),
            kind::BINARY => {
                let bytes = integer(self.input)?;
                skip(self.input, bytes)
            }
            kind::LIST | kind::SET => {
                let header = byte(self.input)?;
                let short = u64::from(header >> 4);
                let count = if short == 15 { integer(self.input)? } else { short };
                let elements = match expected {
                    Some(Type::List(elements)) => Some(*elements),
                    _ => None,
                };
                (0..count).try_for_each(|_| self.value(header & 15, elements, depth))
            }
            kind::MAP => match integer(self.input)? {
                0 => Ok(()),
                count => {
                    let kinds = byte(self.input)?;
                    (0..count).try_for_each(|_| {
                        self.value(kinds >> 4, None, depth)?;
                        self.value(kinds & 15, None, depth)
                    })
                }
            },
            kind::STRUCT => self.fields(depth),
            kind::UUID => skip(self.input, 16),
            kind::TRUE | kind::FALSE => Err(invalid("it has a list of booleans")),
            _ => Err(invalid("it has a type that is none")),
        }
    }
}

/// The signed number that an integer stands for, which is zigzag-encoded.
fn signed(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}

/// An integer of seven bits a byte, the lowest first.
fn integer(input: &mut impl Read) -> io::Result<u64> {
    let mut number = 0_u64;
    for place in (0..64).step_by(7) {
        let byte = byte(input)?;
        number |= u64::from(byte & 0x7f) << place;
        if byte < 0x80 {
            return Ok(number);
        }
    }
    Err(invalid("it has an integer of more than 64 bits"))
}

fn byte(input: &mut impl Read) -> io::Result<u8> {
    let mut byte = [0];
    input.read_exact(&mut byte)?;
    Ok(byte[0])
}

fn skip(input: &mut impl Read, bytes: u64) -> io::Result<()> {
    let passed = io::copy(&mut input.by_ref().take(bytes), &mut io::sink())?;
    if passed == bytes { Ok(()) } else { Err(ErrorKind::UnexpectedEof.into()) }
}

fn invalid(reason: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, reason)
}
