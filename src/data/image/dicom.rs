//! DICOM files (PS3.10) of one frame as one plane of grey, or three of colours.
//!
//! From the file to grey there are four steps, each in its module: the stored bits (`pixels`), what
//! the modality measured (`modality`), how that is shown (`voi`), and black and white (`grey`).
//! Colours become luma or planes (`colour`): RGB, YBR_FULL, YBR_FULL_422 and PALETTE COLOR.
//!
//! Refused by name: several frames, samples of 1 or 32 bits, floating-point pixels, segmented
//! palettes, and transfer syntaxes other than native, deflated, RLE, JPEG (baseline, extended,
//! lossless) and, as features, JPEG-LS and JPEG 2000. Presentation states and overlays are not
//! applied; of several windows the first is.

mod colour;
mod dataset;
mod file;
mod grey;
mod header;
mod jpeg2000;
mod jpeg_ls;
mod lut;
mod modality;
mod native;
mod pixels;
mod rle;
mod syntax;
mod voi;

use super::{Colour, MOST_PIXEL_BYTES, RawImage, Samples};
use crate::contain::contained;
use dataset::Dataset;
use header::{Header, Photometric};
use modality::Modality;
use voi::Voi;

/// Whether the bytes begin as a DICOM file does, with or without the preamble.
pub(super) fn is_dicom(bytes: &[u8]) -> bool {
    file::begins(bytes)
}

/// Decodes a DICOM file of one frame to one plane (or three): 0 is black in both photometric
/// interpretations and in the padding, the largest value is white. A plane has 8 bits where the file stores no
/// more and nothing makes more of them, else 16.
///
/// # Errors
/// The reason, in words that follow "image `…`: ". Never panics, whatever the file holds.
pub(super) fn decode(bytes: &[u8], colour: Colour) -> Result<RawImage, String> {
    contained(|| {
        let Stored { header, samples, .. } = Stored::read(bytes, colour)?;
        Ok(RawImage::new(header.width, header.height, samples, header.stored))
    })
    .unwrap_or_else(|panic| Err(format!("it does not decode (the decoder failed: {panic})")))
}

/// A file between its bytes and its grey, for tests to compare each step.
struct Stored {
    header: Header,
    /// Planes of grey or colour.
    samples: Samples,
    /// Stored bits, `[height, width, samples]`.
    #[cfg(test)]
    patterns: Vec<u16>,
    #[cfg(test)]
    modality: Modality,
}

impl Stored {
    fn read(bytes: &[u8], colour: Colour) -> Result<Self, String> {
        let body = file::open(bytes)?;
        let (dataset, _) = Dataset::read(&body.bytes, body.start, body.syntax.encoding, |_| false)?;
        let mut header = Header::of(&dataset)?;
        // What cannot be shown is refused before it is decoded.
        let modality = Modality::of(&dataset, header.signed)?;
        let voi = Voi::of(&dataset, modality.is_signed(&header))?;
        let patterns = pixels::decode(&dataset, body.syntax, &mut header)?;
        let samples = match header.photometric {
            Photometric::Monochrome1 | Photometric::Monochrome2 => {
                grey::shown(&header, &patterns, &modality, &voi)
            }
            Photometric::Palette => {
                Samples::U16(colour::palette(&dataset, &header, &patterns, colour)?)
            }
            _ => Samples::U16(colour::planes(&header, &patterns, colour)),
        };
        Ok(Self {
            header,
            samples,
            #[cfg(test)]
            patterns,
            #[cfg(test)]
            modality,
        })
    }
}

#[cfg(test)]
mod refusals;
#[cfg(test)]
mod tests;
