//! Saved states: each is complete or absent, whenever the process ends.
//!
//! A state is a folder of files and one `manifest.json` with the hash of each. A run folder holds
//! `last/`, `best/` and a few older ones, `step-00000420/`. Saving goes:
//!
//! ```text
//! write .saving-best/, when this is the best, and .saving-last/   every file synced, manifests last
//! last/          → step-00000420/
//! .saving-last/  → last/            from here on the new state counts, and the new best with it
//! best/          → .best-old/
//! .saving-best/  → best/
//! remove .best-old/ and the oldest step-…/
//! ```
//!
//! A kill before the third line leaves what was there before; a kill after it is finished, not
//! undone, by [`StateStore::open`] (see `recover.rs`). So `best/` is always the best as the newest
//! state knows it. `best/` is a copy of its own, not hard links: a fault on the disk then harms one.

mod error;
mod manifest;
mod recover;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

pub use error::StateError;
pub use manifest::{Damage, StateTag};
use manifest::{MANIFEST, Manifest, is_plain_name};

use super::lock::RunLock;
use crate::disk::{self, exists};

/// The newest state of a run.
pub const LAST: &str = "last";
/// The state that did best by the metric watched.
pub const BEST: &str = "best";
/// What the folders of older states begin with.
pub(super) const OLDER: &str = "step-";
/// What stands in for `last` when it is set aside because it is damaged.
pub(super) const DAMAGED_LAST: &str = "damaged-last";
const NEW_LAST: &str = ".saving-last";
const NEW_BEST: &str = ".saving-best";
const OLD_BEST: &str = ".best-old";
/// What the names of folders that are being removed begin with.
const REMOVING: &str = ".removing-";

/// Whether the run folder at `folder` holds a state to go on from, intact or not.
pub fn any_in(folder: &Path) -> bool {
    let names = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let is_state = |name: &str| name == LAST || name.starts_with(OLDER);
    names.into_iter().any(|name| is_state(&name.to_string_lossy()))
}

/// Whether a complete state is in `folder`, intact or not.
pub fn is_state(folder: &Path) -> bool {
    folder.join(MANIFEST).is_file()
}

/// Whether the run folder at `folder` holds a state to go on from that looks sound; contents of files
/// other than manifests are not read, and nothing is changed.
///
/// # Errors
/// What is wrong with the first of its states, where none looks sound.
pub(super) fn glance(folder: &Path) -> Result<bool, Damage> {
    /// No manifest is longer, in bytes.
    const LONGEST: u64 = 16 << 20;
    let sound = |state: &Path| {
        let damage = |fault: &str| Damage::new(state, MANIFEST, fault);
        let about = fs::metadata(state.join(MANIFEST)).map_err(|_| damage("is missing"))?;
        if !about.is_file() || about.len() > LONGEST {
            return Err(damage("is no file that was saved"));
        }
        match Manifest::read(state)?.faults_at_a_glance(state).into_iter().next() {
            Some(fault) => Err(fault),
            None => Ok(()),
        }
    };
    let names = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let names = names.filter_map(|name| name.into_string().ok());
    let mut names: Vec<String> =
        names.filter(|name| name == LAST || name.starts_with(OLDER)).collect();
    // `last`, then the newest of the others.
    names.sort_unstable_by_key(|name| (name != LAST, std::cmp::Reverse(name.clone())));
    let mut first = None;
    for name in names {
        match sound(&folder.join(name)) {
            Ok(()) => return Ok(true),
            Err(damage) => drop(first.get_or_insert(damage)),
        }
    }
    first.map_or(Ok(false), Err)
}

/// A state read back, every byte of it as it was saved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedState {
    /// Its folder.
    pub folder: PathBuf,
    /// Where in training it was saved.
    pub tag: StateTag,
    /// Contents by file name.
    pub files: BTreeMap<String, Vec<u8>>,
}

/// Where a run can go on from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resumable {
    /// The newest intact state.
    pub state: SavedState,
    /// States that should have been used before it or beside it and are damaged; tell the user.
    pub damaged: Vec<Damage>,
}

/// A state that was just saved.
#[derive(Debug)]
pub struct Saved {
    /// Its folder, `last/`.
    pub folder: PathBuf,
    /// The bytes of its files.
    pub bytes: u64,
    /// Why an older state that is no longer needed could not be removed; tell the user.
    pub not_removed: Option<StateError>,
}

/// The saved states of the run folder whose lock this process holds.
#[derive(Debug)]
pub struct StateStore {
    folder: PathBuf,
    keep: usize,
    /// Names of the folders that [`StateStore::newest`] found damaged.
    known_damaged: BTreeSet<String>,
}

impl StateStore {
    /// Opens the states of a run folder, and finishes or undoes what a killed process left.
    ///
    /// `keep` is how many states are kept besides `last` and `best`.
    ///
    /// # Errors
    /// When what was left cannot be tidied up.
    pub fn open(lock: &RunLock, keep: usize) -> Result<Self, StateError> {
        Self::over(lock.folder(), keep)
    }

