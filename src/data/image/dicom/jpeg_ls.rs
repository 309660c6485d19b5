//! JPEG-LS (ITU-T T.87), lossless and near-lossless: 2 to 16 bits, any interleaving.

mod bits;
mod model;

use super::header::Header;
use bits::Bits;
use model::{Coding, Model};

struct Frame {
    precision: u8,
    /// Component identifiers.
    names: Vec<u8>,
}

/// Decodes a stream whose size must be what the header says: `[height, width, components]`.
///
/// # Errors
/// What is malformed or not read, to follow "its JPEG-LS stream ".
pub(super) fn decode(bytes: &[u8], header: &Header) -> Result<Vec<u16>, String> {
    if !bytes.starts_with(&[0xFF, 0xD8]) {
        return Err("does not begin as JPEG-LS does".to_owned());
    }
    let mut at = 2;
    let (mut frame, mut preset) = (None, None);
    let mut pixels = Vec::new();
    let mut done = vec![false; header.samples];
    while !done.iter().all(|&done| done) {
        let &[0xFF, marker, ref rest @ ..] = bytes.get(at..).unwrap_or_default() else {
            return Err("is cut off".to_owned());
        };
        if marker == 0xFF {
            at += 1;
            continue;
        }
        let length =
            rest.first_chunk().map_or(0, |&length| usize::from(u16::from_be_bytes(length)));
        let segment = rest.get(2..length).ok_or("is cut off")?;
        at += 2 + length;
        match marker {
            0xF7 => frame = Some(frame_of(segment, header)?),
            0xF8 => preset = Some(preset_of(segment)?),
            0xDA => {
                let frame = frame.as_ref().ok_or("has a scan before its frame")?;
                let scan = Scan::of(segment, frame, &mut done)?;
                pixels.resize(header.len(), 0);
                let coding = Coding::new(frame.precision, scan.near, preset)?;
                at += scan.run(&bytes[at..], coding, header, &mut pixels)?;
            }
            0xDD => return Err("has restart markers, which are not read".to_owned()),
            0xE8 if segment.starts_with(b"mrfx") => {
                return Err("transforms its colours, which is not read".to_owned());
            }
            0xC0..=0xCF => return Err("is JPEG and not JPEG-LS".to_owned()),
            _ => {}
        }
    }
    Ok(pixels)
}

fn frame_of(segment: &[u8], header: &Header) -> Result<Frame, String> {
    let &[precision, high, low, wide, narrow, count, ref parts @ ..] = segment else {
        return Err("has a malformed frame header".to_owned());
    };
    let size = |pair| usize::from(u16::from_be_bytes(pair));
    let (width, height) = (size([wide, narrow]), size([high, low]));
    let Header { width: columns, height: rows, samples, allocated, .. } = *header;
    if (width, height, usize::from(count)) != (columns, rows, samples) {
        return Err(format!(
            "has {width}×{height} pixels of {count} samples, the header {columns}×{rows} of {samples}"
        ));
    }
    if !(2..=allocated).contains(&precision) {
        return Err(format!("has samples of {precision} bits, the header {allocated}"));
    }
    let whole = parts.chunks_exact(3).take(samples).filter(|part| part[1] == 0x11);
    let names: Vec<u8> = whole.map(|part| part[0]).collect();
    if names.len() != samples {
        return Err("has subsampled colours, which are not read".to_owned());
    }
    Ok(Frame { precision, names })
}

/// The largest value, the three thresholds and the reset of T.87 C.2.4.1.1; 0 stands for the default.
fn preset_of(segment: &[u8]) -> Result<[i32; 5], String> {
    let (1, Some(words)) = (segment.first().copied().unwrap_or(0), segment.get(1..11)) else {
        return Err("has a mapping table, which is not read".to_owned());
    };
    let word =
        |place: usize| i32::from(u16::from_be_bytes([words[place * 2], words[place * 2 + 1]]));
    Ok(std::array::from_fn(word))
}

struct Scan {
    /// Places of its components in the frame.
    places: Vec<usize>,
    near: i32,
    by_sample: bool,
}

impl Scan {
    fn of(segment: &[u8], frame: &Frame, done: &mut [bool]) -> Result<Self, String> {
        let malformed = || "has a malformed scan header".to_owned();
        let (&count, rest) = segment.split_first().ok_or_else(malformed)?;
        let count = usize::from(count);
        let mut places = Vec::new();
        for part in rest.chunks_exact(2).take(count) {
            let place = frame.names.iter().position(|&name| name == part[0]);
            let place = place.ok_or_else(malformed)?;
            if std::mem::replace(&mut done[place], true) {
                return Err("codes a component twice".to_owned());
            }
            if part[1] != 0 {
                return Err("has a mapping table, which is not read".to_owned());
            }
            places.push(place);
        }
        let &[near, interleave, shift] = rest.get(count * 2..).unwrap_or_default() else {
            return Err(malformed());
        };
        if places.is_empty() || places.len() != count || interleave > 2 || shift & 15 != 0 {
            return Err(malformed());
        }
        if interleave == 0 && count > 1 {
            return Err(malformed());
        }
        Ok(Self { places, near: i32::from(near), by_sample: interleave == 2 && count > 1 })
    }

    /// Decodes the scan into its components; returns how many bytes it took.
    fn run(
        &self,
        bytes: &[u8],
        coding: Coding,
        header: &Header,
        pixels: &mut [u16],
    ) -> Result<usize, String> {
        let mut bits = Bits::new(bytes);
        let mut model = Model::new(coding, self.places.len(), header.width);
        for y in 0..header.height {
            model.next_line();
            if self.by_sample {
                model.samples(&mut bits)?;
            } else {
                for part in 0..self.places.len() {
                    model.line(part, &mut bits)?;
                }
            }
            for (part, place) in self.places.iter().enumerate() {
                let row = &mut pixels[y * header.width * header.samples..];
                let row = row.iter_mut().skip(*place).step_by(header.samples);
                for (pixel, &value) in row.zip(model.decoded(part)) {
                    *pixel = value as u16;
                }
            }
        }
        Ok(bits.taken())
    }
}
