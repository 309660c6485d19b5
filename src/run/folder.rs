//! The folder of a run: made, gone back to, or made anew.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::lock::{LOCK_FILE, LockError, RunLock};
use super::place::RunPlace;
use super::state::{BEST, DAMAGED_LAST, LAST, OLDER, StateError};
use crate::disk::{self, exists};
use crate::paths::looked_in;
use crate::screen::Bytes;

/// The resolved configuration of a run, in its folder.
pub const CONFIG_FILE: &str = "config.toml";
/// The events of a run, in its folder.
pub const METRICS_FILE: &str = "metrics.jsonl";
/// What the folders of evaluations, in a run's folder, begin with; the list's name follows.
pub const EVALUATION: &str = "eval-";
/// The images of a run, each with its patient and list.
const SPLIT_FILE: &str = "split.csv";
/// What stands for the labels of each of them.
const LABELS_FILE: &str = ".labels";

/// What the user wants of the run folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// There must be no run of this name yet.
    New,
    /// Go on from what was saved.
    Resume,
    /// Remove the run of this name, if there is one, and start anew.
    Overwrite,
}

/// A run folder whose lock this process holds.
#[derive(Debug)]
pub struct RunFolder {
    lock: RunLock,
}

/// The run folder cannot be used as asked.
#[derive(Debug, Error)]
pub enum FolderError {
    /// A new run, and there is one of that name.
    #[error(
        "{} holds a run already. Three ways on:\n  --resume                   goes on from what it \
         saved\n  --overwrite                removes it and starts again\n  --set run.name=<other>     \
         gives this run another name",
        .0.display()
    )]
    Exists(PathBuf),
    /// To be resumed, and there is none of that name.
    #[error(
        "there is no run to resume in {}{}. To start it, leave out --resume.",
        .0.display(), looked_in(.0)
    )]
    NothingToResume(PathBuf),
    /// The folder holds something else.
    #[error(
        "{} is no run folder: it holds {found:?}, which no run puts there, and no configuration of \
         a run. Nothing in it was changed. Give this run another name with --set run.name=<other>, \
         or another place with --set run.output=<folder>.",
        path.display()
    )]
    Foreign {
        /// The folder.
        path: PathBuf,
        /// One thing in it that no run puts there.
        found: String,
    },
    /// The configuration in the folder cannot be read.
    #[error(
        "cannot read {}: {source}\nThe program cannot tell whether it is the folder of a run, and \
         changed nothing. Make the file \
         readable for this user, or give this run another name with --set run.name=<other>.",
        path.display()
    )]
    Config {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The folder cannot be made, read or changed.
    #[error("cannot use {} as the run folder: {source}", path.display())]
    Io {
        /// The folder or a thing in it.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The disk has too little room for what a run saves.
    #[error(
        "the disk of {} has {} free, and two saved states take {}\nMake room on it, or put the run on \
         another disk with --set run.output=<folder>.",
        path.display(), Bytes(*free), Bytes(*needed)
    )]
    NoRoom {
        /// The run folder.
        path: PathBuf,
        /// Bytes of two states.
        needed: u64,
        /// Bytes that are free, or will be when an older run is removed.
        free: u64,
    },
    /// It is in use, or cannot be locked.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// A file in it cannot be written or removed.
    #[error(transparent)]
    Write(#[from] StateError),
}

impl FolderError {
    /// The program's exit code: 2 where the command line asks for what cannot be, else 1.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Exists(_) | Self::NothingToResume(_) | Self::Foreign { .. } => 2,
            Self::Io { .. } | Self::Config { .. } | Self::NoRoom { .. } => 1,
            Self::Lock(_) | Self::Write(_) => 1,
        }
    }
}

impl RunFolder {
    /// Makes or reuses the run folder at `path`, and locks it.
    ///
    /// A folder that holds nothing but a lock is as good as new in every mode. Resuming a run that
    /// was killed before its first save is no error either: `StateStore::newest` then gives `None`,
    /// and the run starts from its beginning.
    ///
    /// # Errors
    /// When what is at `path` does not go with `mode`, and on a lock held by another process.
    pub fn create(path: &Path, mode: Mode) -> Result<Self, FolderError> {
        RunPlace::find(path, mode)?.open()
    }

