//! JPEG streams of any depth, as DICOM holds them (ITU-T T.81): baseline and extended with Huffman codes, of 8 and
//! 12 bits, and lossless (process 14) of 2 to 16. The crates that decode JPEG stop at 8 bits unless
//! lossless; one decoder here serves all three, and checks sizes before it allocates.

mod dct;
mod huffman;
mod lossless;

use huffman::{Bits, Table};

/// A decoded stream.
pub(super) struct Jpeg {
    /// `[height, width, components]`.
    pub(super) samples: Vec<u16>,
    /// Bits per sample.
    pub(super) precision: u8,
    pub(super) lossless: bool,
    /// What the stream says of its colours: whether they are YCbCr.
    pub(super) chroma: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Process {
    Sequential,
    Lossless,
}

/// A component of the frame header.
#[derive(Debug, Clone, Copy)]
struct Component {
    id: u8,
    /// Samples beside and above one another in a unit of the interleaved scan.
    across: usize,
    down: usize,
    quantisation: usize,
}

struct Frame {
    process: Process,
    precision: u8,
    width: usize,
    height: usize,
    components: Vec<Component>,
}

impl Frame {
    fn most(&self) -> (usize, usize) {
        let across = self.components.iter().map(|component| component.across).max();
        let down = self.components.iter().map(|component| component.down).max();
        (across.unwrap_or(1), down.unwrap_or(1))
    }

    /// Width and height of a component's own samples (T.81 A.1.1).
    fn size(&self, component: &Component) -> (usize, usize) {
        let (across, down) = self.most();
        (
            (self.width * component.across).div_ceil(across),
            (self.height * component.down).div_ceil(down),
        )
    }
}

/// A component's samples, in rows that may be longer than the image.
#[derive(Debug, Clone, Default)]
struct Plane {
    stride: usize,
    samples: Vec<u16>,
}

/// What one scan needs beside its entropy-coded bits.
struct Scan<'a> {
    frame: &'a Frame,
    /// The scan's components: place in the frame, and their DC and AC tables.
    parts: Vec<(usize, usize, usize)>,
    /// Lossless: the predictor, 1 to 7.
    predictor: u8,
    /// Lossless: how many low bits were dropped.
    shift: u8,
    /// Units between restart markers; 0 for none.
    restart: usize,
}

#[derive(Default)]
struct Tables {
    quantisation: [Option<[u16; 64]>; 4],
    dc: [Option<Table>; 4],
    ac: [Option<Table>; 4],
}

/// What a stream must hold, as is known from elsewhere.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expected {
    pub(super) width: usize,
    pub(super) height: usize,
    /// Components of a pixel.
    pub(super) samples: usize,
    /// Bits of a sample, at most.
    pub(super) bits: u8,
}

/// Decodes a stream whose size must be what is expected.
///
/// # Errors
/// What is malformed or not read, to follow "its JPEG stream ".
pub(super) fn decode(bytes: &[u8], expected: Expected) -> Result<Jpeg, String> {
    let mut decoder = Decoder::new(expected, bytes.len());
    decoder.run(bytes)?;
    let frame = decoder.frame.ok_or("has no frame")?;
    if decoder.planes.iter().any(|plane| plane.samples.is_empty()) {
        return Err("lacks a scan".to_owned());
    }
    Ok(Jpeg {
        samples: assembled(&frame, &decoder.planes),
        precision: frame.precision,
        lossless: frame.process == Process::Lossless,
        chroma: decoder.adobe.or_else(|| {
            let names: Vec<u8> = frame.components.iter().map(|component| component.id).collect();
            if names == *b"RGB" { Some(false) } else { decoder.jfif.then_some(true) }
        }),
    })
}

struct Decoder {
    expected: Expected,
    stream_bytes: usize,
    tables: Tables,
    frame: Option<Frame>,
    planes: Vec<Plane>,
    restart: usize,
    adobe: Option<bool>,
    jfif: bool,
}

impl Decoder {
    fn new(expected: Expected, stream_bytes: usize) -> Self {
        Self {
            expected,
            stream_bytes,
            tables: Tables::default(),
            frame: None,
            planes: Vec::new(),
            restart: 0,
            adobe: None,
            jfif: false,
        }
    }

