//! What a saved state holds: its place in training and the hash of every file.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The manifest's name in a state's folder. Its presence is what makes a state complete.
pub(super) const MANIFEST: &str = "manifest.json";

/// Changes when an older program would misread a newer state.
const FORMAT: u32 = 1;

/// Where in training a state was saved, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateTag {
    /// Epochs completed.
    pub epoch: u64,
    /// Optimizer steps completed since training began.
    pub step: u64,
    /// Batches completed of the epoch under way.
    pub batch: u64,
    /// Such as `epoch`, `interval` or `SIGTERM`.
    pub reason: String,
}

impl StateTag {
    /// Later states of a run compare greater.
    pub fn order(&self) -> (u64, u64, u64) {
        (self.epoch, self.step, self.batch)
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sealed {
    format: u32,
    /// Of `state`, written compactly: the manifest vouches for the files, this for the manifest.
    blake3: String,
    state: Manifest,
}

/// The body of `manifest.json`.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    /// The version of the program that saved it.
    pub trainer: String,
    pub tag: StateTag,
    pub files: BTreeMap<String, FileSeal>,
}

/// What a file must be.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileSeal {
    pub bytes: u64,
    pub blake3: String,
}

/// A file of a saved state that is not what was saved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The state's folder.
    pub folder: PathBuf,
    /// The file's name in it.
    pub file: String,
    /// What is wrong with it, as the end of a sentence that begins with the file.
    pub fault: String,
    /// Whether the system refused to read it: it may be what was saved.
    pub unread: bool,
}

impl Damage {
    /// `file` of the state in `folder` is what `fault` says.
    pub(super) fn new(folder: &Path, file: &str, fault: &str) -> Self {
        let (folder, file, fault) = (folder.to_owned(), file.to_owned(), fault.to_owned());
        Self { folder, file, fault, unread: false }
    }

    /// `file` of the state in `folder` cannot be read.
    fn unreadable(folder: &Path, file: &str, error: &io::Error) -> Self {
        use io::ErrorKind::{IsADirectory, NotADirectory, NotFound};
        let fault = match error.kind() {
            NotFound => "is missing".to_owned(),
            _ => format!("cannot be read ({error})"),
        };
        let unread = !matches!(error.kind(), NotFound | IsADirectory | NotADirectory);
        Self { unread, ..Self::new(folder, file, &fault) }
    }
}

impl std::fmt::Display for Damage {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} {}", self.folder.join(&self.file).display(), self.fault)
    }
}

impl Manifest {
    pub fn new(tag: &StateTag, files: &[(String, Vec<u8>)]) -> Self {
        let seal = |bytes: &[u8]| FileSeal { bytes: bytes.len() as u64, blake3: hash(bytes) };
        Self {
            trainer: env!("CARGO_PKG_VERSION").to_owned(),
            tag: tag.clone(),
            files: files.iter().map(|(name, bytes)| (name.clone(), seal(bytes))).collect(),
        }
    }

    pub fn to_bytes(&self) -> serde_json::Result<Vec<u8>> {
        #[derive(Serialize)]
        struct Borrowed<'a> {
            format: u32,
            blake3: String,
            state: &'a Manifest,
        }
        let blake3 = hash(&serde_json::to_vec(self)?);
        let mut bytes =
            serde_json::to_vec_pretty(&Borrowed { format: FORMAT, blake3, state: self })?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    /// Reads the manifest in `folder`, not yet the files it names.
    pub fn read(folder: &Path) -> Result<Self, Damage> {
        let unreadable = |error| Damage::unreadable(folder, MANIFEST, &error);
        let path = folder.join(MANIFEST);
        // A pipe has no end.
        if !fs::metadata(&path).map_err(unreadable)?.is_file() {
            return Err(Damage::new(folder, MANIFEST, "is no file"));
        }
        let bytes = fs::read(path).map_err(unreadable)?;
        Self::parse(&bytes).map_err(|fault| Damage::new(folder, MANIFEST, &fault))
    }

