//! Colours as three planes or as luma (ITU-R BT.601), as for the colours of PNG and JPEG files.

use super::super::Colour;
use super::dataset::Dataset;
use super::header::{Header, Photometric};
use super::lut::{Lut, LutTags};

const RED: LutTags = LutTags { descriptor: (0x0028, 0x1101), data: (0x0028, 0x1201) };
const GREEN: LutTags = LutTags { descriptor: (0x0028, 0x1102), data: (0x0028, 0x1202) };
const BLUE: LutTags = LutTags { descriptor: (0x0028, 0x1103), data: (0x0028, 0x1203) };
const SEGMENTED: (u16, u16) = (0x0028, 0x1221);

/// The planes, 0 to 65535, of pixels of three samples each.
pub(super) fn planes(header: &Header, samples: &[u16], colour: Colour) -> Vec<u16> {
    let most = f64::from(header.mask());
    let chroma = matches!(header.photometric, Photometric::YbrFull | Photometric::YbrFull422);
    let pixels = samples.chunks_exact(3).map(|pixel| {
        let pixel = [pixel[0], pixel[1], pixel[2]].map(f64::from);
        if chroma { rgb(pixel, most) } else { pixel }
    });
    shown(pixels, most, colour)
}

/// The planes of pixels whose red, green and blue are from 0 to `most`: luma, or the three where they
/// are wanted and differ.
fn shown(pixels: impl Iterator<Item = [f64; 3]> + Clone, most: f64, colour: Colour) -> Vec<u16> {
    let is_grey = || pixels.clone().all(|[red, green, blue]| red == green && green == blue);
    let scaled = |light: f64| (light / most * 65535.0).round() as u16;
    match colour {
        Colour::Rgb if !is_grey() => {
            (0..3).flat_map(|at| pixels.clone().map(move |pixel| scaled(pixel[at]))).collect()
        }
        _ => pixels
            .map(|[red, green, blue]| scaled(0.299 * red + 0.587 * green + 0.114 * blue))
            .collect(),
    }
}

/// Full-range YCbCr (PS3.3 C.7.6.3.1.2) to RGB.
fn rgb([luma, blue, red]: [f64; 3], most: f64) -> [f64; 3] {
    let half = (most + 1.0) / 2.0;
    let (blue, red) = (blue - half, red - half);
    [luma + 1.402 * red, luma - 0.344_136 * blue - 0.714_136 * red, luma + 1.772 * blue]
        .map(|colour| colour.round().clamp(0.0, most))
}

/// The planes, 0 to 65535, of the colour that each pixel names.
///
/// # Errors
/// What is wrong with the palette.
pub(super) fn palette(
    dataset: &Dataset<'_>,
    header: &Header,
    patterns: &[u16],
    colour: Colour,
) -> Result<Vec<u16>, String> {
    if dataset.value(SEGMENTED).is_some() {
        return Err("its palette is segmented, which is not read".to_owned());
    }
    let table = |tags, name| Lut::of(dataset, tags, header.signed, name);
    let tables =
        [table(RED, "red palette")?, table(GREEN, "green palette")?, table(BLUE, "blue palette")?];
    let named = |bits| {
        let value = f64::from(header.value(bits));
        [&tables[0], &tables[1], &tables[2]]
            .map(|table| (f64::from(table.at(value)) / table.most()).min(1.0))
    };
    let named: Vec<[f64; 3]> = (0..=header.mask()).map(named).collect();
    Ok(shown(patterns.iter().map(|&bits| named[usize::from(bits)]), 1.0, colour))
}
