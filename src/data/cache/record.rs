//! What a cache's index holds of one image: fixed size, with a checksum of its own.

use super::super::area::Area;

/// Bytes of a record.
pub(super) const SIZE: usize = 88;

/// An image in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record {
    /// Of the path and the item.
    pub path: [u8; 16],
    /// Of the file's bytes.
    pub content: [u8; 16],
    /// The file's length when it was read.
    pub length: u64,
    /// When the file was last changed, in nanoseconds since 1970.
    pub changed: u64,
    /// Where in the images' file its samples begin.
    pub offset: u64,
    /// How many bytes they take.
    pub bytes: u32,
    pub planes: u16,
    pub kind: Kind,
    pub area: Area,
    /// CRC-32C of the samples.
    pub checksum: u32,
}

/// How samples are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    U8,
    U16,
    F32,
}

impl Record {
    pub fn to_bytes(self) -> [u8; SIZE] {
        let mut bytes = Vec::with_capacity(SIZE);
        bytes.extend_from_slice(&self.path);
        bytes.extend_from_slice(&self.content);
        for word in [self.length, self.changed, self.offset] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&self.bytes.to_le_bytes());
        bytes.extend_from_slice(&self.planes.to_le_bytes());
        bytes.extend_from_slice(&(self.kind as u16).to_le_bytes());
        let Area { top, left, height, width } = self.area;
        for side in [top, left, height, width] {
            bytes.extend_from_slice(&(side as u16).to_le_bytes());
        }
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&self.checksum.to_le_bytes());
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        let mut fixed = [0; SIZE];
        fixed[..bytes.len()].copy_from_slice(&bytes);
        fixed
    }

    /// The record, or none where it was not written whole.
    pub fn of_bytes(bytes: &[u8; SIZE]) -> Option<Self> {
        let mut rest = bytes.as_slice();
        let path = take(&mut rest)?;
        let content = take(&mut rest)?;
        let mut word = || Some(u64::from_le_bytes(take(&mut rest)?));
        let (length, changed, offset) = (word()?, word()?, word()?);
        let held = u32::from_le_bytes(take(&mut rest)?);
        let mut half = || Some(u16::from_le_bytes(take(&mut rest)?));
        let (planes, kind) = (half()?, half()?);
        let [top, left, height, width] = [half()?, half()?, half()?, half()?].map(usize::from);
        let _: [u8; 4] = take(&mut rest)?;
        let checksum = u32::from_le_bytes(take(&mut rest)?);
        let whole = u32::from_le_bytes(take(&mut rest)?);
        if crc32c::crc32c(&bytes[..CHECKED]) != whole {
            return None;
        }
        let kind = [Kind::U8, Kind::U16, Kind::F32].into_iter().find(|one| *one as u16 == kind)?;
        let area = Area { top, left, height, width };
        Some(Self {
            path,
            content,
            length,
            changed,
            offset,
            bytes: held,
            planes,
            kind,
            area,
            checksum,
        })
    }
}

/// What the record's own checksum covers.
const CHECKED: usize = 16 + 16 + 3 * 8 + 4 + 2 + 2 + 4 * 2 + 4 + 4;

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, others) = rest.split_first_chunk()?;
    *rest = others;
    Some(*first)
}