    fn over(folder: &Path, keep: usize) -> Result<Self, StateError> {
        let store = Self { folder: folder.to_owned(), keep, known_damaged: BTreeSet::new() };
        store.recover()?;
        Ok(store)
    }

    /// Saves a state as `last/`, and as `best/` too when `is_best`.
    ///
    /// # Errors
    /// When the disk is full, not writable or broken; what was saved before stays as it was, and
    /// saving may be tried again.
    pub fn save(
        &mut self,
        tag: &StateTag,
        files: &[(String, Vec<u8>)],
        is_best: bool,
    ) -> Result<Saved, StateError> {
        check_names(files)?;
        self.recover()?;
        if let Err(error) = self.write_and_commit(tag, files, is_best) {
            // Gives the space back. When this fails too, the next open or save does it, and the
            // first error is the one to tell.
            let _ = self.recover();
            return Err(error);
        }
        self.known_damaged.remove(LAST);
        if is_best {
            self.known_damaged.remove(BEST);
        }
        Ok(Saved {
            folder: self.folder.join(LAST),
            bytes: files.iter().map(|(_, bytes)| bytes.len() as u64).sum(),
            not_removed: self.prune().err(),
        })
    }

    fn write_and_commit(
        &self,
        tag: &StateTag,
        files: &[(String, Vec<u8>)],
        is_best: bool,
    ) -> Result<(), StateError> {
        let manifest = Manifest::new(tag, files).to_bytes()?;
        // In this order, because a complete `.saving-last` may be put in place on its own.
        if is_best {
            self.write_state(NEW_BEST, &manifest, files)?;
        }
        // And because what goes with it, the metrics too, must be found after a power loss when it is.
        disk::sync_folder(&self.folder)?;
        self.write_state(NEW_LAST, &manifest, files)?;
        disk::sync_folder(&self.folder)?;
        self.set_last_aside()?;
        self.rename(NEW_LAST, LAST)?;
        // From here on the new state is found after a power loss too, and `best` is never newer than it.
        disk::sync_folder(&self.folder)?;
        if is_best {
            self.put_best_in_place()?;
            disk::sync_folder(&self.folder)?;
        }
        Ok(())
    }

    fn write_state(
        &self,
        name: &str,
        manifest: &[u8],
        files: &[(String, Vec<u8>)],
    ) -> Result<(), StateError> {
        let folder = self.folder.join(name);
        disk::create_folder(&folder)?;
        for (name, bytes) in files {
            disk::write_new(&folder.join(name), bytes)?;
        }
        Ok(disk::replace(&folder.join(MANIFEST), manifest)?)
    }

    /// Makes room for a new `last`: the one there becomes an older state to fall back on, or is set
    /// aside when it is damaged.
    fn set_last_aside(&self) -> Result<(), StateError> {
        if !exists(&self.folder.join(LAST)) {
            return Ok(());
        }
        match self.glance(LAST) {
            Some(tag) => self.rename(LAST, &self.free_name(&tag)),
            None => {
                self.remove(&[DAMAGED_LAST])?;
                self.rename(LAST, DAMAGED_LAST)
            }
        }
    }

    fn free_name(&self, tag: &StateTag) -> String {
        let name = format!("{OLDER}{:08}", tag.step);
        let numbered = (2..).map(|number| format!("{name}-{number}"));
        std::iter::once(name.clone())
            .chain(numbered)
            .find(|name| !exists(&self.folder.join(name)))
            .unwrap_or(name)
    }

    /// The tag of a state that looks sound without reading its files.
    fn glance(&self, name: &str) -> Option<StateTag> {
        let folder = self.folder.join(name);
        let manifest = Manifest::read(&folder).ok()?;
        let sound =
            !self.known_damaged.contains(name) && manifest.faults_at_a_glance(&folder).is_empty();
        sound.then_some(manifest.tag)
    }

