//! Keys and values in one file that several processes read and write.
//!
//! The file begins with [`MAGIC`]. Then records follow, each with its lengths and a checksum: an entry
//! that was written, an entry that was removed, or a namespace that was emptied. The newest record of a
//! key counts. A process reads the records that others have added since whenever it is asked for
//! something that it does not know, and before it writes.
//!
//! A writer locks the file. What follows the last complete record was left by a process that was
//! killed, or has been damaged; the next writer cuts it off. So an entry is complete or absent, and
//! what is lost is compiled again.
//!
//! A process goes on finding by its key what it has written itself, also where another process has removed it
//! or the file could not be written. CubeCL moves an entry to another key by removing it and writing it anew, and panics
//! where it does not find then what it has written.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::{Error, Result};

const MAGIC: &[u8; 16] = b"kernel records 1";
/// A checksum, three lengths, an origin or one of the marks below.
const HEADER: usize = 20;
/// In place of an origin: the key was removed.
const REMOVED: u32 = u32::MAX;
/// In place of an origin: all keys of the namespace were removed.
const EMPTIED: u32 = u32::MAX - 1;

/// A value and where it comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub value: Vec<u8>,
    pub origin: i64,
}

/// An open file of records.
#[derive(Debug)]
pub struct Store {
    file: File,
    /// Of every namespace and key where its newest record begins, and how long key and value are.
    places: BTreeMap<String, BTreeMap<Vec<u8>, Place>>,
    /// What this process has written.
    own: BTreeMap<String, BTreeMap<Vec<u8>, Own>>,
    /// Where the records end that `places` knows.
    end: u64,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    at: u64,
    bytes: u64,
}

/// A value that this process has written.
#[derive(Debug)]
enum Own {
    /// Nothing that is complete is ever cut off the file.
    At(Place),
    /// The file could not be written.
    Unwritten(Entry),
}

/// A record as it lies in the file.
struct Record {
    namespace: String,
    key: Vec<u8>,
    value: Vec<u8>,
    origin: u32,
}

fn io(what: &'static str) -> impl Fn(io::Error) -> Error {
    move |error| Error::IoError(error.kind(), what)
}

impl Record {
    fn to_bytes(&self) -> Result<Vec<u8>> {
        let parts = [self.namespace.as_bytes(), &self.key, &self.value];
        let mut bytes = vec![0; 4];
        for part in parts {
            let length = u32::try_from(part.len())
                .map_err(|_| Error::Error("an entry is larger than 4 GiB".to_owned()))?;
            bytes.extend(length.to_le_bytes());
        }
        bytes.extend(self.origin.to_le_bytes());
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        let sum = crc32fast::hash(&bytes[4..]);
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
        Ok(bytes)
    }

    /// The record at `at` and where the next one begins; `None` where no complete one is.
    fn read(file: &File, at: u64, end: u64) -> io::Result<Option<(Self, u64)>> {
        let mut header = [0; HEADER];
        match file.read_exact_at(&mut header, at) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        let [sum, namespace, key, value, origin] = std::array::from_fn(|number| {
            let bytes = &header[4 * number..4 * number + 4];
            u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
        });
        let [namespace, key, value] = [namespace, key, value].map(|length| length as usize);
        let next = at + HEADER as u64 + (namespace + key + value) as u64;
        if next > end {
            return Ok(None);
        }
        let mut body = vec![0; namespace + key + value];
        match file.read_exact_at(&mut body, at + HEADER as u64) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&header[4..]);
        hasher.update(&body);
        if hasher.finalize() != sum {
            return Ok(None);
        }
        let value = body.split_off(namespace + key);
        let key = body.split_off(namespace);
        let Ok(namespace) = String::from_utf8(body) else { return Ok(None) };
        Ok(Some((Self { namespace, key, value, origin }, next)))
    }
}

