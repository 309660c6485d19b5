//! TIFF: 8 and 16 bits, grey or colour, one page.

use std::io::Cursor;

use tiff::ColorType;
use tiff::decoder::{Decoder, DecodingResult, Limits};
use tiff::tags::Tag;

use super::{Colour, MOST_PIXEL_BYTES, RawImage, Samples, check_size, planes};

/// None of the compressions packs more bytes into one: deflate 1032 (RFC 1951), LZW and PackBits fewer
/// but for LZW's longest codes, which hold up to 4096 bytes in a byte and a half.
const MOST_BYTES_PER_BYTE: u64 = 2800;

/// The image and its orientation.
pub(super) fn decode(bytes: &[u8], colour: Colour) -> Result<(RawImage, u8), String> {
    let broken = |error: tiff::TiffError| format!("it does not decode ({error})");
    let mut limits = Limits::default();
    limits.decoding_buffer_size = MOST_PIXEL_BYTES as usize;
    limits.intermediate_buffer_size = MOST_PIXEL_BYTES as usize;
    let mut decoder = Decoder::new(Cursor::new(bytes)).map_err(broken)?.with_limits(limits);
    if decoder.more_images() {
        return Err("it has several pages; save the one to be used as a file of its own".to_owned());
    }
    let (width, height) = decoder.dimensions().map_err(broken)?;
    let (width, height) = (width as usize, height as usize);
    let kind = decoder.colortype().map_err(broken)?;
    // TIFF 6.0, SampleFormat: 1 unsigned, 2 signed, 3 floating point.
    let format = decoder.find_tag_unsigned_vec::<u16>(Tag::SampleFormat).ok().flatten();
    if format.is_some_and(|formats| formats.contains(&3)) {
        return Err(
            "it holds floating-point numbers, whose black and white are not known; save it \
                    with 16 bits"
                .to_owned(),
        );
    }
    let (channels, depth) = match kind {
        ColorType::Gray(depth @ (8 | 16)) => (1, depth),
        ColorType::GrayA(depth @ (8 | 16)) => (2, depth),
        ColorType::RGB(depth @ (8 | 16)) => (3, depth),
        ColorType::RGBA(depth @ (8 | 16)) => (4, depth),
        other => {
            return Err(format!("its pixels are {other:?}; grey or RGB of 8 or 16 bits are read"));
        }
    };
    check_size(width, height, channels * usize::from(depth / 8))?;
    let claimed = width as u64 * height as u64 * channels as u64 * u64::from(depth / 8);
    if claimed / MOST_BYTES_PER_BYTE > bytes.len() as u64 {
        return Err(format!("it claims {width}×{height} pixels in {} bytes", bytes.len()));
    }
    let orientation = decoder.find_tag_unsigned(Tag::Orientation).ok().flatten().unwrap_or(1);
    // The decoder itself inverts what counts from white.
    let samples = match decoder.read_image().map_err(broken)? {
        DecodingResult::U8(values) => Samples::U8(planes(values, channels, colour)),
        DecodingResult::U16(values) => Samples::U16(planes(values, channels, colour)),
        _ => return Err("it holds signed numbers; save it with 16 bits, unsigned".to_owned()),
    };
    let (held, pixels) = (samples.len(), width * height);
    if held != pixels && held != 3 * pixels {
        return Err(format!("it holds {held} samples, and {width}×{height} pixels need {pixels}"));
    }
    Ok((RawImage::new(width, height, samples, depth), orientation))
}
