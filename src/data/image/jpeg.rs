//! JPEG: baseline and progressive of 8 bits, at full or reduced scale; extended of 12 bits and
//! lossless at full scale.

use std::io::Cursor;

use jpeg_decoder::PixelFormat;
use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

use super::deep_jpeg::{self, Expected};
use super::orient::exif_orientation;
use super::{Colour, LONGEST_SIDE, RawImage, Samples, check_size, planes};

/// A JPEG spends at least a bit on each block of 64 pixels: one with fewer is cut off or lies about
/// its size, and would cost seconds to find out.
const MOST_PIXELS_PER_BYTE: u64 = 1024;

/// What the frame header says (ITU-T T.81, B.2.2).
#[derive(Debug, Clone, Copy)]
struct Frame {
    lossless: bool,
    bits: u8,
    width: usize,
    height: usize,
    components: usize,
    /// As an Exif block before it says; 1 without one.
    orientation: u8,
}

/// The image and its orientation.
pub(super) fn decode(
    bytes: &[u8],
    needed: Option<[usize; 2]>,
    colour: Colour,
) -> Result<(RawImage, u8), String> {
    let frame = Frame::of(bytes)?;
    frame.check(bytes)?;
    if frame.lossless || frame.bits != 8 {
        return deep(bytes, frame).map(|image| (image, frame.orientation));
    }
    let options = DecoderOptions::default()
        .set_max_width(LONGEST_SIDE)
        .set_max_height(LONGEST_SIDE)
        .set_strict_mode(false);
    let broken = |error: &dyn std::fmt::Debug| format!("it does not decode ({error:?})");
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder.decode_headers().map_err(|error| broken(&error))?;
    let orientation = frame.orientation;
    if let Some(scaled) = needed.and_then(|needed| frame.reduced(needed, orientation)) {
        return reduced(bytes, scaled, colour).map(|image| (image, orientation));
    }
    let input = decoder.input_colorspace().unwrap_or(ColorSpace::YCbCr);
    // YCbCr has luma as its own component.
    let luma_at_hand =
        input == ColorSpace::Luma || (input == ColorSpace::YCbCr && colour == Colour::Luma);
    let output = if luma_at_hand { ColorSpace::Luma } else { ColorSpace::RGB };
    decoder.set_options(options.jpeg_set_out_colorspace(output));
    let raw = decoder.decode().map_err(|error| broken(&error))?;
    let (width, height) = (frame.width, frame.height);
    let samples = Samples::U8(planes(raw, if luma_at_hand { 1 } else { 3 }, colour));
    Ok((RawImage::new(width, height, samples, 8), orientation))
}

impl Frame {
    fn of(bytes: &[u8]) -> Result<Self, String> {
        let cut = || "it does not decode (it is cut off)".to_owned();
        let (mut at, mut orientation) = (2, 1);
        loop {
            // Markers may be preceded by any number of fill bytes.
            at += bytes
                .get(at..)
                .and_then(|rest| rest.iter().position(|byte| *byte == 0xFF))
                .ok_or_else(cut)?;
            let marker = *bytes.get(at + 1).ok_or_else(cut)?;
            at += 1;
            match marker {
                0x00 | 0x01 | 0xD0..=0xD8 | 0xFF => continue,
                0xD9 | 0xDA => return Err("it does not decode (it has no frame header)".to_owned()),
                _ => {}
            }
            let segment = bytes.get(at + 1..).ok_or_else(cut)?;
            if matches!(marker, 0xC0..=0xCF) && !matches!(marker, 0xC4 | 0xC8 | 0xCC) {
                let &[_, _, bits, high, low, wide, narrow, components, ..] = segment else {
                    return Err(cut());
                };
                let pair = |two| usize::from(u16::from_be_bytes(two));
                return Ok(Self {
                    lossless: matches!(marker, 0xC3 | 0xC7 | 0xCB | 0xCF),
                    bits,
                    width: pair([wide, narrow]),
                    height: pair([high, low]),
                    components: components.into(),
                    orientation,
                });
            }
            let length = segment.first_chunk().ok_or_else(cut)?;
            let length = usize::from(u16::from_be_bytes(*length));
            if let Some(exif) =
                segment.get(2..length).and_then(|rest| rest.strip_prefix(b"Exif\0\0"))
            {
                orientation = exif_orientation(Some(exif));
            }
            at += 1 + length;
        }
    }

