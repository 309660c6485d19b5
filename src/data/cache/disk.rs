//! A cache in two files that only grow: `images`, samples one after another, and `index`, a record
//! for each image that was written whole.
//!
//! A record is written after its samples, and both carry checksums that are held against what is
//! read: whatever is cut off or damaged, by a kill or a power loss or a full disk, is decoded anew
//! and written again. One process at a time writes; others read what was there when they began.
//!
//! Samples are read with `pread` and not through a mapping: the checksum touches every byte anyway,
//! and a file that is cut short under a mapping ends the process.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::super::config::{CacheBits, DiskCacheConfig, ImageConfig};
use super::super::dataset::Sample;
use super::super::error::DataError;
use super::super::image::{Colour, Samples, read_file};
use super::super::resize::Fitted;
use super::record::{Kind, Record, SIZE};
use crate::disk::{self, DiskError, Written};

/// Raised when the same file and transform would give other samples than before.
const DECODING: u32 = 1;

pub(super) struct DiskCache {
    folder: PathBuf,
    images: Written,
    size: [usize; 2],
    bits: CacheBits,
    state: Mutex<State>,
}

struct State {
    by_path: HashMap<[u8; 16], Record>,
    by_content: HashMap<[u8; 16], Record>,
    /// Where the next samples go.
    end: u64,
    /// None where another process writes, or the disk was full.
    index: Option<Index>,
    warning: Option<String>,
}

struct Index {
    file: Written,
    /// Where the next record goes.
    end: u64,
    /// Held as long as this process writes.
    _lock: File,
}

/// What tells that a file is still the one that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    length: u64,
    changed: u64,
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        let about = fs::metadata(file_of(path)).ok()?;
        let changed = about.mtime() as u64 * 1_000_000_000 + about.mtime_nsec() as u64;
        Some(Self { length: about.len(), changed })
    }
}

/// The file on disk: of `data.npz:images`, `data.npz`.
fn file_of(path: &Path) -> PathBuf {
    match path.to_string_lossy().rfind(".npz:") {
        Some(at) => path.to_string_lossy()[..at + 4].into(),
        None => path.to_owned(),
    }
}

