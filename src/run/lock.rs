//! One process a run folder.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;

/// The lock's file in a run folder. It stays when the run ends: removing it would let two processes
/// lock two files of the same name.
pub const LOCK_FILE: &str = ".lock";

/// How often a folder is asked for, with a pause between: whoever lists runs asks for the lock too, and
/// gives it back at once.
const TRIES: usize = 10;
const PAUSE: Duration = Duration::from_millis(20);

/// The right to change a run folder.
///
/// The operating system holds the lock, so it goes with the process however that ends.
#[derive(Debug)]
pub struct RunLock {
    folder: PathBuf,
    _file: File,
}

/// A run folder could not be locked.
#[derive(Debug, Error)]
pub enum LockError {
    /// Another process has it.
    #[error(
        "{} is in use by {holder}\nWait until it ends, stop it, or give this run another name with \
         --set run.name=<name>.",
        folder.display()
    )]
    Held {
        /// The run folder.
        folder: PathBuf,
        /// That process, as it wrote itself down.
        holder: String,
    },
    /// The lock's file could not be opened, locked or written.
    #[error(
        "cannot lock {}: {source}\nMake the run folder writable for this user, on a disk that \
         supports file locks.",
        path.display()
    )]
    File {
        /// The lock's file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl RunLock {
    /// Locks the run folder, which must exist.
    ///
    /// # Errors
    /// When another process holds it (named by its id and host), or the file cannot be written.
    pub fn acquire(folder: &Path) -> Result<Self, LockError> {
        Self::acquire_after(folder, || std::thread::sleep(PAUSE))
    }

    /// The same with `pause` called before each further try.
    fn acquire_after(folder: &Path, mut pause: impl FnMut()) -> Result<Self, LockError> {
        let path = folder.join(LOCK_FILE);
        let failed = |source| LockError::File { path: path.clone(), source };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false) // What it holds is the other process's until the lock is ours.
            .open(&path)
            .map_err(failed)?;
        let mut tries = 1;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if tries < TRIES => pause(),
                Err(TryLockError::WouldBlock) => {
                    let holder = holder(&file);
                    return Err(LockError::Held { folder: folder.to_owned(), holder });
                }
                Err(TryLockError::Error(source)) => return Err(failed(source)),
            }
            tries += 1;
        }
        let line = format!("process {} on {}\n", std::process::id(), host());
        file.set_len(0).and_then(|()| file.write_all(line.as_bytes())).map_err(failed)?;
        Ok(Self { folder: folder.to_owned(), _file: file })
    }

    /// The run folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

fn holder(mut file: &File) -> String {
    let mut text = String::new();
    // Only for the message; the holder may be writing it at this moment.
    let read = file.rewind().and_then(|()| file.take(200).read_to_string(&mut text));
    match (read, text.trim()) {
        (Ok(_), line) if !line.is_empty() => line.to_owned(),
        _ => "another process".to_owned(),
    }
}

fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .or_else(|_| std::env::var("HOSTNAME").map_err(io::Error::other))
        .map_or_else(|_| "this host".to_owned(), |name| name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_lock_is_refused_and_names_the_holder() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = RunLock::acquire(folder.path()).expect("is free");
        let error = RunLock::acquire(folder.path()).expect_err("is held").to_string();
        let process = format!("process {} on ", std::process::id());
        assert!(error.contains(&process), "{error}");
        drop(first);
        RunLock::acquire(folder.path()).expect("is free again");
    }

    #[test]
    fn who_only_looks_whether_a_folder_is_locked_does_not_keep_a_run_from_it() {
        let folder = tempfile::tempdir().expect("a folder");
        drop(RunLock::acquire(folder.path()).expect("is free"));
        let looking = File::open(folder.path().join(LOCK_FILE)).expect("opens");
        looking.try_lock_shared().expect("is free");
        let mut looking = Some(looking);
        let lock = RunLock::acquire_after(folder.path(), || drop(looking.take()));
        lock.expect("is free after a pause");
    }

    #[test]
    fn a_longer_line_of_a_dead_holder_leaves_nothing_behind() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join(LOCK_FILE), "process 4294967295 on ".repeat(40))
            .expect("writes");
        let _lock = RunLock::acquire(folder.path()).expect("nobody holds it");
        let line = std::fs::read_to_string(folder.path().join(LOCK_FILE)).expect("reads");
        assert!(line.starts_with(&format!("process {} on ", std::process::id())), "{line}");
        assert_eq!(line.lines().count(), 1);
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let missing = folder.path().join("gone");
        let error = RunLock::acquire(&missing).expect_err("is not there").to_string();
        assert!(error.contains("gone"), "{error}");
    }
}