    fn parse(bytes: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }
        let not_json = |error: serde_json::Error| format!("is damaged ({error})");
        let version: Version = serde_json::from_slice(bytes).map_err(not_json)?;
        if version.format != FORMAT {
            return Err(format!(
                "has format {}, and this version of trainer reads format {FORMAT}",
                version.format
            ));
        }
        let sealed: Sealed = serde_json::from_slice(bytes).map_err(not_json)?;
        let body = serde_json::to_vec(&sealed.state).map_err(not_json)?;
        if hash(&body) != sealed.blake3 {
            return Err("is damaged (it does not match its own hash)".to_owned());
        }
        match sealed.state.files.keys().find(|name| !is_plain_name(name)) {
            Some(name) => Err(format!("names {name:?}, which is no file of a saved state")),
            None => Ok(sealed.state),
        }
    }

    /// What is missing or has the wrong size; contents are not read.
    pub fn faults_at_a_glance(&self, folder: &Path) -> Vec<Damage> {
        let fault = |(name, seal): (&String, &FileSeal)| {
            let fault = match fs::metadata(folder.join(name)) {
                Err(error) => return Some(Damage::unreadable(folder, name, &error)),
                Ok(found) if !found.is_file() => "is no file".to_owned(),
                Ok(found) if found.len() != seal.bytes => wrong_size(found.len(), seal.bytes),
                Ok(_) => return None,
            };
            Some(Damage::new(folder, name, &fault))
        };
        self.files.iter().filter_map(fault).collect()
    }

    /// The contents of every file, each of which is what was saved.
    pub fn read_files(&self, folder: &Path) -> Result<BTreeMap<String, Vec<u8>>, Vec<Damage>> {
        let damages = self.faults_at_a_glance(folder);
        if !damages.is_empty() {
            return Err(damages);
        }
        self.read_some(folder, |_| true)
    }

    /// The contents of the files that are `wanted`, each of which is what was saved.
    pub fn read_some(
        &self,
        folder: &Path,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<BTreeMap<String, Vec<u8>>, Vec<Damage>> {
        let mut damages = Vec::new();
        let mut files = BTreeMap::new();
        for (name, seal) in self.files.iter().filter(|(name, _)| wanted(name)) {
            let read = fs::read(folder.join(name));
            let read = read.map_err(|error| Damage::unreadable(folder, name, &error));
            let checked = read.and_then(|bytes| match seal.check(&bytes) {
                Ok(()) => Ok(bytes),
                Err(fault) => Err(Damage::new(folder, name, &fault)),
            });
            match checked {
                Ok(bytes) => drop(files.insert(name.clone(), bytes)),
                Err(damage) => damages.push(damage),
            }
        }
        if damages.is_empty() { Ok(files) } else { Err(damages) }
    }
}

impl FileSeal {
    fn check(&self, bytes: &[u8]) -> Result<(), String> {
        if bytes.len() as u64 != self.bytes {
            Err(wrong_size(bytes.len() as u64, self.bytes))
        } else if hash(bytes) != self.blake3 {
            Err("is damaged (its contents do not match the hash in manifest.json)".to_owned())
        } else {
            Ok(())
        }
    }
}

/// Whether `name` is a file directly in a state's folder, and not one that saving itself makes.
pub(super) fn is_plain_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    !name.is_empty() && !name.starts_with('.') && name != MANIFEST && name.chars().all(allowed)
}

fn hash(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}

fn wrong_size(found: u64, saved: u64) -> String {
    format!("is damaged (it has {found} bytes, and {saved} were saved)")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let tag = StateTag { epoch: 1, step: 420, batch: 3, reason: "interval".to_owned() };
        Manifest::new(&tag, &[("weights.safetensors".to_owned(), vec![1, 2, 3])])
    }

    #[test]
    fn a_manifest_reads_back_as_written() {
        let bytes = manifest().to_bytes().expect("serializes");
        assert_eq!(Manifest::parse(&bytes).expect("reads"), manifest());
    }

    #[test]
    fn no_change_of_one_bit_in_a_manifest_passes_for_another_state() {
        let bytes = manifest().to_bytes().expect("serializes");
        for place in 0..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[place] ^= 1 << bit;
                if let Ok(read) = Manifest::parse(&changed) {
                    assert_eq!(read, manifest(), "byte {place}, bit {bit}");
                }
            }
        }
    }

    #[test]
    fn a_manifest_of_a_later_format_says_so() {
        let text = String::from_utf8(manifest().to_bytes().expect("serializes")).expect("UTF-8");
        let fault = Manifest::parse(text.replace("\"format\": 1", "\"format\": 2").as_bytes());
        let fault = fault.expect_err("is refused");
        assert_eq!(fault, "has format 2, and this version of trainer reads format 1");
    }

    #[test]
    fn names_that_leave_the_folder_are_no_names_of_a_state() {
        for name in ["", "..", "../weights", "/etc/passwd", "a/b", "a\\b", MANIFEST, ".hidden"] {
            assert!(!is_plain_name(name), "{name:?}");
        }
        assert!(is_plain_name("weights.safetensors"));
    }
}
