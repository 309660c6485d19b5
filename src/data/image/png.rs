//! PNG: 1 to 16 bits, grey, colour or palette.

use std::io::Cursor;

use png::{
    BitDepth, ColorType, Compression, Decoder, Encoder, EncodingError, Filter, Limits,
    Transformations,
};

use super::orient::exif_orientation;
use super::{Colour, MOST_PIXEL_BYTES, RawImage, Samples, check_size, planes};

/// Deflate packs at most this many bytes into one (RFC 1951: 258 bytes in two bits).
const MOST_BYTES_PER_BYTE: u64 = 1032;

/// A grey PNG of 8 bits, whose `pixels` are row by row.
pub fn encode(pixels: &[u8], size: [usize; 2]) -> Result<Vec<u8>, EncodingError> {
    written(pixels, size, BitDepth::Eight, |_| {})
}

/// A grey PNG of 16 bits, whose `pixels` are row by row; written fast.
pub fn encode_deep(pixels: &[u16], size: [usize; 2]) -> Result<Vec<u8>, EncodingError> {
    let bytes: Vec<u8> = pixels.iter().flat_map(|pixel| pixel.to_be_bytes()).collect();
    written(&bytes, size, BitDepth::Sixteen, |encoder| {
        encoder.set_compression(Compression::Fast);
        encoder.set_filter(Filter::Up);
    })
}

/// A PNG in colour of 8 bits, whose pixels are row by row; written fast.
pub fn encode_rgb(pixels: &[[u8; 3]], size: [usize; 2]) -> Result<Vec<u8>, EncodingError> {
    written(pixels.as_flattened(), size, BitDepth::Eight, |encoder| {
        encoder.set_color(ColorType::Rgb);
        encoder.set_compression(Compression::Fast);
    })
}

fn written(
    bytes: &[u8],
    [height, width]: [usize; 2],
    depth: BitDepth,
    settings: impl FnOnce(&mut Encoder<'_, &mut Vec<u8>>),
) -> Result<Vec<u8>, EncodingError> {
    let mut png = Vec::new();
    let mut encoder = Encoder::new(&mut png, width as u32, height as u32);
    encoder.set_color(ColorType::Grayscale);
    encoder.set_depth(depth);
    settings(&mut encoder);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(bytes)?;
    writer.finish()?;
    Ok(png)
}

/// The image and its orientation.
pub fn decode(bytes: &[u8], colour: Colour) -> Result<(RawImage, u8), String> {
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
