//! Pixels that nothing compresses (PS3.5 8.1.1), and how samples of several colours lie.

use super::header::{Header, Photometric};

/// The allocated words of the pixels, a pixel's colours together. `swapped` says that the bytes lie
/// in 16-bit words of big endian, whatever is allocated.
///
/// # Errors
/// How many bytes there are, where they are too few.
pub(super) fn decode(bytes: &[u8], header: &Header, swapped: bool) -> Result<Vec<u16>, String> {
    // Chroma of every second pixel: Y Y Cb Cr.
    let halved = header.photometric == Photometric::YbrFull422;
    let count = if halved { header.width.div_ceil(2) * 4 * header.height } else { header.len() };
    let need = count * usize::from(header.allocated / 8);
    // Less than a row is padding, as pydicom takes it; more is an image of another size.
    if bytes.len() - bytes.len().min(need) >= (need / header.height.max(1)).max(2) {
        let (width, height) = (header.width, header.height);
        let found = bytes.len();
        return Err(format!(
            "it holds {found} bytes of pixels, and its Rows and Columns ({height}×{width}) take {need}"
        ));
    }
    let whole = bytes;
    let bytes = bytes.get(..need).ok_or_else(|| {
        format!("it is cut off: it holds {} of {need} bytes of pixels", bytes.len())
    })?;
    let words: Vec<u16> = match (header.allocated, swapped) {
        (8, true) => {
            (0..need).map(|place| whole.get(place ^ 1).copied().unwrap_or(0).into()).collect()
        }
        (8, false) => bytes.iter().map(|&byte| u16::from(byte)).collect(),
        (_, false) => pairs(bytes).map(u16::from_le_bytes).collect(),
        (_, true) => pairs(bytes).map(u16::from_be_bytes).collect(),
    };
    Ok(if halved {
        spread_chroma(&words, header)
    } else if header.planar {
        interleaved(&words, header)
    } else {
        words
    })
}

fn pairs(bytes: &[u8]) -> impl Iterator<Item = [u8; 2]> {
    bytes.chunks_exact(2).map(|pair| [pair[0], pair[1]])
}

/// `[samples, pixels]` as `[pixels, samples]`.
pub(super) fn interleaved(planes: &[u16], header: &Header) -> Vec<u16> {
    let pixels = header.width * header.height;
    let sample = |place: usize| planes[place % header.samples * pixels + place / header.samples];
    (0..header.len()).map(sample).collect()
}

fn spread_chroma(words: &[u16], header: &Header) -> Vec<u16> {
    let mut pixels = Vec::with_capacity(header.len());
    for row in words.chunks_exact(header.width.div_ceil(2) * 4) {
        for x in 0..header.width {
            let pair = &row[x / 2 * 4..][..4];
            pixels.extend([pair[x % 2], pair[2], pair[3]]);
        }
    }
    pixels
}