    /// Locks the folder at `path`, which is there.
    pub(super) fn locked(path: &Path, mode: Mode) -> Result<Self, FolderError> {
        let lock = RunLock::acquire(path)?;
        // Looked at again: until now another process may have held the lock.
        check(path, mode)?;
        Ok(Self { lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.lock.folder()
    }

    /// Its lock, for [`StateStore::open`](super::state::StateStore::open).
    pub fn lock(&self) -> &RunLock {
        &self.lock
    }

    /// Saves the resolved configuration as `config.toml`: all of the old one or all of the new one
    /// is there whenever the process ends.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_config(&self, toml: &str) -> Result<(), FolderError> {
        let written = disk::replace(&self.path().join(CONFIG_FILE), toml.as_bytes());
        Ok(written.map_err(StateError::from)?)
    }

    /// Writes `split.csv` (`csv`) and what stands for the labels of its images.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn write_split(&self, csv: &[u8], labels: &[u8]) -> Result<(), FolderError> {
        for (name, bytes) in [(LABELS_FILE, labels), (SPLIT_FILE, csv)] {
            disk::replace(&self.path().join(name), bytes).map_err(StateError::from)?;
        }
        Ok(())
    }

    /// What [`RunFolder::write_split`] has written; nothing for what is not there.
    pub fn read_split(&self) -> [Vec<u8>; 2] {
        [SPLIT_FILE, LABELS_FILE].map(|name| fs::read(self.path().join(name)).unwrap_or_default())
    }

    /// Bytes of what [`RunFolder::clear`] would remove.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn bytes(&self) -> Result<u64, FolderError> {
        let names = self.removable()?.into_iter();
        Ok(names.map(|name| bytes_of(&self.path().join(name))).sum())
    }

    /// The names of what a run put there, but for its lock and configuration.
    fn removable(&self) -> Result<Vec<String>, FolderError> {
        let mut names = entries(self.path())?;
        names.retain(|name| is_of_a_run(name) && name != LOCK_FILE && name != CONFIG_FILE);
        Ok(names)
    }

    /// Removes the run that is in the folder, for [`Mode::Overwrite`]: what a run puts there and
    /// nothing else. To be called when everything that the new run needs is there, because whatever is
    /// wrong before must not cost the old one.
    ///
    /// The configuration stays until [`RunFolder::write_config`] replaces it: it marks the folder as a
    /// run's, even if the process is killed between.
    ///
    /// # Errors
    /// When something cannot be removed.
    pub fn clear(&self) -> Result<(), FolderError> {
        let mut removed = Vec::new();
        for name in self.removable()? {
            let mut path = self.path().join(&name);
            // Renamed first, so that a kill leaves no half of a state under a state's name.
            let removing = self.path().join(format!(".removing-{}", name.trim_start_matches('.')));
            if !exists(&removing) {
                disk::rename(&path, &removing).map_err(StateError::from)?;
                path = removing;
            }
            removed.push(path);
        }
        // Nor a power loss, which may lose the new names and not what is removed below them.
        disk::sync_folder(self.path()).map_err(StateError::from)?;
        for path in removed {
            disk::remove_tree(&path).map_err(StateError::from)?;
        }
        Ok(())
    }
}

/// Refuses what is at `path` where it does not go with `mode`.
pub(super) fn check(path: &Path, mode: Mode) -> Result<(), FolderError> {
    if !exists(path) {
        return match mode {
            Mode::Resume => Err(FolderError::NothingToResume(path.to_owned())),
            Mode::New | Mode::Overwrite => Ok(()),
        };
    }
    let names = entries(path)?;
    if names.iter().all(|name| name == LOCK_FILE) {
        return Ok(());
    }
    if let Some(found) = foreign(path, &names)? {
        return Err(FolderError::Foreign { path: path.to_owned(), found });
    }
    match mode {
        Mode::New => Err(FolderError::Exists(path.to_owned())),
        Mode::Resume | Mode::Overwrite => Ok(()),
    }
}

