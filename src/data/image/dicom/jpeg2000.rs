//! JPEG 2000 (ITU-T T.800), lossless and lossy.

use hayro_jpeg2000::{DecodeSettings, DecoderContext, Image};

use super::header::Header;

/// What the decoder keeps for each code block and precinct grows with the samples, so these are
/// limited more tightly than elsewhere: 33 million, some 5,800×5,800.
const MOST_SAMPLES: usize = 1 << 25;
/// Precincts of fewer than 32×32 pixels serve nothing but to fill the memory.
const LEAST_PRECINCT: u8 = 5;

/// What the stream's own header says.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stream {
    pub(super) precision: u8,
    pub(super) signed: bool,
}

/// Decodes a stream whose size must be what the header says: `[height, width, components]`, the
/// values of signed streams as two's complement.
///
/// # Errors
/// What is malformed or not read, to follow "its JPEG 2000 stream ".
pub(super) fn decode(bytes: &[u8], header: &Header) -> Result<(Vec<u16>, Stream), String> {
    // A whole JP2 file is not allowed here, and files hold it all the same.
    let start = bytes.windows(4).position(|four| four == [0xFF, 0x4F, 0xFF, 0x51]);
    let bytes = &bytes[start.ok_or("does not begin as JPEG 2000 does")?..];
    let stream = check(bytes, header)?;
    let settings = DecodeSettings { strict: true, ..DecodeSettings::default() };
    let failed = |error| format!("does not decode ({error})");
    let image = Image::new(bytes, &settings).map_err(failed)?;
    let mut context = DecoderContext::default();
    let decoded = image.decode(&mut context).map_err(failed)?;
    let planes = decoded.components();
    let pixels = header.width * header.height;
    if planes.len() != header.samples || planes.iter().any(|plane| plane.samples().len() != pixels)
    {
        return Err("decodes to another size than it claims".to_owned());
    }
    // The decoder moves values to begin at 0 whether they are signed or not.
    let shift = if stream.signed { 1 << (stream.precision - 1) } else { 0 };
    let most = (1_i32 << stream.precision) - 1;
    let mut samples = Vec::with_capacity(header.len());
    for place in 0..pixels {
        for plane in planes {
            let value = plane.samples()[place].round() as i32;
            samples.push((value.clamp(0, most) - shift) as u16);
        }
    }
    Ok((samples, stream))
}

/// Checks sizes before the decoder allocates by them (T.800 A.5.1 and A.6.1).
fn check(bytes: &[u8], header: &Header) -> Result<Stream, String> {
    let size = segment(bytes, 2).filter(|size| size.len() >= 38).ok_or("is cut off")?;
    let whole =
        |at: usize| u32::from_be_bytes([size[at], size[at + 1], size[at + 2], size[at + 3]]);
    let [right, bottom, left, top] = [whole(4), whole(8), whole(12), whole(16)];
    let (width, height) = (right.saturating_sub(left), bottom.saturating_sub(top));
    let count = usize::from(u16::from_be_bytes([size[36], size[37]]));
    let Header { width: columns, height: rows, samples, allocated, .. } = *header;
    if (width as usize, height as usize, count) != (columns, rows, samples) {
        return Err(format!(
            "has {width}×{height} pixels of {count} samples, the header {columns}×{rows} of {samples}"
        ));
    }
    if header.len() > MOST_SAMPLES {
        return Err(format!("has {width}×{height} pixels, more than are read"));
    }
    let (tile_width, tile_height) = (whole(20), whole(24));
    if tile_width < 64.min(width) || tile_height < 64.min(height) {
        return Err(format!("has tiles of {tile_width}×{tile_height}, too small to be read"));
    }
    let parts = size.get(38..38 + count * 3).ok_or("is cut off")?;
    if parts.chunks_exact(3).any(|part| part != [parts[0], 1, 1]) {
        return Err("has components of several sizes or depths, which are not read".to_owned());
    }
    let (precision, signed) = ((parts[0] & 0x7F) + 1, parts[0] & 0x80 != 0);
    if precision > allocated {
        return Err(format!("has samples of {precision} bits, the header {allocated}"));
    }
    check_precincts(bytes, 2 + 2 + size.len())?;
    Ok(Stream { precision, signed })
}

/// The precincts of the coding styles, COD and COC, in the main header and in those of the tiles.
fn check_precincts(bytes: &[u8], mut at: usize) -> Result<(), String> {
    let mut tile_end = None;
    while let Some(&[0xFF, marker]) = bytes.get(at..at + 2) {
        if marker == 0x93 {
            // Data up to the tile part's end, which some streams leave open.
            let Some(end) = tile_end.take().filter(|&end| end > at) else { break };
            at = end;
            continue;
        }
        let Some(segment) = segment(bytes, at) else { break };
        let style = match marker {
            0x52 => segment.get(2).map(|style| (*style, segment.get(7..))),
            0x53 => segment.get(3).map(|style| (*style, segment.get(4..))),
            0x90 => {
                let length = segment.get(4..8).and_then(<[u8]>::first_chunk).copied();
                tile_end = Some(at + u32::from_be_bytes(length.ok_or("is cut off")?) as usize);
                None
            }
            _ => None,
        };
        if let Some((style, Some([levels, rest @ ..]))) = style
            && style & 1 != 0
        {
            for (resolution, exponents) in rest.iter().skip(4).enumerate() {
                let reduced = levels.saturating_sub(resolution.min(32) as u8);
                if (exponents & 15).min(exponents >> 4).saturating_add(reduced) < LEAST_PRECINCT {
                    return Err("has precincts too small to be read".to_owned());
                }
            }
        }
        at += 2 + segment.len();
    }
    Ok(())
}

/// The marker segment at a byte, with its length and without its marker.
fn segment(bytes: &[u8], at: usize) -> Option<&[u8]> {
    let rest = bytes.get(at + 2..)?;
    let length = usize::from(u16::from_be_bytes(*rest.first_chunk()?));
    rest.get(..length).filter(|segment| segment.len() >= 2)
}
