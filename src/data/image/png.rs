//! PNG: 1 to 16 bits, grey, colour or palette.

use std::io::Cursor;

use png::{BitDepth, ColorType, Decoder, Limits, Transformations};

use super::orient::exif_orientation;
use super::{Colour, MOST_PIXEL_BYTES, RawImage, Samples, check_size, planes};

/// Deflate packs at most this many bytes into one (RFC 1951: 258 bytes in two bits).
const MOST_BYTES_PER_BYTE: u64 = 1032;

/// The image and its orientation.
pub(super) fn decode(bytes: &[u8], colour: Colour) -> Result<(RawImage, u8), String> {
    let broken = |error: png::DecodingError| format!("it does not decode ({error})");
    let limits = Limits { bytes: MOST_PIXEL_BYTES as usize };
    let mut decoder = Decoder::new_with_limits(Cursor::new(bytes), limits);
    // Palettes become colours, and fewer than 8 bits 8.
    decoder.set_transformations(Transformations::EXPAND);
    let mut reader = decoder.read_info().map_err(broken)?;
    let info = reader.info();
    let (width, height) = (info.width as usize, info.height as usize);
    let (depth, orientation) =
        (info.bit_depth as u8, exif_orientation(info.exif_metadata.as_deref()));
    let packed = info.raw_row_length() as u64 * height as u64;
    let (kind, bits) = reader.output_color_type();
    check_size(width, height, kind.samples() * if bits == BitDepth::Sixteen { 2 } else { 1 })?;
    if packed / MOST_BYTES_PER_BYTE > bytes.len() as u64 {
        return Err(format!("it claims {width}×{height} pixels in {} bytes", bytes.len()));
    }
    let size = reader.output_buffer_size().ok_or("its size overflows")?;
    let mut raw = vec![0; size];
    reader.next_frame(&mut raw).map_err(broken)?;
    // What follows the pixels is damaged where the file is.
    reader.finish().map_err(broken)?;
    let channels = match kind {
        ColorType::Grayscale => 1,
        ColorType::GrayscaleAlpha => 2,
        ColorType::Rgb | ColorType::Indexed => 3,
        ColorType::Rgba => 4,
    };
    let samples = match bits {
        BitDepth::Sixteen => {
            let wide = raw.chunks_exact(2).map(|two| u16::from_be_bytes([two[0], two[1]]));
            Samples::U16(planes(wide.collect(), channels, colour))
        }
        _ => Samples::U8(planes(raw, channels, colour)),
    };
    Ok((RawImage::new(width, height, samples, depth), orientation))
}
