//! Image files as planes of grey, or of the three colours: one file per format.

mod deep_jpeg;
mod dicom;
mod jpeg;
mod orient;
pub(super) mod png;
mod tiff;

use std::fs;
use std::io::Read;
use std::path::Path;

use super::npy::Array;
use crate::contain::contained;
use crate::paths::{looked_in, open_file};
use orient::orient;

/// Files larger than this are no radiographs; they are refused unread.
const MOST_FILE_BYTES: u64 = 1 << 30;
/// What a decoder may allocate for one image: some 134 million 16-bit pixels.
const MOST_PIXEL_BYTES: u64 = 256 << 20;
const LONGEST_SIDE: usize = 1 << 16;

/// A decoded image: planes of grey or colour (or an array's channels), nothing resized yet.
#[derive(Debug, Clone, PartialEq)]
pub struct RawImage {
    /// In pixels.
    pub width: usize,
    /// In pixels.
    pub height: usize,
    /// 1; 3 for red, green and blue; for arrays any number.
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

impl Samples {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::U8(values) => values.len(),
            Self::U16(values) => values.len(),
            Self::F32(values) => values.len(),
        }
    }

    /// The least and the greatest of numbers that are as they are; none where black and white are
    /// known.
    pub(super) fn range(&self) -> Option<[f32; 2]> {
        let Self::F32(values) = self else { return None };
        let ends = values.iter().map(|value| [*value; 2]);
        ends.reduce(|[low, high], [lower, higher]| [low.min(lower), high.max(higher)])
    }
}

/// What becomes of colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    /// One plane of luma (ITU-R BT.601), as Pillow's mode `L`.
    Luma,
    /// Three planes, as Pillow's mode `RGB`; one where all three are the same, as in grey images.
    Rgb,
}

impl Colour {
    /// As images of so many channels need it.
    pub fn of_channels(channels: usize) -> Self {
        if channels == 3 { Self::Rgb } else { Self::Luma }
    }
}

/// Reads an image file, or image `item` of an array.
///
/// `needed` is the least height and width that are of use: where a format can be decoded at a
/// reduced scale for less work, it is, as long as both sides stay at least as long. A file's
/// orientation is applied.
///
/// # Errors
/// The reason, in words that follow "image `…`: ". Never panics, whatever the file holds.
pub fn read_image(
    path: &Path,
    item: Option<usize>,
    needed: Option<[usize; 2]>,
    colour: Colour,
) -> Result<RawImage, String> {
    if let Some(item) = item {
        return Array::open(path)?.image(item);
    }
    let bytes = read_file(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => format!("the file does not exist{}", looked_in(path)),
        _ => format!("the file cannot be read: {error}"),
    })?;
    decode_image(&bytes, needed, colour)
}

/// The bytes of an image file.
pub(super) fn read_file(path: &Path) -> std::io::Result<Vec<u8>> {
    let about = fs::metadata(path)?;
    if about.is_dir() {
        return Err(std::io::Error::other("it is a folder"));
    }
    let mut bytes = Vec::with_capacity(about.len().min(MOST_FILE_BYTES) as usize);
    // A file may grow while it is read.
    open_file(path)?.take(MOST_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST_FILE_BYTES {
        return Err(std::io::Error::other("it is larger than 1 GiB"));
    }
    Ok(bytes)
}

/// Decodes the bytes of a PNG, JPEG, TIFF or DICOM file, told apart by their content. An alpha
/// channel is ignored.
///
/// # Errors
/// The reason. Never panics and never allocates more than a radiograph needs.
pub fn decode_image(
    bytes: &[u8],
    needed: Option<[usize; 2]>,
    colour: Colour,
) -> Result<RawImage, String> {
    let format = Format::of(bytes)?;
    let decoded = contained(|| match format {
        Format::Png => png::decode(bytes, colour),
        Format::Jpeg => jpeg::decode(bytes, needed, colour),
        Format::Tiff => tiff::decode(bytes, colour),
        Format::Dicom => dicom::decode(bytes, colour).map(|image| (image, 1)),
    });
    let (image, orientation) = decoded
        .unwrap_or_else(|panic| Err(format!("it does not decode (the decoder failed: {panic})")))?;
    Ok(orient(image, orientation))
}

/// What names of images end with.
pub(super) const ENDINGS: [&str; 7] = ["png", "jpg", "jpeg", "tif", "tiff", "dcm", "dicom"];

/// Whether a file is called like an image.
pub(super) fn has_ending(path: &Path) -> bool {
    let ending = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
    ENDINGS.contains(&ending.as_str())
}

/// Whether a file begins as an image does, or is called like one.
pub(super) fn is_image(path: &Path) -> bool {
    if has_ending(path) {
        return true;
    }
    let mut begins = Vec::new();
    let read = open_file(path).and_then(|file| file.take(1024).read_to_end(&mut begins));
    read.is_ok() && Format::of(&begins).is_ok()
}

/// A file format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Png,
    Jpeg,
    Tiff,
    Dicom,
}

