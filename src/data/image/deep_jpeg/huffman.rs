//! Huffman codes and the bits they are read from (T.81 annex F.2.2).

/// Codes up to this long are found in one step.
const FAST_BITS: u32 = 9;

/// A Huffman table ready for decoding.
pub(super) struct Table {
    /// By the next `FAST_BITS` bits: the value and the length of its code, or a length of 0.
    fast: Vec<(u8, u8)>,
    values: Vec<u8>,
    /// By length: the first code that is longer, shifted to 16 bits.
    ends: [u32; 17],
    /// By length: the place of the first value less its code.
    offsets: [i32; 17],
}

impl Table {
    /// Builds the table of `counts` codes of each length; `None` where they are too many.
    pub(super) fn new(counts: &[u8; 16], values: &[u8]) -> Option<Self> {
        let mut table = Self {
            fast: vec![(0, 0); 1 << FAST_BITS],
            values: values.to_vec(),
            ends: [0; 17],
            offsets: [0; 17],
        };
        let (mut code, mut place) = (0_u32, 0_usize);
        for length in 1..=16_u32 {
            let count = usize::from(counts[length as usize - 1]);
            table.offsets[length as usize] = place as i32 - code as i32;
            for _ in 0..count {
                if code >> length != 0 {
                    return None;
                }
                if length <= FAST_BITS {
                    let unused = FAST_BITS - length;
                    let begin = (code << unused) as usize;
                    table.fast[begin..begin + (1 << unused)].fill((values[place], length as u8));
                }
                code += 1;
                place += 1;
            }
            table.ends[length as usize] = code << (16 - length);
            code <<= 1;
        }
        Some(table)
    }
}

/// The bits of an entropy-coded segment: stuffed zeros left out, markers not passed.
pub(super) struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
    held: u64,
    count: u32,
    /// Bits taken beyond the segment.
    missing: u32,
}

impl<'a> Bits<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, held: 0, count: 0, missing: 0 }
    }

    /// The bytes before the marker that ends the segment.
    pub(super) fn taken(&self) -> usize {
        self.at
    }

    fn fill(&mut self) {
        while self.count <= 48 {
            let byte = match self.bytes.get(self.at..) {
                Some([0xFF, 0, ..]) => {
                    self.at += 2;
                    0xFF
                }
                Some([byte, ..]) if *byte != 0xFF => {
                    self.at += 1;
                    *byte
                }
                // Zeros follow the end, counted so that what is decoded from them is refused.
                _ => {
                    self.missing += 8;
                    0
                }
            };
            self.held = self.held << 8 | u64::from(byte);
            self.count += 8;
        }
    }

    fn peek(&mut self, count: u32) -> u32 {
        if self.count < count {
            self.fill();
        }
        (self.held >> (self.count - count)) as u32 & ((1 << count) - 1)
    }

    fn skip(&mut self, count: u32) -> Result<(), String> {
        self.count -= count;
        if self.missing > self.count { Err("is cut off".to_owned()) } else { Ok(()) }
    }

    /// The value of the next code.
    ///
    /// # Errors
    /// No code begins so, or the bits are at their end.
    pub(super) fn code(&mut self, table: &Table) -> Result<u8, String> {
        let next = self.peek(16);
        let (value, length) = table.fast[(next >> (16 - FAST_BITS)) as usize];
        if length > 0 {
            self.skip(u32::from(length))?;
            return Ok(value);
        }
        for length in FAST_BITS + 1..=16 {
            if next < table.ends[length as usize] {
                let code = (next >> (16 - length)) as i32;
                let place = (table.offsets[length as usize] + code) as usize;
                self.skip(length)?;
                return table.values.get(place).copied().ok_or_else(|| "is damaged".to_owned());
            }
        }
        Err("is damaged".to_owned())
    }

    /// A difference of `size` bits, 0 to 16 (T.81 F.2.2.1 and, for 16, H.1.2.2).
    pub(super) fn difference(&mut self, size: u8) -> Result<i32, String> {
        match size {
            0 => Ok(0),
            16 => Ok(1 << 15),
            1..=15 => {
                let size = u32::from(size);
                let bits = self.peek(size) as i32;
                self.skip(size)?;
                Ok(if bits < 1 << (size - 1) { bits - (1 << size) + 1 } else { bits })
            }
            _ => Err("is damaged".to_owned()),
        }
    }

    /// Moves behind a restart marker, which must be next.
    pub(super) fn restart(&mut self) -> Result<(), String> {
        match self.bytes.get(self.at..) {
            // Whole bytes left unread belong to a damaged segment.
            Some([0xFF, 0xD0..=0xD7, ..]) if self.count - self.missing.min(self.count) < 8 => {
                *self = Self { at: self.at + 2, ..Self::new(self.bytes) };
                Ok(())
            }
            _ => Err("lacks a restart marker".to_owned()),
        }
    }
}