    fn run(&mut self, bytes: &[u8]) -> Result<(), String> {
        if !bytes.starts_with(&[0xFF, 0xD8]) {
            return Err("does not begin as JPEG does".to_owned());
        }
        let mut at = 2;
        loop {
            let marker = next_marker(bytes, &mut at).ok_or("is cut off")?;
            // The end, or what ends nothing and has no length.
            match marker {
                0xD9 => return Ok(()),
                0x01 | 0xD0..=0xD8 => continue,
                _ => {}
            }
            let segment = segment(bytes, &mut at).ok_or("is cut off")?;
            match marker {
                0xDB => self.quantisation(segment)?,
                0xC4 => self.huffman(segment)?,
                0xC0 | 0xC1 => self.frame(segment, Process::Sequential)?,
                0xC3 => self.frame(segment, Process::Lossless)?,
                0xC2 | 0xC6 => return Err("is progressive, which is not read".to_owned()),
                0xC9..=0xCB | 0xCD..=0xCF => {
                    return Err("is arithmetic-coded, which is not read".to_owned());
                }
                0xC5 | 0xC7 => return Err("is hierarchical, which is not read".to_owned()),
                0xDD => {
                    let words = segment.first_chunk().ok_or("has a malformed restart interval")?;
                    self.restart = usize::from(u16::from_be_bytes(*words));
                }
                0xE0 if segment.starts_with(b"JFIF\0") => self.jfif = true,
                0xEE if segment.starts_with(b"Adobe") => {
                    self.adobe = segment.get(11).map(|&transform| transform != 0);
                }
                0xDA => {
                    at += self.scan(segment, &bytes[at..])?;
                    // The height may follow the scan (DNL), and later scans may be missing.
                    if self.is_complete() && next_marker(bytes, &mut { at }).is_none() {
                        return Ok(());
                    }
                }
                _ => {}
            }
        }
    }

    fn is_complete(&self) -> bool {
        self.planes.iter().all(|plane| !plane.samples.is_empty())
    }

    fn quantisation(&mut self, mut segment: &[u8]) -> Result<(), String> {
        let malformed = || "has a malformed quantisation table".to_owned();
        while let Some((&kind, rest)) = segment.split_first() {
            let bytes = if kind >> 4 == 0 { 64 } else { 128 };
            let values = rest.get(..bytes).ok_or_else(malformed)?;
            let slot = self.tables.quantisation.get_mut(usize::from(kind & 15));
            let mut table = [0; 64];
            for (place, value) in table.iter_mut().enumerate() {
                *value = if bytes == 64 {
                    u16::from(values[place])
                } else {
                    u16::from_be_bytes([values[place * 2], values[place * 2 + 1]])
                };
            }
            *slot.ok_or_else(malformed)? = Some(table);
            segment = &rest[bytes..];
        }
        Ok(())
    }

    fn huffman(&mut self, mut segment: &[u8]) -> Result<(), String> {
        let malformed = || "has a malformed Huffman table".to_owned();
        while let Some((&kind, rest)) = segment.split_first() {
            let counts: &[u8; 16] = rest.first_chunk().ok_or_else(malformed)?;
            let count = counts.iter().map(|&count| usize::from(count)).sum::<usize>();
            let values = rest.get(16..16 + count).ok_or_else(malformed)?;
            let class = if kind >> 4 == 0 { &mut self.tables.dc } else { &mut self.tables.ac };
            let slot = class.get_mut(usize::from(kind & 15)).ok_or_else(malformed)?;
            *slot = Some(Table::new(counts, values).ok_or_else(malformed)?);
            segment = &rest[16 + count..];
        }
        Ok(())
    }

    fn frame(&mut self, segment: &[u8], process: Process) -> Result<(), String> {
        let malformed = || "has a malformed frame header".to_owned();
        let &[precision, high, low, wide, narrow, count, ref rest @ ..] = segment else {
            return Err(malformed());
        };
        if self.frame.is_some() {
            return Err("has two frames".to_owned());
        }
        let width = usize::from(u16::from_be_bytes([wide, narrow]));
        // A height of 0 comes after the scan; the DICOM header has it already.
        let height = match usize::from(u16::from_be_bytes([high, low])) {
            0 => self.expected.height,
            height => height,
        };
        let Expected { width: columns, height: rows, samples, bits: allocated } = self.expected;
        if (width, height, usize::from(count)) != (columns, rows, samples) {
            return Err(format!(
                "has {width}×{height} pixels of {count} samples, the header {columns}×{rows} of {samples}"
            ));
        }
        let deep = match process {
            Process::Sequential => matches!(precision, 8 | 12),
            Process::Lossless => (2..=16).contains(&precision),
        };
        // Each unit takes a bit at least: 64 samples, or one where it is lossless.
        let unit = if process == Process::Sequential { 64 } else { 1 };
        if columns * rows * samples / unit > self.stream_bytes * 8 {
            return Err(format!("claims {width}×{height} pixels in {} bytes", self.stream_bytes));
        }
        if !deep || precision > allocated {
            return Err(format!("has samples of {precision} bits, the header {allocated}"));
        }
        let components = rest.chunks_exact(3).take(samples).map(|part| Component {
            id: part[0],
            across: usize::from(part[1] >> 4),
            down: usize::from(part[1] & 15),
            quantisation: usize::from(part[2]),
        });
        let mut components: Vec<Component> = components.collect();
        let fits = |component: &Component| {
            (1..=4).contains(&component.across)
                && (1..=4).contains(&component.down)
                && component.quantisation < 4
        };
        if components.len() != samples || !components.iter().all(fits) {
            return Err(malformed());
        }
        // The only component of a frame is at full resolution whatever it says.
        if let [only] = components.as_mut_slice() {
            (only.across, only.down) = (1, 1);
        }
        self.planes = vec![Plane::default(); samples];
        self.frame = Some(Frame { process, precision, width, height, components });
        Ok(())
    }