impl Store {
    /// Opens the file at `path`, and makes it unless it is only to be read.
    pub fn open(path: &Path, read_only: bool) -> Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(!read_only)
            .create(!read_only)
            .truncate(false)
            .open(path)
            .map_err(io("opening the file of compiled kernels"))?;
        let mut store =
            Self { file, places: BTreeMap::new(), own: BTreeMap::new(), end: MAGIC.len() as u64 };
        if !read_only {
            store.locked(Self::begin)?;
        }
        let mut magic = [0; MAGIC.len()];
        let found = store.file.read_exact_at(&mut magic, 0);
        if found.is_err() || &magic != MAGIC {
            return Err(Error::Error("it is not a file of compiled kernels".to_owned()));
        }
        store.refresh()?;
        Ok(store)
    }

    /// Writes the beginning of a file that is new, or whose maker was killed before it had.
    fn begin(&mut self) -> Result<()> {
        let length = self.file.metadata().map_err(io("reading the length of the file"))?.len();
        match length < MAGIC.len() as u64 {
            true => self.file.write_all_at(MAGIC, 0).map_err(io("beginning the file")),
            false => Ok(()),
        }
    }

    /// Does `work` while no other process writes.
    fn locked<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.file.lock().map_err(io("locking the file of compiled kernels"))?;
        let done = work(self);
        self.file.unlock().map_err(io("unlocking the file of compiled kernels"))?;
        done
    }

    /// Takes note of the records that have been added since.
    fn refresh(&mut self) -> Result<()> {
        let reading = io("reading the file of compiled kernels");
        let length = self.file.metadata().map_err(&reading)?.len();
        while let Some((record, next)) =
            Record::read(&self.file, self.end, length).map_err(&reading)?
        {
            let at = self.end;
            self.end = next;
            self.note(record, at);
        }
        Ok(())
    }

    fn note(&mut self, record: Record, at: u64) {
        let Record { namespace, key, value, origin } = record;
        let keys = self.places.entry(namespace).or_default();
        let bytes = (key.len() + value.len()) as u64;
        match origin {
            EMPTIED => keys.clear(),
            REMOVED => drop(keys.remove(&key)),
            _ => drop(keys.insert(key, Place { at, bytes })),
        }
    }

    /// Adds a record at the end, and says where.
    fn add(&mut self, namespace: &str, key: &[u8], value: &[u8], origin: u32) -> Result<Place> {
        let (key_bytes, value_bytes) = (key.len(), value.len());
        let (namespace, key, value) = (namespace.to_owned(), key.to_vec(), value.to_vec());
        let record = Record { namespace, key, value, origin };
        let bytes = record.to_bytes()?;
        self.locked(|store| {
            store.refresh()?;
            let writing = io("writing into the file of compiled kernels");
            store.file.set_len(store.end).map_err(&writing)?;
            if let Err(error) = store.file.write_all_at(&bytes, store.end) {
                // A full disk: the next writer cuts it off where this does not succeed.
                let _ = store.file.set_len(store.end);
                return Err(writing(error));
            }
            let at = store.end;
            store.end += bytes.len() as u64;
            store.note(record, at);
            Ok(Place { at, bytes: (key_bytes + value_bytes) as u64 })
        })
    }

    /// Writes a value, in place of the one before.
    pub fn write(&mut self, namespace: &str, key: &[u8], value: &[u8], origin: i64) -> Result<()> {
        let added = self.add(namespace, key, value, u32::try_from(origin).unwrap_or_default());
        let (own, written) = match added {
            Ok(place) => (Own::At(place), Ok(())),
            Err(error) => (Own::Unwritten(Entry { value: value.to_vec(), origin }), Err(error)),
        };
        self.own.entry(namespace.to_owned()).or_default().insert(key.to_vec(), own);
        written
    }

    /// Removes a key, and says how many there were.
    pub fn remove(&mut self, namespace: &str, key: &[u8]) -> Result<u64> {
        if let Some(keys) = self.own.get_mut(namespace) {
            keys.remove(key);
        }
        self.refresh()?;
        match self.place(namespace, key) {
            Some(_) => self.add(namespace, key, &[], REMOVED).map(|_| 1),
            None => Ok(0),
        }
    }

    /// Removes all keys of a namespace, and says how many there were.
    pub fn remove_all(&mut self, namespace: &str) -> Result<u64> {
        self.own.remove(namespace);
        self.refresh()?;
        match self.size(namespace).0 {
            0 => Ok(0),
            keys => self.add(namespace, &[], &[], EMPTIED).map(|_| keys),
        }
    }

    fn place(&self, namespace: &str, key: &[u8]) -> Option<Place> {
        self.places.get(namespace)?.get(key).copied()
    }

    /// The value of a key.
    pub fn read(&mut self, namespace: &str, key: &[u8]) -> Result<Option<Entry>> {
        self.refresh()?;
        if let Some(place) = self.place(namespace, key) {
            return self.read_at(place);
        }
        match self.own.get(namespace).and_then(|keys| keys.get(key)) {
            Some(Own::At(place)) => self.read_at(*place),
            Some(Own::Unwritten(entry)) => Ok(Some(entry.clone())),
            None => Ok(None),
        }
    }

    /// What lies at `place`; `None` where it has been damaged since.
    fn read_at(&self, place: Place) -> Result<Option<Entry>> {
        let read = Record::read(&self.file, place.at, self.end)
            .map_err(io("reading the file of compiled kernels"))?;
        Ok(read.map(|(record, _)| Entry { value: record.value, origin: record.origin.into() }))
    }

    /// All keys of a namespace and their values, in the order of the keys.
    pub fn entries(&mut self, namespace: &str) -> Result<Vec<(Vec<u8>, Entry)>> {
        self.refresh()?;
        let keys = self.places.get(namespace).into_iter().flatten();
        keys.filter_map(|(key, place)| {
            self.read_at(*place).map(|entry| Some((key.clone(), entry?))).transpose()
        })
        .collect()
    }

    /// The namespaces that have keys, in order.
    pub fn namespaces(&mut self) -> Result<Vec<String>> {
        self.refresh()?;
        let used = self.places.iter().filter(|(_, keys)| !keys.is_empty());
        Ok(used.map(|(namespace, _)| namespace.clone()).collect())
    }

    /// How many keys a namespace has, and the bytes of keys and values.
    pub fn size(&self, namespace: &str) -> (u64, u64) {
        let keys = self.places.get(namespace).into_iter().flatten();
        keys.fold((0, 0), |(keys, bytes), (_, place)| (keys + 1, bytes + place.bytes))
    }
}
