//! The parts before the data set (PS3.10 chapter 7): the preamble and the file meta information,
//! either of which real files leave out.

use std::borrow::Cow;
use std::io::Read;

use super::MOST_PIXEL_BYTES;
use super::dataset::Dataset;
use super::syntax::{Encoding, Syntax};

const PREAMBLE: usize = 128;
const TRANSFER_SYNTAX: (u16, u16) = (0x0002, 0x0010);
/// What a header may take beside the pixels, once inflated.
const MOST_HEADER_BYTES: u64 = 64 << 20;

/// Where the data set lies and how it is written.
pub(super) struct Body<'a> {
    /// From `start` on, the data set.
    pub(super) bytes: Cow<'a, [u8]>,
    pub(super) start: usize,
    pub(super) syntax: Syntax,
}

/// Whether the bytes begin as a DICOM file does: with the preamble and `DICM`, or, for files that
/// lack those, with an element of group 2 or 8, the first groups there are.
pub(super) fn begins(bytes: &[u8]) -> bool {
    bytes.get(PREAMBLE..PREAMBLE + 4) == Some(b"DICM") || bare_encoding(bytes).is_some()
}

/// Splits a file into what says how it is written and the data set; inflates that where needed.
///
/// # Errors
/// What is malformed, or the transfer syntax that is not read.
pub(super) fn open(bytes: &[u8]) -> Result<Body<'_>, String> {
    let magic = bytes.get(PREAMBLE..PREAMBLE + 4) == Some(b"DICM");
    let start = if magic { PREAMBLE + 4 } else { 0 };
    // Nothing but the group's own number says that meta information follows.
    if bytes.get(start..start + 2) != Some(&[2, 0]) {
        let rest = bytes.get(start..).unwrap_or_default();
        let encoding = bare_encoding(rest).ok_or("it holds no DICOM elements")?;
        return Ok(Body { bytes: bytes.into(), start, syntax: Syntax::native(encoding) });
    }
    let (meta, end) =
        Dataset::read(bytes, start, Encoding::EXPLICIT_LITTLE, |(group, _)| group != 2)?;
    let syntax = match meta.text(TRANSFER_SYNTAX) {
        Some(uid) => Syntax::of(uid)?,
        None => {
            let encoding = bare_encoding(&bytes[end..])
                .ok_or("its file meta information names no transfer syntax (0002,0010)")?;
            Syntax::native(encoding)
        }
    };
    let syntax = Syntax { encoding: actual_encoding(&bytes[end..], syntax), ..syntax };
    if syntax.deflated {
        return Ok(Body { bytes: inflate(&bytes[end..])?.into(), start: 0, syntax });
    }
    Ok(Body { bytes: bytes.into(), start: end, syntax })
}

/// Writers that compress the pixels of an implicit file leave the rest implicit now and then, and
/// others name the wrong one of the two: the first element shows which it is.
fn actual_encoding(bytes: &[u8], syntax: Syntax) -> Encoding {
    let shown = bare_encoding(bytes).filter(|shown| !syntax.deflated && !shown.big_endian);
    match shown {
        Some(encoding) if !syntax.encoding.big_endian => encoding,
        _ => syntax.encoding,
    }
}

/// The encoding of elements without meta information, from the first of them.
fn bare_encoding(bytes: &[u8]) -> Option<Encoding> {
    let &[group_0, group_1, element_0, element_1, vr_0, vr_1, length_0, length_1, ..] = bytes
    else {
        return None;
    };
    let big_endian = match (group_0, group_1) {
        (2 | 8, 0) => false,
        (0, 8) => true,
        _ => return None,
    };
    // Both groups have but few elements: those of others are not mistaken for them.
    let element = u16::from_le_bytes(if big_endian {
        [element_1, element_0]
    } else {
        [element_0, element_1]
    });
    if element > 0x0102 {
        return None;
    }
    if [vr_0, vr_1].iter().all(u8::is_ascii_uppercase) {
        return Some(Encoding { explicit: true, big_endian });
    }
    let length = u32::from_le_bytes([vr_0, vr_1, length_0, length_1]);
    (!big_endian && length as usize <= bytes.len() - 8).then_some(Encoding::IMPLICIT_LITTLE)
}

fn inflate(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let most = MOST_PIXEL_BYTES + MOST_HEADER_BYTES;
    let mut inflated = Vec::new();
    flate2::read::DeflateDecoder::new(bytes)
        .take(most + 1)
        .read_to_end(&mut inflated)
        .map_err(|error| format!("it does not inflate ({error})"))?;
    if inflated.len() as u64 > most {
        return Err(format!("it inflates to more than {} MiB", most >> 20));
    }
    Ok(inflated)
}
