//! The bits of a JPEG-LS scan: after a byte of ones comes a stuffed zero bit (T.87 A.1).

/// Bits from the first byte on, up to the marker that ends them.
pub(super) struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
    held: u64,
    count: u32,
    /// Bits taken beyond the end.
    missing: u32,
}

impl<'a> Bits<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, held: 0, count: 0, missing: 0 }
    }

    /// The bytes before the marker that ends the scan.
    pub(super) fn taken(&self) -> usize {
        let rest = self.bytes[self.at..].windows(2);
        self.at + rest.take_while(|pair| pair[0] != 0xFF || pair[1] < 0x80).count()
    }

    fn fill(&mut self) {
        while self.count <= 48 {
            let stuffed = self.at > 0 && self.bytes[self.at - 1] == 0xFF;
            let next = match self.bytes.get(self.at..) {
                Some([0xFF, after, ..]) if *after >= 0x80 => None,
                Some([byte, ..]) => Some(*byte),
                _ => None,
            };
            let (byte, width) = match next {
                Some(byte) => (byte, if stuffed { 7 } else { 8 }),
                None => (0, 8),
            };
            if next.is_some() {
                self.at += 1;
            } else {
                self.missing += 8;
            }
            self.held = self.held << width | u64::from(byte);
            self.count += width;
        }
    }

    /// The next `count` bits, up to 32, as a number.
    ///
    /// # Errors
    /// The bits are at their end.
    pub(super) fn number(&mut self, count: u32) -> Result<i32, String> {
        if self.count < count {
            self.fill();
        }
        self.count -= count;
        if self.missing > self.count {
            return Err("is cut off".to_owned());
        }
        Ok((self.held >> self.count & ((1 << count) - 1)) as i32)
    }

    /// A number coded by its `k` lowest bits and, in unary, the rest; with `limit` zeros the number
    /// less 1 follows in `bits` bits (T.87 A.5.3).
    pub(super) fn golomb(&mut self, k: u32, limit: u32, bits: u32) -> Result<i32, String> {
        let mut zeros = 0;
        while self.number(1)? == 0 {
            zeros += 1;
            if zeros > limit {
                return Err("is damaged".to_owned());
            }
        }
        if zeros < limit {
            Ok((zeros as i32) << k | self.number(k)?)
        } else {
            Ok(self.number(bits)? + 1)
        }
    }
}
