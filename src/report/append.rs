//! A file that only grows, by whole records.

use std::io;
use std::path::Path;

use crate::disk::{DiskResult, Written};

/// Appends records that are on disk when [`Appended::append`] or [`Appended::settle`] returns, or not there at all.
#[derive(Debug)]
pub struct Appended {
    file: Written,
    length: u64,
    /// Whether all of it is on disk.
    settled: bool,
}

impl Appended {
    /// A new file at `path`; an error when there is one already.
    pub fn create(path: &Path) -> io::Result<Self> {
        Ok(Self::over(Written::create_new(path)?, 0))
    }

    /// The file at `path` cut back to its first `length` bytes, which it has; made if it is
    /// missing.
    pub fn cut(path: &Path, length: u64) -> io::Result<Self> {
        let file = Written::open(path)?;
        file.set_length(length)?;
        file.sync()?;
        Ok(Self::over(file, length))
    }

    /// `file`, whose `length` bytes are on disk.
    pub(super) fn over(file: Written, length: u64) -> Self {
        Self { file, length, settled: true }
    }

    /// Bytes in the file.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Writes `record` at the end and syncs all that is not yet on disk.
    pub fn append(&mut self, record: &[u8]) -> io::Result<()> {
        self.write(record, Written::sync)?;
        self.settled = true;
        Ok(())
    }

    /// Writes `record` at the end, to be synced with what comes after it: a sync waits for the disk, which may be
    /// busy with a saved state.
    pub fn add(&mut self, record: &[u8]) -> io::Result<()> {
        self.write(record, |_| Ok(()))?;
        self.settled = false;
        Ok(())
    }

    /// Syncs what is not yet on disk.
    pub fn settle(&mut self) -> io::Result<()> {
        if !self.settled {
            self.file.sync()?;
            self.settled = true;
        }
        Ok(())
    }

    fn write(
        &mut self,
        record: &[u8],
        sync: impl FnOnce(&Written) -> DiskResult,
    ) -> io::Result<()> {
        let written = self.file.write_at(record, self.length).and_then(|()| sync(&self.file));
        match written {
            Ok(()) => self.length += record.len() as u64,
            // Half a record on a full disk must not precede the next one. Where this fails too,
            // opening the file again cuts it.
            Err(_) => drop(self.file.set_length(self.length)),
        }
        Ok(written?)
    }
}