impl Format {
    fn of(bytes: &[u8]) -> Result<Self, String> {
        let begins = |with: &[u8]| bytes.starts_with(with);
        if bytes.is_empty() {
            return Err("the file is empty".to_owned());
        }
        if begins(b"\x89PNG\r\n\x1a\n") {
            return Ok(Self::Png);
        }
        if begins(b"\xFF\xD8\xFF") {
            return Ok(Self::Jpeg);
        }
        let tiff: [&[u8]; 4] = [b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"];
        if tiff.into_iter().any(begins) {
            return Ok(Self::Tiff);
        }
        if dicom::is_dicom(bytes) {
            return Ok(Self::Dicom);
        }
        let known: [(&[u8], &str); 6] = [
            (b"GIF8", "GIF"),
            (b"BM", "BMP"),
            (b"\0\0\0\x0CjP", "JPEG 2000"),
            (b"\xFF\x4F\xFF\x51", "JPEG 2000"),
            (b"RIFF", "WebP"),
            (b"\x93NUMPY", "a NumPy array (see `[data.arrays]`)"),
        ];
        match known.into_iter().find(|(start, _)| begins(start)) {
            Some((_, name)) => Err(format!("it is {name}, not PNG, JPEG, TIFF or DICOM")),
            None => Err("it is neither PNG, JPEG, TIFF nor DICOM".to_owned()),
        }
    }
}

/// Refuses a size that no radiograph has, before anything of it is allocated. `bytes` is what a
/// decoded pixel takes.
fn check_size(width: usize, height: usize, bytes: usize) -> Result<(), String> {
    if width == 0 || height == 0 {
        return Err("it has no pixels".to_owned());
    }
    let fits = (width as u64)
        .checked_mul(height as u64)
        .and_then(|pixels| pixels.checked_mul(bytes as u64))
        .is_some_and(|total| total <= MOST_PIXEL_BYTES);
    if !fits || width > LONGEST_SIDE || height > LONGEST_SIDE {
        return Err(format!("its {width}×{height} pixels are more than are read (256 MiB)"));
    }
    Ok(())
}

/// Luma of red, green and blue (ITU-R BT.601), with Pillow's integer weights.
fn luma([red, green, blue]: [u32; 3]) -> u32 {
    ((u64::from(red) * 19595 + u64::from(green) * 38470 + u64::from(blue) * 7471 + 0x8000) >> 16)
        as u32
}

/// Of pixels of `channels` samples each the plane of grey or luma, or the planes of colours; alpha is
/// dropped.
fn planes<T: Copy + PartialEq + Into<u32> + TryFrom<u32>>(
    samples: Vec<T>,
    channels: usize,
    colour: Colour,
) -> Vec<T> {
    let pixels = samples.chunks_exact(channels);
    let is_grey = || pixels.clone().all(|pixel| pixel[0] == pixel[1] && pixel[1] == pixel[2]);
    match (channels, colour) {
        (1, _) => samples,
        (2, _) => pixels.map(|pixel| pixel[0]).collect(),
        (_, Colour::Rgb) if !is_grey() => {
            (0..3).flat_map(|at| pixels.clone().map(move |pixel| pixel[at])).collect()
        }
        _ => pixels
            .map(|pixel| {
                let mixed = luma([pixel[0].into(), pixel[1].into(), pixel[2].into()]);
                // A mean is no larger than the largest.
                T::try_from(mixed).unwrap_or(pixel[0])
            })
            .collect(),
    }
}

impl RawImage {
    /// An image of as many planes as `samples` has.
    fn new(width: usize, height: usize, samples: Samples, depth: u8) -> Self {
        let planes = samples.len() / (width * height).max(1);
        Self { width, height, planes, samples, depth }
    }
}

#[cfg(test)]
mod tests;
