//! Every change to the disk that saving makes, one at a time.
//!
//! Saving promises that a kill after any of these operations leaves a folder that opens. The tests
//! keep that promise by ending the process, in effect, after each of them in turn; hence nothing in
//! this module's parent changes the disk but through [`Disk`].

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// An operation on the disk that failed: where, and why.
#[derive(Debug)]
pub(crate) struct DiskError {
    pub path: PathBuf,
    pub source: io::Error,
}

pub(crate) type DiskResult = Result<(), DiskError>;

/// The disk, or in tests one that fails when told to.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    #[cfg(test)]
    pub(crate) faults: super::faults::Faults,
}

impl Disk {
    /// Creates one folder; its parent must exist.
    pub fn create_folder(&self, path: &Path) -> DiskResult {
        self.change(path, || fs::create_dir(path))
    }

    /// Creates a folder and those above it that are not there, each with its name on the disk.
    pub fn create_folders(&self, path: &Path) -> DiskResult {
        if path.as_os_str().is_empty() || path.is_dir() {
            return Ok(());
        }
        let above = path.parent().unwrap_or(Path::new(""));
        self.create_folders(above)?;
        self.change(path, || match fs::create_dir(path) {
            // Another process was faster.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            made => made,
        })?;
        self.sync_folder(if above.as_os_str().is_empty() { Path::new(".") } else { above })
    }

    /// Writes a file that did not exist before and waits until its bytes are on the disk.
    pub fn write_new(&self, path: &Path, bytes: &[u8]) -> DiskResult {
        let mut file = None;
        self.change(path, || {
            file = Some(File::create_new(path)?);
            Ok(())
        })?;
        let Some(mut file) = file else { return Ok(()) };
        // In two halves, so that the tests also stop between them.
        let (first, second) = bytes.split_at(bytes.len() / 2);
        self.change(path, || file.write_all(first))?;
        self.change(path, || file.write_all(second))?;
        self.sync(path, &file)
    }

    /// Puts `bytes` at `path` so that a reader finds all of the old file or all of the new one.
    pub fn replace(&self, path: &Path, bytes: &[u8]) -> DiskResult {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".new");
        let new = path.with_file_name(name);
        if exists(&new) {
            self.remove_tree(&new)?;
        }
        self.write_new(&new, bytes)?;
        self.rename(&new, path)?;
        path.parent().map_or(Ok(()), |folder| self.sync_folder(folder))
    }

    /// Renames a file or folder within its folder.
    pub fn rename(&self, from: &Path, to: &Path) -> DiskResult {
        self.change(from, || fs::rename(from, to))
    }

    /// Waits until the names in `folder` are on the disk.
    pub fn sync_folder(&self, folder: &Path) -> DiskResult {
        if cfg!(not(unix)) {
            return Ok(()); // Folders cannot be opened as files there.
        }
        let opened = File::open(folder).map_err(|source| failed(folder, source))?;
        self.sync(folder, &opened)
    }

    /// Removes a file, a link, or a folder with all it holds; links are not followed.
    pub fn remove_tree(&self, path: &Path) -> DiskResult {
        let kind = fs::symlink_metadata(path).map_err(|source| failed(path, source))?;
        if !kind.is_dir() {
            return self.change(path, || fs::remove_file(path));
        }
        let entries = fs::read_dir(path).map_err(|source| failed(path, source))?;
        for entry in entries {
            self.remove_tree(&entry.map_err(|source| failed(path, source))?.path())?;
        }
        self.change(path, || fs::remove_dir(path))
    }

    #[cfg(not(test))]
    fn sync(&self, path: &Path, file: &File) -> DiskResult {
        self.change(path, || file.sync_all())
    }

    /// Tests count a sync and spare the disk.
    #[cfg(test)]
    fn sync(&self, path: &Path, _: &File) -> DiskResult {
        self.change(path, || Ok(()))
    }

    fn change(&self, path: &Path, operation: impl FnOnce() -> io::Result<()>) -> DiskResult {
        #[cfg(test)]
        self.faults.before_operation().map_err(|source| failed(path, source))?;
        operation().map_err(|source| failed(path, source))
    }
}

/// Whether something, even a dangling link, has this name.
pub(crate) fn exists(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

fn failed(path: &Path, source: io::Error) -> DiskError {
    DiskError { path: path.to_owned(), source }
}
