//! Turning an image as its file says (Exif 2.32, tag 0x0112; TIFF 6.0, Orientation).

use exif::{In, Reader, Tag};

use super::{RawImage, Samples};

/// The orientation, 1 to 8, in an Exif block; 1 where there is none that can be read.
pub(super) fn exif_orientation(exif: Option<&[u8]>) -> u8 {
    let orientation = |block: &[u8]| {
        let exif = Reader::new().read_raw(block.to_vec()).ok()?;
        let value = exif.get_field(Tag::Orientation, In::PRIMARY)?.value.get_uint(0)?;
        u8::try_from(value).ok().filter(|value| (1..=8).contains(value))
    };
    exif.and_then(orientation).unwrap_or(1)
}

/// The image as it is meant to be seen; other values than 2 to 8 leave it as it is.
pub(super) fn orient(image: RawImage, orientation: u8) -> RawImage {
    if !(2..=8).contains(&orientation) {
        return image;
    }
    let RawImage { width, height, planes, samples, depth } = image;
    let size = [height, width];
    let samples = match samples {
        Samples::U8(values) => Samples::U8(turned(&values, size, orientation)),
        Samples::U16(values) => Samples::U16(turned(&values, size, orientation)),
        Samples::F32(values) => Samples::F32(turned(&values, size, orientation)),
    };
    let (width, height) = if orientation >= 5 { (height, width) } else { (width, height) };
    RawImage { width, height, planes, samples, depth }
}

fn turned<T: Copy>(values: &[T], [height, width]: [usize; 2], orientation: u8) -> Vec<T> {
    let (rows, columns) = if orientation >= 5 { (width, height) } else { (height, width) };
    let mut turned = Vec::with_capacity(values.len());
    for plane in values.chunks_exact(height * width) {
        for row in 0..rows {
            for column in 0..columns {
                let (y, x) = match orientation {
                    2 => (row, width - 1 - column),
                    3 => (height - 1 - row, width - 1 - column),
                    4 => (height - 1 - row, column),
                    5 => (column, row),
                    6 => (height - 1 - column, row),
                    7 => (height - 1 - column, width - 1 - row),
                    _ => (column, width - 1 - row),
                };
                turned.push(plane[y * width + x]);
            }
        }
    }
    turned
}
