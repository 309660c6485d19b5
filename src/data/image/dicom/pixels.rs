//! From Pixel Data to the patterns of stored bits, whatever compresses them.

use std::borrow::Cow;

use super::dataset::{Dataset, PIXEL_DATA, Value};
use super::header::{Header, Photometric};
use super::syntax::{Compression, Syntax};
use super::{native, rle};
use crate::data::image::deep_jpeg::{self, Expected};

/// The stored bits of every sample, `[height, width, samples]`; `header` comes to say what the
/// colours are once they are decoded.
///
/// # Errors
/// What is malformed, cut off or not read.
pub(super) fn decode(
    dataset: &Dataset<'_>,
    syntax: Syntax,
    header: &mut Header,
) -> Result<Vec<u16>, String> {
    let stream = match (dataset.value(PIXEL_DATA), syntax.compression) {
        (Some(Value::Bytes(bytes)), Compression::None) => {
            let swapped = dataset.big_endian
                && (header.allocated == 16 || dataset.vr(PIXEL_DATA) == Some(*b"OW"));
            let words = native::decode(bytes, header, swapped)?;
            return Ok(from_words(words, header));
        }
        (Some(Value::Fragments(_)), Compression::None) => {
            return Err(
                "its pixels are compressed, its transfer syntax says they are not".to_owned()
            );
        }
        (Some(Value::Fragments(fragments)), _) => joined(fragments)?,
        _ => {
            return Err(
                "its pixels are not compressed, its transfer syntax says they are".to_owned()
            );
        }
    };
    match syntax.compression {
        Compression::None | Compression::Rle => {
            Ok(from_words(rle::decode(&stream, header)?, header))
        }
        Compression::Jpeg => from_jpeg(&stream, header),
        Compression::JpegLs => from_jpeg_ls(&stream, header),
        Compression::Jpeg2000 => from_jpeg_2000(&stream, header),
    }
}

/// One frame's fragments, which are one stream.
fn joined<'a>(fragments: &[&'a [u8]]) -> Result<Cow<'a, [u8]>, String> {
    match fragments {
        [] => Err("it has no compressed pixels".to_owned()),
        [whole] => Ok(Cow::Borrowed(whole)),
        parts => Ok(Cow::Owned(parts.concat())),
    }
}

/// What is stored within the allocated words; bits above may hold overlays, bits below something
/// else of old.
fn from_words(mut words: Vec<u16>, header: &Header) -> Vec<u16> {
    let (shift, mask) = (header.high + 1 - header.stored, header.mask());
    words.iter_mut().for_each(|word| *word = *word >> shift & mask);
    words
}

/// Decoders give values and not words; more bits than the header has are cut to it.
fn from_values(mut values: Vec<u16>, header: &Header) -> Vec<u16> {
    let mask = header.mask();
    values.iter_mut().for_each(|value| *value &= mask);
    values
}

fn from_jpeg(stream: &[u8], header: &mut Header) -> Result<Vec<u16>, String> {
    let Header { width, height, samples, allocated, .. } = *header;
    let expected = Expected { width, height, samples, bits: allocated };
    let jpeg =
        deep_jpeg::decode(stream, expected).map_err(|fault| format!("its JPEG stream {fault}"))?;
    if header.samples == 3 {
        let chroma = jpeg.chroma.unwrap_or(header.photometric != Photometric::Rgb);
        header.photometric = if chroma { Photometric::YbrFull } else { Photometric::Rgb };
    }
    if jpeg.lossless || jpeg.precision <= header.stored {
        return Ok(from_values(jpeg.samples, header));
    }
    // Lossy values overshoot what was stored; wrapped around they would turn white into black.
    let most = header.mask();
    Ok(jpeg.samples.into_iter().map(|value| value.min(most)).collect())
}

fn from_jpeg_ls(stream: &[u8], header: &Header) -> Result<Vec<u16>, String> {
    let values = super::jpeg_ls::decode(stream, header)
        .map_err(|fault| format!("its JPEG-LS stream {fault}"))?;
    Ok(from_values(values, header))
}

fn from_jpeg_2000(stream: &[u8], header: &mut Header) -> Result<Vec<u16>, String> {
    let (mut values, stream) = super::jpeg2000::decode(stream, header)
        .map_err(|fault| format!("its JPEG 2000 stream {fault}"))?;
    if header.photometric == Photometric::YbrInStream {
        header.photometric = Photometric::Rgb;
    }
    // The stream may hold signed values as unsigned ones of fewer bits: their highest is the sign.
    if header.signed && !stream.signed {
        let unused = 16 - stream.precision;
        let extended = |value: u16| ((value << unused).cast_signed() >> unused).cast_unsigned();
        values.iter_mut().for_each(|value| *value = extended(*value));
    }
    Ok(from_values(values, header))
}
