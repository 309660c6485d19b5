//! Image files as grey planes: PNG and JPEG, 8 and 16 bits.

use std::fs::{self, File};
use std::io::{Cursor, Read};
use std::path::Path;

use image::{DynamicImage, ImageFormat, ImageReader, Limits};

mod dicom;

use super::contain::contained;

/// Files larger than this are no radiographs; they are refused unread.
const MOST_FILE_BYTES: u64 = 1 << 30;
/// What a decoder may allocate for one image: some 134 million 16-bit pixels.
const MOST_PIXEL_BYTES: u64 = 256 << 20;
const LONGEST_SIDE: u32 = 1 << 16;
/// A JPEG spends at least a bit on each block of 64 pixels: one with fewer is cut off or lies about
/// its size, and would cost seconds to find out.
const MOST_PIXELS_PER_JPEG_BYTE: u64 = 1024;

/// A decoded image: planes of grey (or an array's channels), nothing resized yet.
#[derive(Debug, Clone, PartialEq)]
pub struct RawImage {
    /// In pixels.
    pub width: usize,
    /// In pixels.
    pub height: usize,
    /// 1, but for arrays.
    pub planes: usize,
    /// `[planes, height, width]`, row by row.
    pub samples: Samples,
    /// The bits that the file stores for each sample.
    pub depth: u8,
}

/// The samples of a [`RawImage`].
#[derive(Debug, Clone, PartialEq)]
pub enum Samples {
    /// 0 is black and 255 white.
    U8(Vec<u8>),
    /// 0 is black and 65535 white: other depths are scaled to the full range, which loses nothing.
    U16(Vec<u16>),
    /// As they are; arrays only.
    F32(Vec<f32>),
}

/// A grey image as decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GreyImage {
    /// In pixels.
    pub width: usize,
    /// In pixels.
    pub height: usize,
    /// `[height, width]`, row by row: 0 is black and 65535 white whatever the file's depth.
    pub pixels: Vec<u16>,
}

/// Reads an image file.
///
/// # Errors
/// The reason, in words that follow "image `…`: ". Never panics, whatever the file holds.
pub fn read_image(path: &Path) -> Result<GreyImage, String> {
    let bytes = read_file(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => "the file does not exist".to_owned(),
        _ => format!("the file cannot be read: {error}"),
    })?;
    decode_image(&bytes)
}

