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

/// Reads one struct and keeps nothing of it. Its time is bounded by the input's length, since each element takes at
/// least a byte.
///
/// `parquet` skips a field that it does not know without such a bound: a list of booleans takes no byte there, and six
/// bytes announce two thousand million of them. No footer and no page's header of Parquet has a list of booleans.
///
/// # Errors
///
/// `InvalidData` where it holds such a list, a type that is none, or too much in one another; those of `input`, which
/// include `UnexpectedEof`.
pub(super) fn walk_struct(input: &mut impl Read) -> io::Result<()> {
    fields(input, MOST_DEPTH)
}

fn fields(input: &mut impl Read, depth: u32) -> io::Result<()> {
    loop {
        let header = byte(input)?;
        let (delta, field) = (header >> 4, header & 15);
        if field == kind::STOP {
            return Ok(());
        }
        if delta == 0 {
            integer(input)?;
        }
        // A boolean field is in its header.
        if !matches!(field, kind::TRUE | kind::FALSE) {
            value(input, field, depth)?;
        }
    }
}

fn value(input: &mut impl Read, field: u8, depth: u32) -> io::Result<()> {
    let depth = depth.checked_sub(1).ok_or_else(|| invalid("it is nested too deep"))?;
    match field {
        kind::BYTE => skip(input, 1),
        kind::I16..=kind::I64 => integer(input).map(|_| ()),
        kind::DOUBLE => skip(input, 8),
        kind::BINARY => integer(input).and_then(|bytes| skip(input, bytes)),
        kind::LIST | kind::SET => {
            let header = byte(input)?;
            let short = u64::from(header >> 4);
            let count = if short == 15 { integer(input)? } else { short };
            (0..count).try_for_each(|_| value(input, header & 15, depth))
        }
        kind::MAP => match integer(input)? {
            0 => Ok(()),
            count => {
                let kinds = byte(input)?;
                (0..count).try_for_each(|_| {
                    value(input, kinds >> 4, depth)?;
                    value(input, kinds & 15, depth)
                })
            }
        },
        kind::STRUCT => fields(input, depth),
        kind::UUID => skip(input, 16),
        kind::TRUE | kind::FALSE => Err(invalid("it has a list of booleans")),
        _ => Err(invalid("it has a type that is none")),
    }
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
