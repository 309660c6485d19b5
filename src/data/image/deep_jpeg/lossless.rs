//! Lossless JPEG (T.81 annex H): each sample is predicted from its neighbours.

use super::huffman::{Bits, Table};
use super::{Plane, Scan, Tables};

/// Decodes a scan into its components' planes.
///
/// # Errors
/// What is damaged or not read.
pub(super) fn decode(
    scan: &Scan<'_>,
    tables: &Tables,
    bits: &mut Bits<'_>,
    planes: &mut [Plane],
) -> Result<(), String> {
    let frame = scan.frame;
    if frame.components.iter().any(|component| component.across * component.down != 1) {
        return Err("is lossless with subsampled colours, which is not read".to_owned());
    }
    if !(1..=7).contains(&scan.predictor) || scan.shift >= frame.precision {
        return Err("has a malformed scan header".to_owned());
    }
    let (width, height) = (frame.width, frame.height);
    let mut parts: Vec<(usize, &Table, Vec<u16>)> = Vec::new();
    for &(place, dc, _) in &scan.parts {
        let table = tables.dc.get(dc).and_then(Option::as_ref);
        let table = table.ok_or("lacks a Huffman table")?;
        parts.push((place, table, vec![0; width * height]));
    }
    let start = 1 << (frame.precision - scan.shift - 1);
    let mut left = scan.restart;
    // The line on which prediction began anew, and whether the next sample does.
    let mut first_line = 0;
    for y in 0..height {
        for x in 0..width {
            let mut anew = x == 0 && y == 0;
            if scan.restart > 0 {
                if left == 0 {
                    bits.restart()?;
                    left = scan.restart;
                    (first_line, anew) = (y, true);
                }
                left -= 1;
            }
            for (_, table, samples) in &mut parts {
                let size = bits.code(table)?;
                let difference = bits.difference(size)?;
                let at = y * width + x;
                let predicted = if anew {
                    start
                } else if y == first_line {
                    i32::from(samples[at - 1])
                } else if x == 0 {
                    i32::from(samples[at - width])
                } else {
                    predict(scan.predictor, samples, at, width)
                };
                samples[at] = (predicted + difference) as u16;
            }
        }
    }
    for (place, _, mut samples) in parts {
        samples.iter_mut().for_each(|sample| *sample <<= scan.shift);
        planes[place] = Plane { stride: width, samples };
    }
    Ok(())
}

/// T.81 table H.1: from the samples to the left, above, and above to the left.
fn predict(predictor: u8, samples: &[u16], at: usize, width: usize) -> i32 {
    let left = i32::from(samples[at - 1]);
    let above = i32::from(samples[at - width]);
    let corner = i32::from(samples[at - width - 1]);
    match predictor {
        1 => left,
        2 => above,
        3 => corner,
        4 => left + above - corner,
        5 => left + ((above - corner) >> 1),
        6 => above + ((left - corner) >> 1),
        _ => (left + above) >> 1,
    }
}