    /// Decodes a scan; returns how many of its bytes it took.
    fn scan(&mut self, segment: &[u8], bytes: &[u8]) -> Result<usize, String> {
        let malformed = || "has a malformed scan header".to_owned();
        let frame = self.frame.as_ref().ok_or("has a scan before its frame")?;
        let (&count, rest) = segment.split_first().ok_or_else(malformed)?;
        let count = usize::from(count);
        let mut parts: Vec<(usize, usize, usize)> = Vec::new();
        for part in rest.chunks_exact(2).take(count) {
            let place = frame.components.iter().position(|component| component.id == part[0]);
            let place = place.ok_or_else(malformed)?;
            // A component that came before would be decoded again and again by a hostile stream.
            let again = parts.iter().any(|&(other, ..)| other == place);
            if again || !self.planes[place].samples.is_empty() {
                return Err("codes a component twice".to_owned());
            }
            parts.push((place, usize::from(part[1] >> 4), usize::from(part[1] & 15)));
        }
        let [predictor, _, shifts] = *rest.get(count * 2..).unwrap_or_default() else {
            return Err(malformed());
        };
        if parts.len() != count || parts.is_empty() {
            return Err(malformed());
        }
        let shift = shifts & 15;
        let scan = Scan { frame, parts, predictor, shift, restart: self.restart };
        let mut bits = Bits::new(bytes);
        match frame.process {
            Process::Sequential => {
                dct::decode(&scan, &self.tables, &mut bits, &mut self.planes)?;
            }
            Process::Lossless => {
                lossless::decode(&scan, &self.tables, &mut bits, &mut self.planes)?;
            }
        }
        Ok(bits.taken())
    }
}

/// Moves behind the next marker and returns its code.
fn next_marker(bytes: &[u8], at: &mut usize) -> Option<u8> {
    loop {
        let rest = bytes.get(*at..)?;
        let place = rest.iter().position(|&byte| byte == 0xFF)?;
        let code = *rest.get(place + 1)?;
        *at += place + 1;
        // 0xFF may be repeated before a marker; 0xFF 0x00 is entropy-coded data.
        if code != 0xFF {
            *at += 1;
            if code != 0 {
                return Some(code);
            }
        }
    }
}

fn segment<'a>(bytes: &'a [u8], at: &mut usize) -> Option<&'a [u8]> {
    let length = usize::from(u16::from_be_bytes(*bytes.get(*at..)?.first_chunk()?));
    let segment = bytes.get(*at + 2..*at + length)?;
    *at += length;
    Some(segment)
}

/// The planes at full resolution, a pixel's components together.
fn assembled(frame: &Frame, planes: &[Plane]) -> Vec<u16> {
    if let [plane] = planes {
        let rows = plane.samples.chunks_exact(plane.stride).take(frame.height);
        return rows.flat_map(|row| &row[..frame.width]).copied().collect();
    }
    let mut pixels = vec![0; frame.width * frame.height * planes.len()];
    for (place, (component, plane)) in frame.components.iter().zip(planes).enumerate() {
        let full = (component.across, component.down) == frame.most();
        for (y, row) in pixels.chunks_exact_mut(frame.width * planes.len()).enumerate() {
            for (x, pixel) in row.iter_mut().skip(place).step_by(planes.len()).enumerate() {
                *pixel = if full {
                    plane.samples[y * plane.stride + x]
                } else {
                    between(frame, component, plane, x, y)
                };
            }
        }
    }
    pixels
}

/// A subsampled component at a pixel: linear between the samples, whose centres lie evenly (the
/// arrangement of JFIF, which libjpeg assumes of every file).
fn between(frame: &Frame, component: &Component, plane: &Plane, x: usize, y: usize) -> u16 {
    let (across, down) = frame.most();
    let (width, height) = frame.size(component);
    let along = |at: usize, own: usize, most: usize, size: usize| {
        let place = (at as f32 + 0.5) * own as f32 / most as f32 - 0.5;
        let place = place.clamp(0.0, (size - 1) as f32);
        let first = place as usize;
        (first, (first + 1).min(size - 1), place - first as f32)
    };
    let (left, right, part_x) = along(x, component.across, across, width);
    let (top, bottom, part_y) = along(y, component.down, down, height);
    let sample = |x: usize, y: usize| f32::from(plane.samples[y * plane.stride + x]);
    let mix = |first: f32, second: f32, part: f32| first + (second - first) * part;
    let upper = mix(sample(left, top), sample(right, top), part_x);
    let lower = mix(sample(left, bottom), sample(right, bottom), part_x);
    mix(upper, lower, part_y).round() as u16
}