fn read_file(path: &Path) -> std::io::Result<Vec<u8>> {
    if fs::metadata(path)?.is_dir() {
        return Err(std::io::Error::other("it is a folder"));
    }
    let mut bytes = Vec::new();
    // Devices and pipes report no size, so the limit holds while reading.
    File::open(path)?.take(MOST_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST_FILE_BYTES {
        return Err(std::io::Error::other("it is larger than 1 GiB"));
    }
    Ok(bytes)
}

/// Decodes the bytes of a PNG or JPEG, told apart by their content. Colour becomes luma (ITU-R
/// BT.709); an alpha channel is ignored.
///
/// # Errors
/// The reason. Never panics and never allocates more than a radiograph needs.
pub fn decode_image(bytes: &[u8]) -> Result<GreyImage, String> {
    let format = format_of(bytes)?;
    contained(|| decode_as(bytes, format))
        .unwrap_or_else(|panic| Err(format!("it does not decode (the decoder failed: {panic})")))
}

fn format_of(bytes: &[u8]) -> Result<ImageFormat, String> {
    if bytes.is_empty() {
        return Err("the file is empty".to_owned());
    }
    match image::guess_format(bytes) {
        Ok(format @ (ImageFormat::Png | ImageFormat::Jpeg)) => Ok(format),
        Ok(other) => Err(format!("it is {other:?}, not PNG or JPEG")),
        Err(_) if dicom::is_dicom(bytes) => dicom::decode(bytes).map(|_| ImageFormat::Png),
        Err(_) => Err("it is neither PNG nor JPEG".to_owned()),
    }
}

fn decode_as(bytes: &[u8], format: ImageFormat) -> Result<GreyImage, String> {
    if format == ImageFormat::Jpeg {
        check_jpeg(bytes)?;
    }
    let mut limits = Limits::default();
    limits.max_image_width = Some(LONGEST_SIDE);
    limits.max_image_height = Some(LONGEST_SIDE);
    limits.max_alloc = Some(MOST_PIXEL_BYTES);
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    reader.limits(limits);
    let decoded = reader.decode().map_err(|error| format!("it does not decode ({error})"))?;
    let (width, height) = (decoded.width() as usize, decoded.height() as usize);
    if width == 0 || height == 0 {
        return Err("it has no pixels".to_owned());
    }
    Ok(GreyImage { width, height, pixels: grey(decoded) })
}

/// The decoder fills in grey where a JPEG ends early; here that is an error.
fn check_jpeg(bytes: &[u8]) -> Result<(), String> {
    let last = |marker: [u8; 2]| bytes.windows(2).rposition(|pair| pair == marker);
    let (scan, end) = (last([0xFF, 0xDA]), last([0xFF, 0xD9]));
    if scan.is_none() || end < scan {
        return Err("it does not decode (it is cut off)".to_owned());
    }
    let reader = ImageReader::with_format(Cursor::new(bytes), ImageFormat::Jpeg);
    let (width, height) =
        reader.into_dimensions().map_err(|error| format!("it does not decode ({error})"))?;
    let pixels = u64::from(width) * u64::from(height);
    if pixels > MOST_PIXELS_PER_JPEG_BYTE * bytes.len() as u64 {
        let size = bytes.len();
        return Err(format!("it claims {width}×{height} pixels in {size} bytes"));
    }
    Ok(())
}

fn grey(decoded: DynamicImage) -> Vec<u16> {
    let widen = |value: u8| u16::from(value) * 257;
    match decoded {
        DynamicImage::ImageLuma8(plane) => plane.into_raw().into_iter().map(widen).collect(),
        DynamicImage::ImageLumaA8(plane) => plane.pixels().map(|pixel| widen(pixel.0[0])).collect(),
        DynamicImage::ImageLuma16(plane) => plane.into_raw(),
        DynamicImage::ImageLumaA16(plane) => plane.pixels().map(|pixel| pixel.0[0]).collect(),
        colour => colour.into_luma16().into_raw(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use image::{ExtendedColorType, ImageEncoder};
    use rand::{Rng, RngExt};
    use serde::Deserialize;

    #[derive(Deserialize)]
    struct Case {
        name: String,
        file: String,
        width: usize,
        height: usize,
        pixels: Vec<u16>,
        tolerance: u16,
    }

    fn bytes_of(hex: &str) -> Vec<u8> {
        let digits = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("is hexadecimal");
        (0..hex.len()).step_by(2).map(digits).collect()
    }

    #[test]
    fn files_decode_to_what_pillow_and_opencv_decode() {
        let fixture = include_str!("../../../tests/fixtures/data_decode.json");
        let cases: Vec<Case> = serde_json::from_str(fixture).expect("the fixture reads");
        assert!(cases.len() >= 6);
        for case in cases {
            let image = decode_image(&bytes_of(&case.file)).expect("decodes");
            assert_eq!((image.width, image.height), (case.width, case.height), "{}", case.name);
            for (ours, theirs) in image.pixels.iter().zip(&case.pixels) {
                assert!(ours.abs_diff(*theirs) <= case.tolerance, "{}: {ours} {theirs}", case.name);
            }
        }
    }

    fn small_png(colour: ExtendedColorType) -> Vec<u8> {
        let mut random = crate::random::stream(1, "test", &[]);
        let bytes = 12 * 9 * usize::from(colour.bits_per_pixel()) / 8;
        let pixels: Vec<u8> = (0..bytes).map(|_| random.random()).collect();
        let mut png = Vec::new();
        image::codecs::png::PngEncoder::new(&mut png)
            .write_image(&pixels, 12, 9, colour)
            .expect("encodes");
        png
    }

    fn small_jpeg() -> Vec<u8> {
        let pixels: Vec<u8> = (0..24 * 17).map(|place| (place * 7 % 251) as u8).collect();
        let mut jpeg = Vec::new();
        image::codecs::jpeg::JpegEncoder::new(&mut jpeg)
            .write_image(&pixels, 24, 17, ExtendedColorType::L8)
            .expect("encodes");
        jpeg
    }

    #[test]
    fn damaged_files_are_errors_or_images_and_never_panics() {
        let sources = [
            small_png(ExtendedColorType::L16),
            small_png(ExtendedColorType::Rgb8),
            small_jpeg(),
            bytes_of(&fixture_file("progressive jpeg")),
        ];
        let (mut refused, mut read) = (0, 0);
        for trial in 0..1200 {
            let mut random = crate::random::stream(2, "test", &[trial]);
            let mut bytes = sources[trial as usize % sources.len()].clone();
            for _ in 0..random.random_range(1..6) {
                let place = random.random_range(0..bytes.len());
                match random.next_u32() % 4 {
                    0 => bytes.truncate(place.max(1)),
                    1 => bytes.insert(place, random.random()),
                    _ => bytes[place] = random.random(),
                }
            }
            match decode_image(&bytes) {
                Ok(image) => {
                    read += 1;
                    assert_eq!(image.pixels.len(), image.width * image.height);
                }
                Err(reason) => {
                    refused += 1;
                    assert!(!reason.is_empty());
                }
            }
        }
        assert!(refused > 300 && read > 10, "{refused} refused, {read} read");
    }

    fn fixture_file(name: &str) -> String {
        let fixture = include_str!("../../../tests/fixtures/data_decode.json");
        let cases: Vec<Case> = serde_json::from_str(fixture).expect("the fixture reads");
        cases.into_iter().find(|case| case.name == name).expect("is in the fixture").file
    }

    #[test]
    fn what_is_no_image_is_refused_with_its_reason() {
        let reason = |bytes: &[u8]| decode_image(bytes).expect_err("is refused");
        let jpeg = small_jpeg();
        let mut dicom = vec![0; 128];
        dicom.extend_from_slice(b"DICM");
        insta::assert_snapshot!(reason(b""), @"the file is empty");
        insta::assert_snapshot!(reason(b"Path,Sex\n"), @"it is neither PNG nor JPEG");
        insta::assert_snapshot!(reason(b"GIF89a\x01\x00\x01\x00"), @"it is Gif, not PNG or JPEG");
        insta::assert_snapshot!(reason(&dicom), @"it is DICOM, not PNG or JPEG; convert it first");
        insta::assert_snapshot!(reason(&jpeg[..jpeg.len() * 2 / 3]), @"it does not decode (it is cut off)");
        insta::assert_snapshot!(reason(&small_png(ExtendedColorType::L16)[..60]), @"it does not decode (unexpected end of file)");
        insta::assert_snapshot!(
            read_image(Path::new("nowhere.png")).expect_err("is refused"), @"the file does not exist");
        insta::assert_snapshot!(
            read_image(Path::new("src")).expect_err("is refused"), @"the file cannot be read: it is a folder");
    }

    #[test]
    fn an_image_that_claims_more_than_it_can_hold_is_refused_before_it_is_allocated() {
        let mut jpeg = small_jpeg();
        let frame = jpeg.windows(2).position(|pair| pair == [0xFF, 0xC0]).expect("has a frame");
        jpeg[frame + 5..frame + 9].copy_from_slice(&[0xFF, 0xFF, 0xFF, 0xFF]);
        let reason = decode_image(&jpeg).expect_err("is refused");
        assert!(reason.contains("65535×65535 pixels in"), "{reason}");

        let mut png = small_png(ExtendedColorType::L16);
        png[16..24].copy_from_slice(&[0, 0, 0xFF, 0xFF, 0, 0, 0xFF, 0xFF]);
        // The checksum of the header chunk must fit, or that alone is refused.
        let checksum = crc32(&png[12..29]);
        png[29..33].copy_from_slice(&checksum.to_be_bytes());
        let reason = decode_image(&png).expect_err("is refused");
        assert!(reason.to_lowercase().contains("limit"), "{reason}");
    }

    fn crc32(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(!0_u32, |crc, &byte| {
            (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0xEDB8_8320 * (crc & 1)))
        })
    }
}