    /// The newest intact state, or `None` where nothing was saved yet and the run starts from its
    /// beginning (as after a kill before the first save).
    ///
    /// Every byte of the state returned was checked, and of `best/` too. A `last` that is older than
    /// another state is none that was saved as `last`, and counts as damaged.
    ///
    /// # Errors
    /// When there are saved states and none is intact, or the newest cannot be read now.
    pub fn newest(&mut self) -> Result<Option<Resumable>, StateError> {
        let mut damaged = Vec::new();
        let mut candidates = Vec::new();
        for name in self.names()? {
            match Manifest::read(&self.folder.join(&name)) {
                Ok(manifest) => candidates.push((name, manifest)),
                Err(damage) if damage.unread && name == LAST => {
                    return Err(StateError::Unread { damage });
                }
                Err(damage) => {
                    damaged.push(damage);
                    self.known_damaged.insert(name);
                }
            }
        }
        // Of equals, the one in the first place of `names` comes first: the sort is stable.
        candidates.sort_by_key(|(_, manifest)| std::cmp::Reverse(manifest.tag.order()));
        let mut newest: Option<SavedState> = None;
        for (name, manifest) in candidates {
            let folder = self.folder.join(&name);
            if let Some(newest) = newest.as_ref().filter(|_| name == LAST) {
                damaged.push(not_last(&folder, &manifest, newest));
                self.known_damaged.insert(name);
                continue;
            }
            if newest.is_some() && name != BEST {
                continue;
            }
            match manifest.read_files(&folder) {
                Ok(files) if newest.is_none() => {
                    newest = Some(SavedState { folder, tag: manifest.tag, files });
                }
                Ok(_) => {}
                Err(damages) => {
                    let unread = damages.iter().find(|damage| damage.unread);
                    if let Some(unread) = unread.filter(|_| newest.is_none()) {
                        return Err(StateError::Unread { damage: unread.clone() });
                    }
                    damaged.extend(damages);
                    self.known_damaged.insert(name);
                }
            }
        }
        match newest {
            Some(state) => Ok(Some(Resumable { state, damaged })),
            None if damaged.is_empty() => Ok(None),
            None => Err(StateError::NoneUsable { folder: self.folder.clone(), damaged }),
        }
    }

    /// The best state, or `None` where there is none yet.
    ///
    /// # Errors
    /// When it is damaged.
    pub fn best(&self) -> Result<Option<SavedState>, StateError> {
        let folder = self.folder.join(BEST);
        if exists(&folder) { read_state(&folder).map(Some) } else { Ok(None) }
    }

    /// The folders of states: `last` first, `best` last, the others between.
    fn names(&self) -> Result<Vec<String>, StateError> {
        let mut names: Vec<String> =
            self.entries()?.into_iter().filter(|name| name.starts_with(OLDER)).collect();
        names.sort_unstable_by(|a, b| b.cmp(a));
        if exists(&self.folder.join(LAST)) {
            names.insert(0, LAST.to_owned());
        }
        if exists(&self.folder.join(BEST)) {
            names.push(BEST.to_owned());
        }
        Ok(names)
    }

    fn entries(&self) -> Result<Vec<String>, StateError> {
        let unreadable = |source| StateError::Read { path: self.folder.clone(), source };
        let entries = fs::read_dir(&self.folder).map_err(unreadable)?;
        let mut names = Vec::new();
        for entry in entries {
            // No name that is not UTF-8 is one of ours.
            names.extend(entry.map_err(unreadable)?.file_name().into_string().ok());
        }
        Ok(names)
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), StateError> {
        Ok(disk::rename(&self.folder.join(from), &self.folder.join(to))?)
    }
}

/// Reads the state in `folder` (such as `checkpoints/xray/best`) and checks every byte of it.
///
/// Needs no lock: a state's folder never changes. It may be replaced by a newer one, so where a run
/// is on, reading may fail and succeed when tried again.
///
/// # Errors
/// When it is damaged or absent.
pub fn read_state(folder: &Path) -> Result<SavedState, StateError> {
    let unusable = |damaged| StateError::Unusable { folder: folder.to_owned(), damaged };
    let manifest = Manifest::read(folder).map_err(|damage| unusable(vec![damage]))?;
    let files = manifest.read_files(folder).map_err(unusable)?;
    Ok(SavedState { folder: folder.to_owned(), tag: manifest.tag, files })
}

/// Reads those of the files called `names` that the state in `folder` has, and checks every byte of them;
/// the others are not looked at. Needs no lock, as [`read_state`].
///
/// # Errors
/// When the state or one of these files is damaged or absent.
pub fn read_files(folder: &Path, names: &[&str]) -> Result<SavedState, StateError> {
    let unusable = |damaged| StateError::Unusable { folder: folder.to_owned(), damaged };
    let manifest = Manifest::read(folder).map_err(|damage| unusable(vec![damage]))?;
    let files = manifest.read_some(folder, |name| names.contains(&name)).map_err(unusable)?;
    Ok(SavedState { folder: folder.to_owned(), tag: manifest.tag, files })
}

/// What is to be said of a `last` whose `manifest` is older than `newest`.
fn not_last(last: &Path, manifest: &Manifest, newest: &SavedState) -> Damage {
    let (step, later) = (manifest.tag.step, newest.tag.step);
    let name = newest.folder.file_name().unwrap_or_default().to_string_lossy();
    let fault =
        format!("is that of step {step}, older than {name} of step {later}, and was put there");
    Damage::new(last, MANIFEST, &fault)
}

fn check_names(files: &[(String, Vec<u8>)]) -> Result<(), StateError> {
    let mut seen = BTreeSet::new();
    for (name, _) in files {
        let error = |why| StateError::Name { name: name.clone(), why };
        if !is_plain_name(name) {
            return Err(error("letters, digits, `.`, `_` and `-` are allowed"));
        }
        if !seen.insert(name) {
            return Err(error("it is there twice"));
        }
    }
    Ok(())
}
