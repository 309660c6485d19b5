//! A disk that is watched: what is done to it below a folder is recorded, and fails at a chosen operation.
//!
//! A watch covers the paths below its folder, so that tests that run at once do not meet.

use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Change;

/// What happens at the chosen operation. Of a write, half has been done by then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DiskFault {
    /// The process is gone: neither that operation nor any later one happens.
    Killed,
    /// The system refuses that one operation, with this error's number.
    Refused(i32),
    /// The system refuses that operation and all later ones.
    Broken(i32),
    /// The disk holds so many bytes more; what would take it beyond is refused with ENOSPC, and what fits of a
    /// write is written. Removing gives nothing back.
    Room(u64),
    /// SIGKILL.
    Signal,
    /// From that operation on the disk is slow with new states: each operation on one takes so many milliseconds.
    Slow(u64),
}

/// An operation that was done, or what a test has noted between two of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Logged {
    CreateFolder(PathBuf),
    CreateFile(PathBuf),
    Write {
        path: PathBuf,
        at: u64,
        bytes: Vec<u8>,
    },
    SetLength {
        path: PathBuf,
        length: u64,
    },
    SyncFile(PathBuf),
    SyncFolder(PathBuf),
    Rename {
        from: PathBuf,
        to: PathBuf,
    },
    RemoveFile(PathBuf),
    RemoveFolder(PathBuf),
    /// From here on the program has promised this.
    Promise(u64),
}

#[derive(Debug, Default)]
struct Seen {
    operations: usize,
    log: Vec<Logged>,
    plan: Option<(usize, DiskFault)>,
    struck: bool,
}

/// The operations below a folder. The watch ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    folder: PathBuf,
    seen: Arc<Mutex<Seen>>,
}

static WATCHES: Mutex<Vec<(PathBuf, Arc<Mutex<Seen>>)>> = Mutex::new(Vec::new());

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watch {
    pub fn over(folder: &Path) -> Self {
        let seen = Arc::new(Mutex::new(Seen::default()));
        locked(&WATCHES).push((folder.to_owned(), Arc::clone(&seen)));
        Self { folder: folder.to_owned(), seen }
    }

    /// Lets `operations` more operations succeed, then strikes.
    pub fn strike_after(&self, operations: usize, fault: DiskFault) {
        let mut seen = locked(&self.seen);
        seen.plan = Some((seen.operations + operations, fault));
        seen.struck = false;
    }

    /// Lets everything succeed again.
    pub fn clear(&self) {
        locked(&self.seen).plan = None;
    }

    /// Whether the fault has struck.
    pub fn struck(&self) -> bool {
        locked(&self.seen).struck
    }

    /// How many operations there were, those that failed included.
    pub fn operations(&self) -> usize {
        locked(&self.seen).operations
    }

    /// Notes that the program has promised `what` from here on.
    pub fn promise(&self, what: u64) {
        locked(&self.seen).log.push(Logged::Promise(what));
    }

    /// What was done so far.
    pub fn log(&self) -> Vec<Logged> {
        locked(&self.seen).log.clone()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        locked(&WATCHES)
            .retain(|(folder, seen)| !(folder == &self.folder && Arc::ptr_eq(seen, &self.seen)));
    }
}

/// Does `operation`, unless a watch over its path refuses.
pub(super) fn perform<T>(
    change: Change<'_>,
    operation: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    let seen = {
        let watches = locked(&WATCHES);
        let over = watches.iter().find(|(folder, _)| change.path().starts_with(folder));
        over.map(|(_, seen)| Arc::clone(seen))
    };
    let Some(seen) = seen else { return operation() };
    // Not while it is held: other threads use the disk meanwhile.
    let pause = locked(&seen).pause(change);
    std::thread::sleep(pause);
    // Held while it is done: what several threads do is recorded in the order in which it happened.
    let mut seen = locked(&seen);
    seen.before(change)?;
    let done = operation()?;
    seen.log.push(Logged::of(change));
    Ok(done)
}

impl Seen {
    /// How long the disk takes for what is to be done.
    fn pause(&mut self, change: Change<'_>) -> Duration {
        let is_new = |name: &OsStr| name.to_string_lossy().starts_with(".saving-");
        match self.plan {
            Some((at, DiskFault::Slow(time)))
                if self.operations >= at && change.path().iter().any(is_new) =>
            {
                self.struck = true;
                Duration::from_millis(time)
            }
            _ => Duration::ZERO,
        }
    }

    fn before(&mut self, change: Change<'_>) -> io::Result<()> {
        let number = self.operations;
        self.operations += 1;
        let Some((at, fault)) = &mut self.plan else { return Ok(()) };
        if number < *at {
            return Ok(());
        }
        let error = |number: i32| io::Error::from_raw_os_error(number);
        let (error, part) = match fault {
            DiskFault::Room(left) => {
                let Change::Write { bytes, .. } = change else { return Ok(()) };
                let written = (*left).min(bytes.len() as u64);
                *left -= written;
                if written == bytes.len() as u64 {
                    return Ok(());
                }
                (error(ENOSPC), written as usize)
            }
            DiskFault::Slow(_) => return Ok(()),
            DiskFault::Refused(_) if number > *at => return Ok(()),
            DiskFault::Refused(of) | DiskFault::Broken(of) => (error(*of), half(change)),
            DiskFault::Killed if number > *at => (io::Error::other("killed by the test"), 0),
            DiskFault::Killed => (io::Error::other("killed by the test"), half(change)),
            DiskFault::Signal => {
                self.part_of(change, half(change))?;
                let this = rustix::process::getpid();
                rustix::process::kill_process(this, rustix::process::Signal::KILL)?;
                unreachable!("it is killed");
            }
        };
        self.struck = true;
        self.part_of(change, part)?;
        Err(error)
    }

    /// Writes the first bytes of a write that fails.
    fn part_of(&mut self, change: Change<'_>, length: usize) -> io::Result<()> {
        let Change::Write { path, at, bytes } = change else { return Ok(()) };
        if length == 0 {
            return Ok(());
        }
        let file = std::fs::OpenOptions::new().write(true).open(path)?;
        file.write_all_at(&bytes[..length], at)?;
        self.log.push(Logged::of(Change::Write { path, at, bytes: &bytes[..length] }));
        Ok(())
    }
}

fn half(change: Change<'_>) -> usize {
    match change {
        Change::Write { bytes, .. } => bytes.len() / 2,
        _ => 0,
    }
}

/// No space left on device.
pub(crate) const ENOSPC: i32 = 28;
/// What a disk may answer, besides: EINTR, EIO, EACCES, EMFILE, EROFS and EDQUOT.
pub(crate) const ERRORS: [i32; 7] = [ENOSPC, 4, 5, 13, 24, 30, 122];

impl Logged {
    fn of(change: Change<'_>) -> Self {
        let path = change.path().to_owned();
        match change {
            Change::CreateFolder(_) => Self::CreateFolder(path),
            Change::CreateFile(_) => Self::CreateFile(path),
            Change::Write { at, bytes, .. } => Self::Write { path, at, bytes: bytes.to_vec() },
            Change::SetLength { length, .. } => Self::SetLength { path, length },
            Change::SyncFile(_) => Self::SyncFile(path),
            Change::SyncFolder(_) => Self::SyncFolder(path),
            Change::Rename { to, .. } => Self::Rename { from: path, to: to.to_owned() },
            Change::RemoveFile(_) => Self::RemoveFile(path),
            Change::RemoveFolder(_) => Self::RemoveFolder(path),
        }
    }
}
