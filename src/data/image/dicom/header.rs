//! What the header says of the pixels (PS3.3 C.7.6.3), checked before anything is allocated.

use super::MOST_PIXEL_BYTES;
use super::dataset::{Dataset, PIXEL_DATA, Tag, shown};
use crate::screen::counted;

const SAMPLES: Tag = (0x0028, 0x0002);
const PHOTOMETRIC: Tag = (0x0028, 0x0004);
const PLANAR: Tag = (0x0028, 0x0006);
const FRAMES: Tag = (0x0028, 0x0008);
const ROWS: Tag = (0x0028, 0x0010);
const COLUMNS: Tag = (0x0028, 0x0011);
const ALLOCATED: Tag = (0x0028, 0x0100);
const STORED: Tag = (0x0028, 0x0101);
const HIGH: Tag = (0x0028, 0x0102);
const REPRESENTATION: Tag = (0x0028, 0x0103);
const PADDING: Tag = (0x0028, 0x0120);
const PADDING_LIMIT: Tag = (0x0028, 0x0121);
const FLOAT_PIXELS: [Tag; 2] = [(0x7FE0, 0x0008), (0x7FE0, 0x0009)];

/// What the samples mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Photometric {
    /// The smallest value is white.
    Monochrome1,
    /// The smallest value is black.
    Monochrome2,
    Palette,
    Rgb,
    /// Chroma at full resolution.
    YbrFull,
    /// Uncompressed, two luma samples share their chroma.
    YbrFull422,
    /// What JPEG 2000 transforms back to RGB by itself.
    YbrInStream,
}

/// The layout of the pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) width: usize,
    pub(super) height: usize,
    /// Samples of a pixel: 1 or 3.
    pub(super) samples: usize,
    pub(super) photometric: Photometric,
    /// Colours one after another rather than pixel by pixel.
    pub(super) planar: bool,
    /// 8 or 16.
    pub(super) allocated: u8,
    /// 1 to `allocated`.
    pub(super) stored: u8,
    /// The highest bit that is stored; those above may hold overlays.
    pub(super) high: u8,
    pub(super) signed: bool,
    /// Stored values, lowest and highest, that mark pixels outside the image.
    pub(super) padding: Option<(i32, i32)>,
}

impl Header {
    /// # Errors
    /// What is missing, contradictory or not read.
    pub(super) fn of(dataset: &Dataset<'_>) -> Result<Self, String> {
        check_pixels(dataset)?;
        let need = |tag, name: &str| {
            dataset.number(tag).ok_or_else(|| format!("its header lacks {name} {}", shown(tag)))
        };
        let (height, width) = (need(ROWS, "Rows")?, need(COLUMNS, "Columns")?);
        if width == 0 || height == 0 {
            return Err("it has no pixels".to_owned());
        }
        let samples = dataset.number(SAMPLES).unwrap_or(1);
        let photometric = photometric(dataset, samples)?;
        let allocated = need(ALLOCATED, "Bits Allocated")?;
        let stored = need(STORED, "Bits Stored")?;
        let high = dataset.number(HIGH).unwrap_or(stored.saturating_sub(1));
        if !matches!(allocated, 8 | 16) {
            let bits = counted(usize::from(allocated), "bit", "bits");
            return Err(format!("it allocates {bits} per sample; 8 and 16 are read"));
        }
        if stored == 0 || stored > allocated || high >= allocated || high + 1 < stored {
            return Err(format!(
                "its header contradicts itself: {stored} bits stored up to bit {high} of {allocated} allocated"
            ));
        }
        let pixels = u64::from(width) * u64::from(height) * u64::from(samples);
        if pixels * 2 > MOST_PIXEL_BYTES {
            return Err(format!("it claims {width}×{height} pixels, more than are read"));
        }
        let mut header = Self {
            width: usize::from(width),
            height: usize::from(height),
            samples: usize::from(samples),
            photometric,
            planar: samples == 3 && dataset.number(PLANAR) == Some(1),
            allocated: allocated as u8,
            stored: stored as u8,
            high: high as u8,
            signed: need(REPRESENTATION, "Pixel Representation")? == 1,
            padding: None,
        };
        header.padding = header.padding(dataset);
        Ok(header)
    }

    /// The number of samples.
    pub(super) fn len(&self) -> usize {
        self.width * self.height * self.samples
    }

    /// The bits that a stored value takes, set.
    pub(super) fn mask(&self) -> u16 {
        u16::MAX >> (16 - self.stored)
    }

    /// The value that the stored bits mean.
    pub(super) fn value(&self, bits: u16) -> i32 {
        let unused = 32 - u32::from(self.stored);
        if self.signed { (i32::from(bits) << unused) >> unused } else { i32::from(bits) }
    }

    /// The lowest and the highest value that can be stored.
    pub(super) fn range(&self) -> (i32, i32) {
        let span = i32::from(self.mask());
        let low = if self.signed { -(span + 1) / 2 } else { 0 };
        (low, low + span)
    }

    fn padding(&self, dataset: &Dataset<'_>) -> Option<(i32, i32)> {
        // Both have the pixels' own representation, in 16 bits however many are stored.
        let read = |tag| {
            dataset.number(tag).map(|word| {
                if self.signed { i32::from(word.cast_signed()) } else { i32::from(word) }
            })
        };
        let value = read(PADDING)?;
        let limit = read(PADDING_LIMIT).unwrap_or(value);
        Some((value.min(limit), value.max(limit)))
    }
}

fn check_pixels(dataset: &Dataset<'_>) -> Result<(), String> {
    if let Some(frames) = dataset.text(FRAMES) {
        match frames.parse::<i64>() {
            Ok(0 | 1) => {}
            Ok(count) => {
                return Err(format!(
                    "it holds {count} frames; write the one to train on to a file of its own"
                ));
            }
            Err(_) => {
                return Err(format!("its Number of Frames (0028,0008) is `{frames}`, no number"));
            }
        }
    }
    if FLOAT_PIXELS.iter().any(|&tag| dataset.value(tag).is_some()) {
        return Err("its pixels are floating-point numbers, which are not read".to_owned());
    }
    if dataset.value(PIXEL_DATA).is_none() {
        return Err("it is DICOM without pixels: there is no Pixel Data (7FE0,0010)".to_owned());
    }
    Ok(())
}

fn photometric(dataset: &Dataset<'_>, samples: u16) -> Result<Photometric, String> {
    let name = dataset
        .text(PHOTOMETRIC)
        .ok_or("its header lacks Photometric Interpretation (0028,0004)")?;
    let photometric = match name {
        "MONOCHROME1" => Photometric::Monochrome1,
        "MONOCHROME2" => Photometric::Monochrome2,
        "PALETTE COLOR" => Photometric::Palette,
        "RGB" => Photometric::Rgb,
        "YBR_FULL" => Photometric::YbrFull,
        "YBR_FULL_422" => Photometric::YbrFull422,
        "YBR_RCT" | "YBR_ICT" => Photometric::YbrInStream,
        other => return Err(format!("its photometric interpretation `{other}` is not read")),
    };
    let single = matches!(
        photometric,
        Photometric::Monochrome1 | Photometric::Monochrome2 | Photometric::Palette
    );
    if samples != if single { 1 } else { 3 } {
        return Err(format!(
            "its header contradicts itself: {samples} samples per pixel of {name}"
        ));
    }
    Ok(photometric)
}
