//! The place of a run, before anything there is made or removed.

use std::fs;
use std::path::{Path, PathBuf};

use super::folder::{FolderError, Mode, RunFolder, check};
use super::state::StateError;
use crate::disk::{self, exists};

/// A file that shows whether files can be made; a run's own, should it be left behind.
const PROBE: &str = ".saving-probe";

/// The place of a run: its folder where there is one, which is then locked, and nothing yet where
/// there is none. So whatever is found to be wrong before [`RunPlace::open`] leaves no folder behind.
#[derive(Debug)]
pub struct RunPlace {
    path: PathBuf,
    mode: Mode,
    folder: Option<RunFolder>,
}

impl RunPlace {
    /// Looks at what is at `path`, and locks it where it is a folder.
    ///
    /// # Errors
    /// When what is there does not go with `mode`, on a lock held by another process, and where no
    /// file can be made.
    pub fn find(path: &Path, mode: Mode) -> Result<Self, FolderError> {
        // Looked at before the lock leaves its file there: the folder may not be ours.
        check(path, mode)?;
        let path = path.to_owned();
        if !exists(&path) {
            let above = nearest_folder(&path);
            // Else it is a file, or may not be entered.
            fs::read_dir(above)
                .map_err(|source| FolderError::Io { path: above.to_owned(), source })?;
            return Ok(Self { path, mode, folder: None });
        }
        let folder = RunFolder::locked(&path, mode)?;
        let probe = path.join(PROBE);
        let probed = disk::replace(&probe, b"").and_then(|()| disk::remove_tree(&probe));
        probed.map_err(StateError::from)?;
        Ok(Self { path, mode, folder: Some(folder) })
    }

    /// Refuses a disk without room for two saved states of so many bytes each: the newest and the best
    /// are written before older ones are removed.
    ///
    /// # Errors
    /// When there is less, or the disk cannot be asked.
    pub fn check_room(&self, state_bytes: u64) -> Result<(), FolderError> {
        let on = if exists(&self.path) { &self.path } else { nearest_folder(&self.path) };
        let about = rustix::fs::statvfs(on)
            .map_err(|error| FolderError::Io { path: on.to_owned(), source: error.into() })?;
        let removed = match (self.mode, &self.folder) {
            (Mode::Overwrite, Some(folder)) => folder.bytes()?,
            _ => 0,
        };
        let free = about.f_bavail.saturating_mul(about.f_frsize).saturating_add(removed);
        let needed = state_bytes.saturating_mul(2);
        match needed > free {
            true => Err(FolderError::NoRoom { path: self.path.clone(), needed, free }),
            false => Ok(()),
        }
    }

    /// The folder, where there is one.
    pub fn folder(&self) -> Option<&RunFolder> {
        self.folder.as_ref()
    }

    /// The folder, made and locked where there was none.
    ///
    /// # Errors
    /// When it cannot be made, or another process was faster.
    pub fn open(self) -> Result<RunFolder, FolderError> {
        // What is saved in it is found after a power loss only if its own name is.
        disk::create_folders(&self.path)
            .map_err(|error| FolderError::Io { path: self.path.clone(), source: error.source })?;
        match self.folder {
            Some(folder) => Ok(folder),
            None => RunFolder::locked(&self.path, self.mode),
        }
    }
}

/// The nearest thing above `path` that is there.
fn nearest_folder(path: &Path) -> &Path {
    let here = Path::new(".");
    let parents = path.ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty());
    parents.into_iter().find(|parent| exists(parent)).unwrap_or(here)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_run_has_no_folder_before_it_is_opened() {
        let parent = tempfile::tempdir().expect("a folder");
        let path = parent.path().join("runs/xray");
        for mode in [Mode::New, Mode::Overwrite] {
            let place = RunPlace::find(&path, mode).expect("is free");
            place.check_room(1 << 10).expect("there is room");
            assert!(place.folder().is_none());
            drop(place);
            assert_eq!(fs::read_dir(parent.path()).expect("lists").count(), 0, "{mode:?}");
        }
        let folder = RunPlace::find(&path, Mode::New).expect("is free").open().expect("is made");
        assert_eq!(folder.path(), path);
    }

    #[test]
    fn of_two_new_runs_of_one_name_the_slower_is_refused_when_it_opens() {
        let parent = tempfile::tempdir().expect("a folder");
        let path = parent.path().join("xray");
        let [fast, slow, slower] =
            [(); 3].map(|()| RunPlace::find(&path, Mode::New).expect("is free"));
        let folder = fast.open().expect("is made");
        let error = slow.open().expect_err("is in use").to_string();
        assert!(error.contains("in use by process"), "{error}");
        folder.write_config("[run]\nname = \"xray\"\n").expect("writes");
        drop(folder);
        let error = slower.open().expect_err("holds a run").to_string();
        assert!(error.contains("holds a run already"), "{error}");
    }

    #[test]
    fn a_file_in_the_place_of_a_folder_above_is_found_before_anything_is_made() {
        let parent = tempfile::tempdir().expect("a folder");
        fs::write(parent.path().join("runs"), "a file").expect("writes");
        let error = RunPlace::find(&parent.path().join("runs/xray"), Mode::New);
        let error = error.expect_err("is no folder").to_string();
        assert!(error.contains("runs as the run folder: Not a directory"), "{error}");
    }

    #[test]
    fn a_disk_without_room_for_two_states_is_refused_with_both_numbers() {
        let parent = tempfile::tempdir().expect("a folder");
        let path = parent.path().join("xray");
        let told = |mode| {
            let place = RunPlace::find(&path, mode).expect("is usable");
            let error = place.check_room(1 << 60).expect_err("no disk has that");
            assert_eq!(error.exit_code(), 1);
            let FolderError::NoRoom { needed, free, .. } = error else { panic!("{error}") };
            assert_eq!(needed, 2 << 60);
            free
        };
        let before = told(Mode::New);
        let folder = RunFolder::create(&path, Mode::New).expect("is new");
        folder.write_config("[run]\nname = \"xray\"\n").expect("writes");
        fs::create_dir(path.join("last")).expect("is made");
        fs::File::create(path.join("last/weights.safetensors"))
            .and_then(|file| file.set_len(1 << 42))
            .expect("a file with holes takes no room");
        drop(folder);
        // What a run that is overwritten leaves counts as free; what a resumed one has does not.
        // Other programs use the disk too.
        assert!(told(Mode::Overwrite) > before + (1 << 41));
        assert!(told(Mode::Resume) < before + (1 << 41));
        let error = FolderError::NoRoom {
            path: "checkpoints/xray".into(),
            needed: 300 << 20,
            free: 9 << 20,
        };
        insta::assert_snapshot!(error);
    }
}
