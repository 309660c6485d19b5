//! Sequential DCT (T.81 annexes A and F), 8 and 12 bits. The inverse transform is the definition
//! itself in f32: within a level of every conforming decoder, and bound by the memory it reads.

use std::f64::consts::PI;
use std::sync::LazyLock;

use super::huffman::{Bits, Table};
use super::{Component, Frame, Plane, Scan, Tables};

/// The place, row by row, of each coefficient in the order of the stream.
const ZIGZAG: [u8; 64] = [
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20,
    13, 6, 7, 14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59,
    52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
];

/// `[frequency][place]`: the basis of the 8-point transform, T.81 A.3.3.
/// A constant, computed when first needed.
static BASIS: LazyLock<[[f32; 8]; 8]> = LazyLock::new(|| {
    let scale = |frequency: usize| if frequency == 0 { 0.125_f64.sqrt() } else { 0.5 };
    let angle = |frequency: usize, place: usize| (2 * place + 1) as f64 * frequency as f64;
    std::array::from_fn(|frequency| {
        std::array::from_fn(|place| {
            (scale(frequency) * (angle(frequency, place) * PI / 16.0).cos()) as f32
        })
    })
});

struct Part<'a> {
    place: usize,
    component: Component,
    dc: &'a Table,
    ac: &'a Table,
    quantisation: &'a [u16; 64],
    /// The last DC coefficient.
    last: i32,
    plane: Plane,
}

/// Decodes a scan into its components' planes.
///
/// # Errors
/// What is damaged or missing.
pub(super) fn decode(
    scan: &Scan<'_>,
    tables: &Tables,
    bits: &mut Bits<'_>,
    planes: &mut [Plane],
) -> Result<(), String> {
    let frame = scan.frame;
    let mut parts = Vec::new();
    for &(place, dc, ac) in &scan.parts {
        parts.push(part(frame, tables, place, dc, ac)?);
    }
    // A scan of one component has its blocks row by row, as many as its own size needs.
    let alone = parts.len() == 1;
    let (wide, high) = if alone {
        let (width, height) = frame.size(&parts[0].component);
        (width.div_ceil(8), height.div_ceil(8))
    } else {
        let (across, down) = frame.most();
        (frame.width.div_ceil(8 * across), frame.height.div_ceil(8 * down))
    };
    let mut left = scan.restart;
    for unit in 0..wide * high {
        if scan.restart > 0 {
            if left == 0 {
                bits.restart()?;
                left = scan.restart;
                parts.iter_mut().for_each(|part| part.last = 0);
            }
            left -= 1;
        }
        let (row, column) = (unit / wide, unit % wide);
        for part in &mut parts {
            let Component { across, down, .. } = part.component;
            let (across, down) = if alone { (1, 1) } else { (across, down) };
            for block in 0..across * down {
                let (x, y) = (column * across + block % across, row * down + block / across);
                part.block(bits, x, y, frame.precision)?;
            }
        }
    }
    for part in parts {
        planes[part.place] = part.plane;
    }
    Ok(())
}

fn part<'a>(
    frame: &Frame,
    tables: &'a Tables,
    place: usize,
    dc: usize,
    ac: usize,
) -> Result<Part<'a>, String> {
    let component = frame.components[place];
    let table = |tables: &'a [Option<Table>; 4], at: usize| {
        tables.get(at).and_then(Option::as_ref).ok_or_else(|| "lacks a Huffman table".to_owned())
    };
    let (across, down) = frame.most();
    // Whole units, so that no block reaches over the edge.
    let stride = frame.width.div_ceil(8 * across) * component.across * 8;
    let rows = frame.height.div_ceil(8 * down) * component.down * 8;
    Ok(Part {
        place,
        component,
        dc: table(&tables.dc, dc)?,
        ac: table(&tables.ac, ac)?,
        quantisation: tables.quantisation[component.quantisation]
            .as_ref()
            .ok_or("lacks a quantisation table")?,
        last: 0,
        plane: Plane { stride, samples: vec![0; stride * rows] },
    })
}

impl Part<'_> {
    /// Decodes the block at column `x` and row `y` of blocks.
    fn block(
        &mut self,
        bits: &mut Bits<'_>,
        x: usize,
        y: usize,
        precision: u8,
    ) -> Result<(), String> {
        let mut coefficients = [0.0_f32; 64];
        let size = bits.code(self.dc)?;
        // Wrapping: only a damaged stream adds up to more than 16 bits.
        self.last = self.last.wrapping_add(bits.difference(size)?);
        coefficients[0] = self.last as f32 * f32::from(self.quantisation[0]);
        let mut at = 1;
        while at < 64 {
            let code = bits.code(self.ac)?;
            let (zeros, size) = (usize::from(code >> 4), code & 15);
            if size == 0 {
                if zeros != 15 {
                    break;
                }
                at += 16;
                continue;
            }
            at += zeros;
            let value = bits.difference(size)?;
            let place = *ZIGZAG.get(at).ok_or("is damaged")?;
            coefficients[usize::from(place)] = value as f32 * f32::from(self.quantisation[at]);
            at += 1;
        }
        let middle = f32::from(1_u16 << (precision - 1));
        let most = f32::from(u16::MAX >> (16 - precision));
        let samples = inverse(&coefficients);
        let begin = y * 8 * self.plane.stride + x * 8;
        for (row, values) in samples.iter().enumerate() {
            let line = &mut self.plane.samples[begin + row * self.plane.stride..][..8];
            for (sample, value) in line.iter_mut().zip(values) {
                *sample = (value + middle).round().clamp(0.0, most) as u16;
            }
        }
        Ok(())
    }
}

fn inverse(coefficients: &[f32; 64]) -> [[f32; 8]; 8] {
    let basis = &*BASIS;
    // [vertical frequency, x]
    let mut rows = [[0.0_f32; 8]; 8];
    for (row, values) in rows.iter_mut().zip(coefficients.chunks_exact(8)) {
        for (value, wave) in values.iter().zip(basis).filter(|(value, _)| **value != 0.0) {
            for (sum, height) in row.iter_mut().zip(wave) {
                *sum += value * height;
            }
        }
    }
    let mut samples = [[0.0_f32; 8]; 8];
    for (row, wave) in rows.iter().zip(basis) {
        for (line, height) in samples.iter_mut().zip(wave) {
            for (sum, value) in line.iter_mut().zip(row) {
                *sum += value * height;
            }
        }
    }
    samples
}