/// Something that shows that the folder is no run's: `config.toml` of another program, or without
/// any, a thing that no run puts into its folder.
///
/// # Errors
/// When its configuration cannot be read: whose it is, is not known.
fn foreign(path: &Path, names: &[String]) -> Result<Option<String>, FolderError> {
    if names.iter().any(|name| name == CONFIG_FILE) {
        let path = path.join(CONFIG_FILE);
        let read = |path| match fs::metadata(path)?.is_file() {
            true => fs::read(path),
            false => Ok(Vec::new()),
        };
        let text = read(&path).map_err(|source| FolderError::Config { path, source })?;
        let is_of_a_run = is_config_of_a_run(&String::from_utf8_lossy(&text));
        Ok((!is_of_a_run).then(|| CONFIG_FILE.to_owned()))
    } else {
        Ok(names.iter().find(|name| !is_of_a_run(name)).cloned())
    }
}

/// Whether this is a configuration at all, however old: it has `run.name`.
pub(super) fn is_config_of_a_run(text: &str) -> bool {
    let table = text.parse::<toml::Table>().ok();
    table.and_then(|table| table.get("run")?.get("name")?.as_str().map(str::to_owned)).is_some()
}

/// Whether a run puts a file or folder of this name into its folder.
fn is_of_a_run(name: &str) -> bool {
    const NAMES: [&str; 19] = [
        SPLIT_FILE,
        "split.csv.new",
        LABELS_FILE,
        ".labels.new",
        CONFIG_FILE,
        LOCK_FILE,
        LAST,
        BEST,
        DAMAGED_LAST,
        ".best-old",
        METRICS_FILE,
        "report.html",
        "report.html.new",
        "MODEL.md",
        "MODEL.md.new",
        "samples.json",
        "samples.json.new",
        "trace.json",
        "trace.json.new",
    ];
    const BEGINNINGS: [&str; 7] =
        [OLDER, ".saving-", ".removing-", "events.", "skipped_images", "config.toml.", EVALUATION];
    NAMES.contains(&name) || BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
}

/// Bytes of a file, or of all files in a folder; links are not followed.
pub(super) fn bytes_of(path: &Path) -> u64 {
    let Ok(about) = fs::symlink_metadata(path) else { return 0 };
    if !about.is_dir() {
        return about.len();
    }
    fs::read_dir(path).into_iter().flatten().flatten().map(|entry| bytes_of(&entry.path())).sum()
}

