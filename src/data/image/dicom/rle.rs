//! RLE Lossless (PS3.5 annex G): each byte of each sample is a plane of its own, run-length coded.

use super::header::Header;
use super::native;

const HEADER_BYTES: usize = 64;

/// The allocated words of the pixels, a pixel's colours together.
///
/// # Errors
/// Which segment is missing, cut off or too short.
pub(super) fn decode(bytes: &[u8], header: &Header) -> Result<Vec<u16>, String> {
    let table = bytes.get(..HEADER_BYTES).ok_or("its RLE header is cut off")?;
    let entry = |place: usize| {
        let four = &table[place * 4..place * 4 + 4];
        u32::from_le_bytes([four[0], four[1], four[2], four[3]]) as usize
    };
    let planes = usize::from(header.allocated / 8);
    let segments = header.samples * planes;
    if entry(0) != segments {
        return Err(format!("it has {} RLE segments where its header needs {segments}", entry(0)));
    }
    let pixels = header.width * header.height;
    // Two bytes code 128 at most.
    if bytes.len() * 64 < pixels {
        return Err(format!("its RLE segments hold no {pixels} pixels in {} bytes", bytes.len()));
    }
    let mut samples = vec![0_u16; header.len()];
    for segment in 0..segments {
        let begin = entry(segment + 1);
        let end = if segment + 1 < segments { entry(segment + 2) } else { bytes.len() };
        let coded = bytes
            .get(begin..end)
            .ok_or_else(|| format!("its RLE segment {} is cut off", segment + 1))?;
        let plane = &mut samples[segment / planes * pixels..][..pixels];
        let decoded = unpack(coded, plane);
        if decoded < pixels {
            return Err(format!(
                "its RLE segment {} holds {decoded} of {pixels} pixels",
                segment + 1
            ));
        }
    }
    Ok(if header.samples > 1 { native::interleaved(&samples, header) } else { samples })
}

/// Shifts a byte plane into the samples, the most significant plane first (PackBits, PS3.5 G.3.2).
/// Returns how many samples it reached; what is beyond them is padding.
fn unpack(mut coded: &[u8], plane: &mut [u16]) -> usize {
    let mut at = 0;
    while let (true, Some((&control, rest))) = (at < plane.len(), coded.split_first()) {
        let left = plane.len() - at;
        match control {
            0..=127 => {
                let count = (usize::from(control) + 1).min(rest.len());
                for (sample, &byte) in plane[at..].iter_mut().zip(&rest[..count]) {
                    *sample = *sample << 8 | u16::from(byte);
                }
                at += count.min(left);
                coded = &rest[count..];
            }
            128 => coded = rest,
            129..=255 => {
                let Some((&byte, after)) = rest.split_first() else { break };
                let count = (257 - usize::from(control)).min(left);
                for sample in &mut plane[at..at + count] {
                    *sample = *sample << 8 | u16::from(byte);
                }
                at += count;
                coded = after;
            }
        }
    }
    at
}
