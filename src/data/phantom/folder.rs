//! The folder of a phantom: complete or absent, and known by the settings it was drawn with.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{PhantomSettings, TABLE};
use crate::data::error::DataError;

/// Raised when the same seed would draw something else than before.
const DRAWING: u32 = 1;
pub(super) const RECORD: &str = "phantom.json";

/// The settings a folder was drawn with, in its `phantom.json`.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    drawing: u32,
    patients: usize,
    size: usize,
    seed: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nodules: Option<[usize; 2]>,
}

impl Record {
    pub fn of(settings: &PhantomSettings) -> Self {
        let PhantomSettings { patients, size, seed, nodules, .. } = *settings;
        Self { drawing: DRAWING, patients, size, seed, nodules }
    }

    fn differences(&self, wanted: &Self) -> String {
        let pairs = [
            ("patients", self.patients as u64, wanted.patients as u64),
            ("size", self.size as u64, wanted.size as u64),
            ("seed", self.seed, wanted.seed),
            ("drawing", self.drawing.into(), wanted.drawing.into()),
        ];
        let differing = pairs.iter().filter(|(_, has, wants)| has != wants);
        let named = differing.map(|(name, has, wants)| format!("{name} {has} instead of {wants}"));
        let told = |nodules: Option<[usize; 2]>| match nodules {
            Some([least, most]) => format!("{least} to {most} pixels wide"),
            None => "as wide as usual".to_owned(),
        };
        let nodules = (self.nodules != wanted.nodules)
            .then(|| format!("nodules {} instead of {}", told(self.nodules), told(wanted.nodules)));
        named.chain(nodules).collect::<Vec<_>>().join(", ")
    }
}

/// Whether a phantom may be put at `root`: nothing there, or an empty folder.
pub(super) fn is_free(root: &Path) -> Result<bool, DataError> {
    match fs::read_dir(root) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(DataError::io("read", root)(error)),
    }
}

/// Refuses a folder that is not the phantom of these settings.
pub(super) fn verify(settings: &PhantomSettings) -> Result<(), DataError> {
    let root = &settings.root;
    let foreign = |reason: String| DataError::NotAPhantom { root: root.clone(), reason };
    let text = fs::read_to_string(root.join(RECORD))
        .map_err(|error| foreign(format!("its `{RECORD}` cannot be read ({error})")))?;
    let found: Record = serde_json::from_str(&text)
        .map_err(|error| foreign(format!("its `{RECORD}` is damaged ({error})")))?;
    if !root.join(TABLE).is_file() {
        return Err(foreign(format!("it has no `{TABLE}`")));
    }
    let wanted = Record::of(settings);
    if found != wanted {
        let differences = found.differences(&wanted);
        return Err(DataError::OtherPhantom { root: root.clone(), differences });
    }
    Ok(())
}

/// A folder beside the wanted one, locked while it is written and removed unless committed.
pub(super) struct Partial {
    pub path: PathBuf,
    lock: Option<File>,
}

impl Partial {
    pub(super) const LOCK: &str = ".lock";

    pub fn create(root: &Path) -> Result<Self, DataError> {
        let name = root.file_name().ok_or_else(|| {
            DataError::PhantomSettings(format!("`{}` does not name a folder", root.display()))
        })?;
        let parent = match root.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        fs::create_dir_all(parent).map_err(DataError::io("make", parent))?;
        let prefix = format!("{}.partial-", name.to_string_lossy());
        // Whoever removes what is abandoned must not find this folder before it is locked.
        let _alone = File::open(parent).and_then(|folder| folder.lock().map(|()| folder));
        remove_abandoned(parent, &prefix);
        let path = parent.join(format!("{prefix}{}", std::process::id()));
        fs::create_dir(&path).map_err(DataError::io("make", &path))?;
        let lock_path = path.join(Self::LOCK);
        let lock = File::create(&lock_path).map_err(DataError::io("write", &lock_path))?;
        // Some network file systems have no locks; then an abandoned folder merely stays.
        let _ = lock.try_lock();
        Ok(Self { path, lock: Some(lock) })
    }

    pub fn commit(mut self, root: &Path) -> Result<(), DataError> {
        let lock = self.path.join(Self::LOCK);
        fs::remove_file(&lock).map_err(DataError::io("remove", &lock))?;
        fs::rename(&self.path, root)
            .map_err(DataError::io("move the finished phantom to", root))?;
        self.lock = None;
        Ok(())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if self.lock.is_some() {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Removes what interrupted processes left: their locks ended with them.
fn remove_abandoned(parent: &Path, prefix: &str) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(prefix) {
            continue;
        }
        let lock = File::open(entry.path().join(Partial::LOCK));
        if lock.is_ok_and(|lock| lock.try_lock().is_ok()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