fn entries(path: &Path) -> Result<Vec<String>, FolderError> {
    let failed = |source| FolderError::Io { path: path.to_owned(), source };
    let entries = fs::read_dir(path).map_err(failed)?;
    let name = |entry: io::Result<fs::DirEntry>| {
        Ok(entry.map_err(failed)?.file_name().to_string_lossy().into_owned())
    };
    entries.map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::state::{StateStore, StateTag};

    fn config() -> &'static str {
        "[run]\nname = \"xray\"\n"
    }

    /// A run with two states, made and left as a run does.
    fn a_run(path: &Path) {
        let folder = RunFolder::create(path, Mode::New).expect("is new");
        folder.write_config(config()).expect("writes");
        folder.write_split(b"image,patient,list\n", b"").expect("writes");
        let mut store = StateStore::open(folder.lock(), 2).expect("opens");
        for step in [1, 2] {
            let tag = StateTag { epoch: 0, step, batch: step, reason: "test".to_owned() };
            store.save(&tag, &[("weights".to_owned(), vec![1; 10])], true).expect("saves");
        }
        fs::write(path.join("metrics.jsonl"), "{}\n").expect("writes");
        fs::write(path.join("events.out.tfevents.1"), "").expect("writes");
    }

    fn names(path: &Path) -> Vec<String> {
        let mut names = entries(path).expect("lists");
        names.sort();
        names
    }

    #[test]
    fn an_existing_run_names_the_three_ways_on() {
        let parent = tempfile::tempdir().expect("a folder");
        let path = parent.path().join("xray");
        a_run(&path);
        let before = names(&path);
        let error = RunFolder::create(&path, Mode::New).expect_err("exists");
        for way in ["--resume", "--overwrite", "--set run.name="] {
            assert!(error.to_string().contains(way), "{error}");
        }
        assert_eq!(error.exit_code(), 2);
        assert_eq!(names(&path), before);
    }

    #[test]
    fn resuming_needs_a_run_and_keeps_all_of_it() {
        let parent = tempfile::tempdir().expect("a folder");
        let path = parent.path().join("xray");
        let error = RunFolder::create(&path, Mode::Resume).expect_err("is not there");
        assert!(matches!(error, FolderError::NothingToResume(_)), "{error}");
        assert!(!path.exists(), "nothing was made");
        a_run(&path);
        let before = names(&path);
        let folder = RunFolder::create(&path, Mode::Resume).expect("is there");
        assert_eq!(names(&path), before);
        let mut store = StateStore::open(folder.lock(), 2).expect("opens");
        let newest = store.newest().expect("reads").expect("was saved");
        assert_eq!(newest.state.tag.step, 2);
    }

    #[test]
    fn a_run_killed_before_its_first_save_starts_from_its_beginning() {
        let parent = tempfile::tempdir().expect("a folder");
        let path = parent.path().join("xray");
        drop(RunFolder::create(&path, Mode::New).expect("is new"));
        drop(RunFolder::create(&path, Mode::New).expect("a lock alone is as good as new"));
        let folder = RunFolder::create(&path, Mode::Resume).expect("resumes");
        folder.write_config(config()).expect("writes");
        drop(folder);
        let folder = RunFolder::create(&path, Mode::Resume).expect("resumes");
        let newest = StateStore::open(folder.lock(), 2).expect("opens").newest();
        assert_eq!(newest.expect("reads"), None);
    }

    #[test]
    fn overwriting_removes_what_a_run_put_there_and_nothing_else() {
        let parent = tempfile::tempdir().expect("a folder");
        let path = parent.path().join("xray");
        a_run(&path);
        fs::write(path.join("notes.txt"), "mine").expect("writes");
        fs::write(path.join("split.csv.bak"), "mine").expect("writes");
        let folder = RunFolder::create(&path, Mode::Overwrite).expect("opens");
        folder.clear().expect("overwrites");
        drop(folder);
        assert_eq!(names(&path), [LOCK_FILE, CONFIG_FILE, "notes.txt", "split.csv.bak"]);
    }

    #[test]
    fn a_folder_of_something_else_is_left_alone() {
        let with = |file: &str, text: &str| {
            let folder = tempfile::tempdir().expect("a folder");
            fs::write(folder.path().join(file), text).expect("writes");
            fs::create_dir(folder.path().join(BEST)).expect("makes");
            folder
        };
        let theirs = "baseURL = \"https://example.org\"\n";
        for folder in [with("thesis.tex", "\\section{}"), with(CONFIG_FILE, theirs)] {
            let before = names(folder.path());
            for mode in [Mode::New, Mode::Resume, Mode::Overwrite] {
                let error = RunFolder::create(folder.path(), mode).expect_err("is not a run's");
                assert!(matches!(error, FolderError::Foreign { .. }), "{error}");
            }
            assert_eq!(names(folder.path()), before);
        }
    }

    #[test]
    fn a_run_that_is_on_is_not_overwritten() {
        let parent = tempfile::tempdir().expect("a folder");
        let path = parent.path().join("xray");
        a_run(&path);
        let _on = RunFolder::create(&path, Mode::Resume).expect("resumes");
        let before = names(&path);
        let error = RunFolder::create(&path, Mode::Overwrite).expect_err("is in use");
        assert!(error.to_string().contains("in use by process"), "{error}");
        assert_eq!(names(&path), before);
    }

    #[cfg(unix)]
    #[test]
    fn overwriting_follows_no_links() {
        let parent = tempfile::tempdir().expect("a folder");
        let path = parent.path().join("xray");
        a_run(&path);
        let elsewhere = parent.path().join("precious");
        fs::create_dir(&elsewhere).expect("makes");
        fs::write(elsewhere.join("data"), "mine").expect("writes");
        std::os::unix::fs::symlink(&elsewhere, path.join("step-00000099")).expect("links");
        let folder = RunFolder::create(&path, Mode::Overwrite).expect("opens");
        folder.clear().expect("overwrites");
        drop(folder);
        assert_eq!(names(&elsewhere), ["data"]);
        assert_eq!(names(&path), [LOCK_FILE, CONFIG_FILE]);
    }
}