impl DiskCache {
    pub fn open(config: &DiskCacheConfig, image: &ImageConfig) -> Result<Self, DataError> {
        let folder = config.folder.join(transform(config, image));
        disk::create_folders(&folder)
            .map_err(|error| DataError::io("make", &error.path)(error.source))?;
        let open = |name: &str| {
            let path = folder.join(name);
            Written::open(&path).map_err(|error| DataError::io("open", &path)(error.source))
        };
        let (images, index) = (open("images")?, open("index")?);
        let lock = folder.join("lock");
        let lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&lock)
            .map_err(DataError::io("open", &lock))?;
        let writes = match lock.try_lock() {
            Ok(()) => true,
            Err(TryLockError::WouldBlock) => false,
            Err(TryLockError::Error(error)) => {
                return Err(DataError::io("lock", &folder.join("lock"))(error));
            }
        };
        let read = |error| DataError::io("read", &folder)(error);
        let held = images.file().metadata().map_err(read)?.len();
        let (records, end) = read_index(index.file(), held).map_err(read)?;
        let mut state = State {
            by_path: HashMap::new(),
            by_content: HashMap::new(),
            end: held,
            index: writes.then_some(Index { file: index, end, _lock: lock }),
            warning: None,
        };
        records.into_iter().for_each(|record| state.learn(record));
        if !writes {
            state.warning = Some(format!(
                "another process fills the cache `{}`; images that it lacks are decoded each time",
                folder.display()
            ));
        }
        let (size, bits) = (image.size, config.bits);
        Ok(Self { folder, images, size, bits, state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn take_warning(&self) -> Option<String> {
        self.state().warning.take()
    }

    pub fn bytes(&self) -> u64 {
        self.state().end
    }

    pub fn has(&self, sample: &Sample) -> bool {
        let stamp = Stamp::of(&sample.path);
        let record = self.state().by_path.get(&path_key(sample)).copied();
        record.is_some_and(|record| stamp == Some(record.stamp()))
    }

    pub fn get(
        &self,
        sample: &Sample,
        make: impl FnOnce() -> Result<Fitted, String>,
    ) -> Result<Fitted, String> {
        // With as many bits as are kept, so that a first epoch sees what later ones do.
        let make = || make().map(|image| image.with_bits(self.bits));
        let (key, stamp) = (path_key(sample), Stamp::of(&sample.path));
        // A file that cannot even be asked for its length has a reason, which `make` tells.
        let Some(stamp) = stamp else { return make() };
        let known = self.state().by_path.get(&key).copied();
        if let Some(record) = known.filter(|record| record.stamp() == stamp)
            && let Some(image) = self.read(&record)
        {
            return Ok(image);
        }
        if self.state().index.is_none() {
            return make();
        }
        let content = content_key(sample, stamp);
        let same = content.and_then(|content| self.state().by_content.get(&content).copied());
        if let Some(record) = same
            && let Some(image) = self.read(&record)
        {
            let Stamp { length, changed } = stamp;
            self.note(Record { path: key, length, changed, ..record });
            return Ok(image);
        }
        let image = make()?;
        // What was changed while it was read is not kept.
        if let Some(content) = content.filter(|_| Stamp::of(&sample.path) == Some(stamp)) {
            self.keep(&image, key, content, stamp);
        }
        Ok(image)
    }

    /// The samples of a record, if they are as they were written.
    fn read(&self, record: &Record) -> Option<Fitted> {
        let mut bytes = vec![0; record.bytes as usize];
        self.images.file().read_exact_at(&mut bytes, record.offset).ok()?;
        if crc32c::crc32c(&bytes) != record.checksum {
            return None;
        }
        let samples = match record.kind {
            Kind::U8 => Samples::U8(bytes),
            Kind::U16 => {
                let pairs = bytes.chunks_exact(2);
                Samples::U16(pairs.map(|two| u16::from_le_bytes([two[0], two[1]])).collect())
            }
            Kind::F32 => {
                let fours = bytes.chunks_exact(4).map(|four| [four[0], four[1], four[2], four[3]]);
                Samples::F32(fours.map(f32::from_le_bytes).collect())
            }
        };
        let planes = usize::from(record.planes);
        (samples.len() == planes * self.size[0] * self.size[1]).then_some(Fitted {
            size: self.size,
            planes,
            samples,
            content: record.area,
        })
    }

    /// Writes an image and its record; a disk that refuses ends the writing, and not the run.
    fn keep(&self, image: &Fitted, path: [u8; 16], content: [u8; 16], stamp: Stamp) {
        let (kind, bytes) = image.samples.clone().into_bytes();
        let offset = {
            let mut state = self.state();
            let offset = state.end;
            state.end += bytes.len() as u64;
            offset
        };
        if let Err(error) = self.images.write_at(&bytes, offset) {
            self.give_up(&error);
            return;
        }
        self.note(Record {
            path,
            content,
            length: stamp.length,
            changed: stamp.changed,
            offset,
            bytes: bytes.len() as u32,
            planes: image.planes as u16,
            kind,
            area: image.content,
            checksum: crc32c::crc32c(&bytes),
        });
    }

    /// Appends a record whose samples are written.
    fn note(&self, record: Record) {
        let mut state = self.state();
        let Some(index) = &mut state.index else { return };
        match index.file.write_at(&record.to_bytes(), index.end) {
            Ok(()) => {
                index.end += SIZE as u64;
                state.learn(record);
            }
            Err(error) => {
                drop(state);
                self.give_up(&error);
            }
        }
    }

    fn give_up(&self, DiskError { source: error, .. }: &DiskError) {
        let mut state = self.state();
        if state.index.take().is_some() {
            state.warning = Some(format!(
                "the cache `{}` cannot be written ({error}); images that it lacks are decoded each \
                 time",
                self.folder.display()
            ));
        }
    }

    /// Refuses `missing` images for which there is no room even at one byte a pixel (two where
    /// `bits = "16"`).
    pub fn check_room(&self, missing: usize) -> Result<(), DataError> {
        let each =
            self.size[0] * self.size[1] * if self.bits == CacheBits::Sixteen { 2 } else { 1 };
        let needed = (missing * each) as u64;
        let about = rustix::fs::statvfs(&self.folder)
            .map_err(|error| DataError::io("ask for the room of", &self.folder)(error.into()))?;
        let free = about.f_bavail * about.f_frsize;
        match needed > free {
            true => Err(DataError::NoRoom { folder: self.folder.clone(), needed, free }),
            false => Ok(()),
        }
    }
}

impl State {
    fn learn(&mut self, record: Record) {
        self.by_path.insert(record.path, record);
        self.by_content.insert(record.content, record);
    }
}

impl Record {
    fn stamp(&self) -> Stamp {
        Stamp { length: self.length, changed: self.changed }
    }
}

impl Fitted {
    /// The image with as many bits as a cache keeps.
    fn with_bits(self, bits: CacheBits) -> Self {
        let samples = match (self.samples, bits) {
            (Samples::U16(values), CacheBits::Eight) => {
                let narrow = |value: u16| ((u32::from(value) + 128) / 257) as u8;
                Samples::U8(values.into_iter().map(narrow).collect())
            }
            (Samples::U8(values), CacheBits::Sixteen) => {
                Samples::U16(values.into_iter().map(|value| u16::from(value) * 257).collect())
            }
            (samples, _) => samples,
        };
        Self { samples, ..self }
    }
}

impl Samples {
    /// How many bytes they take.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::U8(values) => values.len(),
            Self::U16(values) => 2 * values.len(),
            Self::F32(values) => 4 * values.len(),
        }
    }

