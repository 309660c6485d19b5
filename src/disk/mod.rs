//! Every change to the disk that a promise of saving depends on, one at a time.
//!
//! Saved states, the configuration and the tables of a run, its metrics, the rows of a sweep and the cache of
//! images are written through this module and no other way, because the tests interpose here: `watch.rs` makes
//! an operation fail or the process end at a chosen one, and records all of them; `crash.rs` derives from the
//! record every disk that may be found after a power loss. What only tests need is not in the program.

#[cfg(test)]
pub(crate) mod crash;
#[cfg(test)]
pub(crate) mod watch;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// An operation on the disk that failed: where, and why.
#[derive(Debug)]
pub(crate) struct DiskError {
    pub path: PathBuf,
    pub source: io::Error,
}

impl From<DiskError> for io::Error {
    fn from(error: DiskError) -> Self {
        error.source
    }
}

pub(crate) type DiskResult<T = ()> = Result<T, DiskError>;

/// An operation that changes the disk, or makes changes last.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(not(test), expect(dead_code, reason = "only tests look at more than the path"))]
pub(crate) enum Change<'a> {
    CreateFolder(&'a Path),
    CreateFile(&'a Path),
    Write { path: &'a Path, at: u64, bytes: &'a [u8] },
    SetLength { path: &'a Path, length: u64 },
    SyncFile(&'a Path),
    SyncFolder(&'a Path),
    Rename { from: &'a Path, to: &'a Path },
    RemoveFile(&'a Path),
    RemoveFolder(&'a Path),
}

impl<'a> Change<'a> {
    /// What it is done to.
    pub fn path(&self) -> &'a Path {
        match *self {
            Self::CreateFolder(path)
            | Self::CreateFile(path)
            | Self::Write { path, .. }
            | Self::SetLength { path, .. }
            | Self::SyncFile(path)
            | Self::SyncFolder(path)
            | Self::Rename { from: path, .. }
            | Self::RemoveFile(path)
            | Self::RemoveFolder(path) => path,
        }
    }
}

#[cfg(not(test))]
fn perform<T>(change: Change<'_>, operation: impl FnOnce() -> io::Result<T>) -> DiskResult<T> {
    operation().map_err(|source| failed(change.path(), source))
}

#[cfg(test)]
fn perform<T>(change: Change<'_>, operation: impl FnOnce() -> io::Result<T>) -> DiskResult<T> {
    watch::perform(change, operation).map_err(|source| failed(change.path(), source))
}

/// A file that is written in place. What is written is on the disk after [`Written::sync`] and not before,
/// and the file's name after [`sync_folder`].
#[derive(Debug)]
pub(crate) struct Written {
    file: File,
    path: PathBuf,
}

impl Written {
    /// A new file; an error where there is something of that name.
    pub fn create_new(path: &Path) -> DiskResult<Self> {
        let file = perform(Change::CreateFile(path), || {
            OpenOptions::new().read(true).write(true).create_new(true).open(path)
        })?;
        Ok(Self { file, path: path.to_owned() })
    }

    /// The file at `path` with what is in it, or a new one.
    pub fn open(path: &Path) -> DiskResult<Self> {
        let opened = OpenOptions::new().read(true).write(true).open(path);
        match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::create_new(path),
            Ok(file) => Ok(Self { file, path: path.to_owned() }),
            Err(source) => Err(failed(path, source)),
        }
    }

    /// The open file, for reading.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Writes `bytes` so that the first of them is byte `at` of the file.
    pub fn write_at(&self, bytes: &[u8], at: u64) -> DiskResult {
        let change = Change::Write { path: &self.path, at, bytes };
        perform(change, || self.file.write_all_at(bytes, at))
    }

    /// Cuts the file to `length` bytes, or adds zeros.
    pub fn set_length(&self, length: u64) -> DiskResult {
        perform(Change::SetLength { path: &self.path, length }, || self.file.set_len(length))
    }

    /// Waits until the bytes and the length are on the disk.
    pub fn sync(&self) -> DiskResult {
        perform(Change::SyncFile(&self.path), || synced(|| self.file.sync_data()))
    }
}

/// Creates one folder; its parent must exist.
pub(crate) fn create_folder(path: &Path) -> DiskResult {
    perform(Change::CreateFolder(path), || fs::create_dir(path))
}

/// Creates a folder and those above it where they are missing, and waits until its name is on the disk, and the
/// names of those that it creates.
pub(crate) fn create_folders(path: &Path) -> DiskResult {
    let above = match path.parent() {
        None => return Ok(()),
        Some(above) if above.as_os_str().is_empty() => Path::new("."),
        Some(above) => above,
    };
    if !path.is_dir() {
        if !above.is_dir() {
            create_folders(above)?;
        }
        match create_folder(path) {
            // Another process was faster.
            Err(_) if path.is_dir() => {}
            created => created?,
        }
    }
    match sync_folder(above) {
        // A folder that may be entered and not read cannot be opened to be synced.
        Err(error) if error.source.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        synced => synced,
    }
}

/// Writes a file that did not exist before and waits until its bytes are on the disk.
pub(crate) fn write_new(path: &Path, bytes: &[u8]) -> DiskResult {
    let file = Written::create_new(path)?;
    file.write_at(bytes, 0)?;
    file.sync()
}

/// Puts `bytes` at `path`: a reader finds all of the old file or all of the new one, whenever the process ends or
/// the power fails, and the new one once this has returned.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> DiskResult {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    if exists(&new) {
        remove_tree(&new)?;
    }
    write_new(&new, bytes)?;
    rename(&new, path)?;
    match path.parent() {
        None => Ok(()),
        Some(folder) if folder.as_os_str().is_empty() => sync_folder(Path::new(".")),
        Some(folder) => sync_folder(folder),
    }
}

/// Renames a file or folder within its folder.
pub(crate) fn rename(from: &Path, to: &Path) -> DiskResult {
    perform(Change::Rename { from, to }, || fs::rename(from, to))
}

/// Waits until the names in `folder` are on the disk.
pub(crate) fn sync_folder(folder: &Path) -> DiskResult {
    perform(Change::SyncFolder(folder), || {
        let opened = File::open(folder)?;
        synced(|| opened.sync_all())
    })
}

/// Removes a file, a link, or a folder with all it holds; links are not followed.
pub(crate) fn remove_tree(path: &Path) -> DiskResult {
    let kind = fs::symlink_metadata(path).map_err(|source| failed(path, source))?;
    if !kind.is_dir() {
        return perform(Change::RemoveFile(path), || fs::remove_file(path));
    }
    let entries = fs::read_dir(path).map_err(|source| failed(path, source))?;
    for entry in entries {
        remove_tree(&entry.map_err(|source| failed(path, source))?.path())?;
    }
    perform(Change::RemoveFolder(path), || fs::remove_dir(path))
}

/// Tests count a sync and spare the disk.
fn synced(sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    if cfg!(test) { Ok(()) } else { sync() }
}

/// Whether something, even a dangling link, has this name.
pub(crate) fn exists(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

fn failed(path: &Path, source: io::Error) -> DiskError {
    DiskError { path: path.to_owned(), source }
}
