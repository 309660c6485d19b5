//! A file that blocks of bytes are put into and taken from.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::OffloadError;

/// Blocks begin at multiples of this.
const PAGE: u64 = 4096;

/// A file without a name: what is in it is gone when the process ends, however it does.
#[derive(Debug)]
pub(super) struct Disk {
    file: File,
    folder: PathBuf,
    space: Mutex<Space>,
}

/// Which parts of the file are free.
#[derive(Debug, Default)]
struct Space {
    end: u64,
    /// The length of each free part before the end, by its beginning; no two adjoin.
    holes: BTreeMap<u64, u64>,
}

/// A part of the file, free again when this is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    disk: Arc<Disk>,
    start: u64,
    room: u64,
}

impl Disk {
    /// A file in `folder`, which must exist.
    pub fn open(folder: &Path) -> Result<Arc<Self>, OffloadError> {
        // Of the process, so that no two replicas make a file of the same name.
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!(".trainer-offload-{}-{number}", std::process::id()));
        let opened = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        // Without a name from here on, so that no end of this process leaves it behind.
        let opened = opened.and_then(|file| fs::remove_file(&path).map(|()| file));
        match opened {
            Ok(file) => Ok(Self::over(file, folder)),
            Err(source) => {
                Err(OffloadError::Open { folder: folder.to_owned(), source: Arc::new(source) })
            }
        }
    }

    fn over(file: File, folder: &Path) -> Arc<Self> {
        Arc::new(Self { file, folder: folder.to_owned(), space: Mutex::default() })
    }

    /// Puts `bytes` where there is room.
    pub fn write(self: &Arc<Self>, bytes: &[u8]) -> Result<Slot, OffloadError> {
        let room = (bytes.len() as u64).next_multiple_of(PAGE);
        let start = self.space().take(room);
        let slot = Slot { disk: Arc::clone(self), start, room };
        match self.file.write_all_at(bytes, start) {
            Ok(()) => Ok(slot),
            Err(source) => {
                let (folder, bytes) = (self.folder.clone(), bytes.len() as u64);
                drop(slot);
                let held = self.space().held();
                let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
                Err(match full.contains(&source.kind()) {
                    true => OffloadError::Full { folder, bytes, held },
                    false => OffloadError::Write { folder, source: Arc::new(source) },
                })
            }
        }
    }

    #[cfg(test)]
    pub fn held(&self) -> u64 {
        self.space().held()
    }

    /// One that has no room.
    #[cfg(test)]
    pub fn full() -> Arc<Self> {
        let file = OpenOptions::new().read(true).write(true).open("/dev/full").expect("is there");
        Self::over(file, Path::new("/scratch"))
    }

    fn space(&self) -> MutexGuard<'_, Space> {
        self.space.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    /// Fills `bytes` with those that were written.
    pub fn read(&self, bytes: &mut [u8]) -> Result<(), OffloadError> {
        self.disk.file.read_exact_at(bytes, self.start).map_err(|source| OffloadError::Read {
            folder: self.disk.folder.clone(),
            source: Arc::new(source),
        })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.disk.space().give(self.start, self.room);
    }
}

impl Space {
    /// The beginning of `room` bytes, the smallest hole that has them or behind the end.
    fn take(&mut self, room: u64) -> u64 {
        let fitting = self.holes.iter().filter(|(_, length)| **length >= room);
        let hole =
            fitting.min_by_key(|(_, length)| **length).map(|(start, length)| (*start, *length));
        match hole {
            Some((start, length)) => {
                self.holes.remove(&start);
                if length > room {
                    self.holes.insert(start + room, length - room);
                }
                start
            }
            None => {
                let start = self.end;
                self.end += room;
                start
            }
        }
    }

    fn give(&mut self, start: u64, room: u64) {
        let (mut start, mut room) = (start, room);
        if let Some((&before, &length)) = self.holes.range(..start).next_back()
            && before + length == start
        {
            self.holes.remove(&before);
            (start, room) = (before, room + length);
        }
        if let Some(length) = self.holes.remove(&(start + room)) {
            room += length;
        }
        match start + room == self.end {
            true => self.end = start,
            false => drop(self.holes.insert(start, room)),
        }
    }

    /// Bytes in use.
    fn held(&self) -> u64 {
        self.end - self.holes.values().sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_written_is_read_and_its_room_used_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let disk = Disk::open(folder.path()).expect("opens");
        assert_eq!(fs::read_dir(folder.path()).expect("reads").count(), 0, "it has no name");
        let put = |value: u8, length: usize| disk.write(&vec![value; length]).expect("fits");
        let holds = |slot: &Slot, value: u8, length: usize| {
            let mut bytes = vec![0; length];
            slot.read(&mut bytes).expect("reads");
            bytes.iter().all(|byte| *byte == value)
        };
        let (first, second, third) = (put(1, 5000), put(2, 4096), put(3, 10));
        assert!(holds(&first, 1, 5000) && holds(&second, 2, 4096) && holds(&third, 3, 10));
        let end = disk.space().end;
        drop(first);
        let again = put(4, 8000);
        assert_eq!(disk.space().end, end);
        assert!(holds(&again, 4, 8000) && holds(&second, 2, 4096) && holds(&third, 3, 10));
        drop((again, second, third));
        assert_eq!(disk.held(), 0);
        assert_eq!(disk.space().end, 0);
    }

    #[test]
    fn a_full_disk_is_called_one() {
        let error = Disk::full().write(&[1; 100]).expect_err("is full");
        let OffloadError::Full { bytes, held, .. } = &error else { panic!("{error}") };
        assert_eq!((*bytes, *held), (100, 0));
        assert!(error.to_string().starts_with("the disk of /scratch is full"), "{error}");
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let error = Disk::open(Path::new("/nowhere/at/all")).expect_err("is not there");
        assert!(error.to_string().contains("/nowhere/at/all"), "{error}");
    }

    proptest! {
        #[test]
        fn slots_never_overlap(steps in prop::collection::vec((any::<bool>(), 1_u64..5, any::<prop::sample::Index>()), 1..80)) {
            let mut space = Space::default();
            let mut taken: Vec<(u64, u64)> = Vec::new();
            for (gives, pages, which) in steps {
                if gives && !taken.is_empty() {
                    let (start, room) = taken.swap_remove(which.index(taken.len()));
                    space.give(start, room);
                } else {
                    let room = pages * PAGE;
                    let start = space.take(room);
                    prop_assert!(start + room <= space.end);
                    let apart = |(other, length): &(u64, u64)| start + room <= *other || other + length <= start;
                    prop_assert!(taken.iter().all(apart));
                    taken.push((start, room));
                }
                prop_assert_eq!(space.held(), taken.iter().map(|(_, room)| room).sum::<u64>());
            }
        }
    }
}