    fn into_bytes(self) -> (Kind, Vec<u8>) {
        match self {
            Self::U8(values) => (Kind::U8, values),
            Self::U16(values) => {
                (Kind::U16, values.into_iter().flat_map(u16::to_le_bytes).collect())
            }
            Self::F32(values) => {
                (Kind::F32, values.into_iter().flat_map(f32::to_le_bytes).collect())
            }
        }
    }
}

/// The records that were written whole and whose samples are there, and where the next one goes.
fn read_index(mut index: &File, images: u64) -> std::io::Result<(Vec<Record>, u64)> {
    let mut bytes = Vec::new();
    index.read_to_end(&mut bytes)?;
    let whole = bytes.len() / SIZE * SIZE;
    let records = bytes[..whole].chunks_exact(SIZE).filter_map(|chunk| {
        let record = Record::of_bytes(chunk.first_chunk()?)?;
        let end = record.offset.checked_add(record.bytes.into())?;
        (end <= images).then_some(record)
    });
    Ok((records.collect(), whole as u64))
}

/// The folder of a transform: what is decoded and resized otherwise is kept elsewhere.
fn transform(config: &DiskCacheConfig, image: &ImageConfig) -> String {
    let colour = match Colour::of_channels(image.channels) {
        Colour::Luma => "",
        Colour::Rgb => " colour",
    };
    let text = format!("{DECODING} {:?} {:?} {:?}{colour}", image.size, image.fit, config.bits);
    blake3::hash(text.as_bytes()).to_hex()[..16].to_owned()
}

fn path_key(sample: &Sample) -> [u8; 16] {
    let path = std::path::absolute(&sample.path).unwrap_or_else(|_| sample.path.clone());
    key(&[path.as_os_str().as_encoded_bytes(), format!("\0{:?}", sample.item).as_bytes()])
}

/// Of the file's bytes; of an array's image, of where it stands.
fn content_key(sample: &Sample, stamp: Stamp) -> Option<[u8; 16]> {
    match sample.item {
        None => Some(key(&[&read_file(&sample.path).ok()?])),
        Some(item) => Some(key(&[
            sample.path.as_os_str().as_encoded_bytes(),
            format!("\0{stamp:?} {item}").as_bytes(),
        ])),
    }
}

fn key(parts: &[&[u8]]) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    parts.iter().for_each(|part| {
        hasher.update(part);
    });
    let mut key = [0; 16];
    key.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    key
}
