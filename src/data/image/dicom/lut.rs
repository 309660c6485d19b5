//! Lookup tables (PS3.3 C.11.1 and C.11.2): of the modality, of the values of interest, of colours.

use super::dataset::{Dataset, Tag, word};

/// A table from whole numbers to whole numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lut {
    /// The number that the first entry belongs to.
    first: i32,
    entries: Vec<u16>,
    /// The bits of an entry.
    pub(super) bits: u8,
}

/// The tags of the elements that hold a table.
#[derive(Debug, Clone, Copy)]
pub(super) struct LutTags {
    pub(super) descriptor: Tag,
    pub(super) data: Tag,
}

/// The tags within the items of the Modality and VOI LUT sequences.
pub(super) const IN_ITEM: LutTags =
    LutTags { descriptor: (0x0028, 0x3002), data: (0x0028, 0x3006) };

impl Lut {
    /// Reads a table; `signed` says whether its first number may be negative where the file does
    /// not. `name` begins the reasons, as in "its VOI LUT …".
    ///
    /// # Errors
    /// What is missing or contradictory.
    pub(super) fn of(
        item: &Dataset<'_>,
        tags: LutTags,
        signed: bool,
        name: &str,
    ) -> Result<Self, String> {
        let mut words = item.words(tags.descriptor).into_iter().flatten();
        let (Some(count), Some(first), Some(bits)) = (words.next(), words.next(), words.next())
        else {
            return Err(format!("its {name} has no descriptor"));
        };
        let count = if count == 0 { 1 << 16 } else { usize::from(count) };
        if !(1..=16).contains(&bits) {
            return Err(format!("its {name} has entries of {bits} bits; 1 to 16 are read"));
        }
        let data = item.bytes(tags.data).unwrap_or_default();
        let entries: Vec<u16> = if data.len() >= count * 2 {
            let words = data.chunks_exact(2).take(count);
            words.map(|pair| word([pair[0], pair[1]], item.big_endian)).collect()
        } else if bits <= 8 && data.len() >= count {
            // Entries of 8 bits may be packed, two to a word: little endian, the lower byte first.
            let swap = usize::from(item.big_endian);
            (0..count).map(|place| u16::from(*data.get(place ^ swap).unwrap_or(&0))).collect()
        } else {
            let held = data.len();
            return Err(format!("its {name} claims {count} entries and holds {held} bytes"));
        };
        let signed = item.says_signed(tags.descriptor).unwrap_or(signed);
        let first = if signed { i32::from(first.cast_signed()) } else { i32::from(first) };
        Ok(Self { first, entries, bits: bits as u8 })
    }

    /// The entry of a number; those before and after the table get its first and last.
    pub(super) fn at(&self, value: f64) -> u16 {
        // Rescaled values fall between entries: the one below, as pydicom takes.
        let place = (value.trunc() - f64::from(self.first)).max(0.0) as usize;
        self.entries[place.min(self.entries.len() - 1)]
    }

    /// The largest entry that its bits allow.
    pub(super) fn most(&self) -> f64 {
        f64::from(u16::MAX >> (16 - self.bits))
    }
}