    /// Decoders fill in grey where a file ends early; here that is an error.
    fn check(&self, bytes: &[u8]) -> Result<(), String> {
        let last = |marker: [u8; 2]| bytes.windows(2).rposition(|pair| pair == marker);
        let (scan, end) = (last([0xFF, 0xDA]), last([0xFF, 0xD9]));
        if scan.is_none() || end < scan {
            return Err("it does not decode (it is cut off)".to_owned());
        }
        let (width, height) = (self.width, self.height);
        check_size(width, height, self.components.max(1))?;
        if width as u64 * height as u64 > MOST_PIXELS_PER_BYTE * bytes.len() as u64 {
            return Err(format!("it claims {width}×{height} pixels in {} bytes", bytes.len()));
        }
        Ok(())
    }

    /// Width and height at half, a quarter or an eighth of the scale, the smallest of which both
    /// sides are still long enough.
    fn reduced(&self, needed: [usize; 2], orientation: u8) -> Option<[u16; 2]> {
        let [height, width] = needed;
        let [height, width] = if orientation >= 5 { [width, height] } else { [height, width] };
        let divisor = [8, 4, 2].into_iter().find(|divisor| {
            self.width / divisor >= width.max(1) && self.height / divisor >= height.max(1)
        })?;
        let side = |side: usize| u16::try_from(side.div_ceil(divisor)).ok();
        Some([side(self.width)?, side(self.height)?])
    }
}

/// Decodes at a reduced scale, in the DCT domain.
fn reduced(bytes: &[u8], [width, height]: [u16; 2], colour: Colour) -> Result<RawImage, String> {
    let broken = |error: jpeg_decoder::Error| format!("it does not decode ({error})");
    let mut decoder = jpeg_decoder::Decoder::new(Cursor::new(bytes));
    let (width, height) = decoder.scale(width, height).map_err(broken)?;
    let raw = decoder.decode().map_err(broken)?;
    let format = decoder.info().map(|info| info.pixel_format);
    let samples = match format {
        Some(PixelFormat::L8) => raw,
        Some(PixelFormat::RGB24) => planes(raw, 3, colour),
        // The decoder gives 0 for no ink.
        Some(PixelFormat::CMYK32) => {
            let lights = raw.chunks_exact(4).flat_map(|inks| {
                let light = |ink: u8| (255 - u32::from(ink)) * (255 - u32::from(inks[3])) / 255;
                [inks[0], inks[1], inks[2]].map(|ink| light(ink) as u8)
            });
            planes(lights.collect(), 3, colour)
        }
        other => return Err(format!("its pixels are {other:?}, which are not read")),
    };
    Ok(RawImage::new(width.into(), height.into(), Samples::U8(samples), 8))
}

/// Decodes more than 8 bits, or lossless.
fn deep(bytes: &[u8], frame: Frame) -> Result<RawImage, String> {
    let Frame { width, height, components, bits, .. } = frame;
    if components != 1 {
        return Err(format!("it has {components} components of {bits} bits; one is read"));
    }
    check_size(width, height, 2)?;
    let expected = Expected { width, height, samples: 1, bits: 16 };
    let decoded = deep_jpeg::decode(bytes, expected).map_err(|fault| format!("it {fault}"))?;
    let white = (1_u32 << decoded.precision) - 1;
    let full = |value: u16| ((u32::from(value).min(white) * 65535 + white / 2) / white) as u16;
    let samples = match bits {
        8 => Samples::U8(decoded.samples.into_iter().map(|value| value.min(255) as u8).collect()),
        _ => Samples::U16(decoded.samples.into_iter().map(full).collect()),
    };
    Ok(RawImage::new(width, height, samples, bits))
}
