//! A file that only grows, by whole records.

use std::io;
use std::path::Path;

use crate::disk::Written;

/// Appends records that are on disk when [`Appended::append`] returns, or not there at all.
#[derive(Debug)]
pub struct Appended {
    pub(super) file: Written,
    pub(super) length: u64,
}

impl Appended {
    /// A new file at `path`; an error when there is one already.
    pub fn create(path: &Path) -> io::Result<Self> {
        Ok(Self { file: Written::create_new(path)?, length: 0 })
    }

    /// The file at `path` cut back to its first `length` bytes, which it has; made if it is
    /// missing.
    pub fn cut(path: &Path, length: u64) -> io::Result<Self> {
        let file = Written::open(path)?;
        file.set_length(length)?;
        file.sync()?;
        Ok(Self { file, length })
    }

    /// Bytes in the file.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Writes `record` at the end and syncs it.
    pub fn append(&mut self, record: &[u8]) -> io::Result<()> {
        let written = self.file.write_at(record, self.length).and_then(|()| self.file.sync());
        match written {
            Ok(()) => self.length += record.len() as u64,
            // Half a record on a full disk must not precede the next one. Where this fails too,
            // opening the file again cuts it.
            Err(_) => drop(self.file.set_length(self.length)),
        }
        Ok(written?)
    }
}
