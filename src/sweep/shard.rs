//! A shard: every Nth combination of a sweep, for a scheduler's job array.
//!
//! ```text
//! <sweep's folder>/
//!     runs/ logs/            of each combination by its name, whichever process does it
//!     shards/2-of-4/         what a whole sweep has in its own folder: lock, sweep.toml, rows, page
//! ```
//!
//! A whole sweep and a shard, or shards of two divisions, could do one combination at once. So whoever begins
//! takes its own lock first, and then looks whether such another is at work.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::folder::SweepError;
use crate::run::RunLock;

/// The folders of shards, in that of the sweep.
pub(super) const SHARDS: &str = "shards";

/// The way from a shard's folder to that of the sweep.
pub(super) const ABOVE: &str = "../../";

/// The combinations whose number leaves the same rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// Which, from 0.
    place: usize,
    /// Of how many.
    of: usize,
}

impl Shard {
    /// Whether the combination `number`, counted from 0, is of it.
    pub(super) fn has(self, number: usize) -> bool {
        number % self.of == self.place
    }

    /// Its folder, in that of the sweep, `path`.
    pub(super) fn folder(self, path: &Path) -> PathBuf {
        path.join(SHARDS).join(format!("{}-of-{}", self.place + 1, self.of))
    }

    /// The shard with the folder `path`.
    fn of_folder(path: &Path) -> Option<Self> {
        path.file_name()?.to_str()?.replace("-of-", "/").parse().ok()
    }

    /// Looks whether what may do the same combinations is at work in the sweep's folder `path`: the whole
    /// sweep, or a shard of another division.
    ///
    /// # Errors
    /// When it is, with its process.
    pub(super) fn check_alone(self, path: &Path) -> Result<(), SweepError> {
        RunLock::acquire(path)?;
        for folder in folders(path)? {
            if Self::of_folder(&folder).is_some_and(|other| other.of != self.of) {
                RunLock::acquire(&folder)?;
            }
        }
        Ok(())
    }
}

/// The folders of all shards that were begun in the sweep's folder `path`, in the order of their names.
///
/// # Errors
/// When they cannot be listed.
pub(super) fn folders(path: &Path) -> Result<Vec<PathBuf>, SweepError> {
    let shards = path.join(SHARDS);
    if !shards.is_dir() {
        return Ok(Vec::new());
    }
    let list = || {
        let entries = fs::read_dir(&shards)?.map(|entry| Ok(entry?.path()));
        entries.collect::<std::io::Result<Vec<PathBuf>>>()
    };
    let mut found = list().map_err(SweepError::at("list", &shards))?;
    found.retain(|path| path.is_dir() && Shard::of_folder(path).is_some());
    found.sort();
    Ok(found)
}

impl FromStr for Shard {
    type Err = String;

    /// Reads `2/4`, the second of four.
    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('/').and_then(|(place, of)| {
            let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
            let number = |text: &str| text.parse::<usize>().ok().filter(|_| plain(text));
            Some((number(place)?, number(of)?))
        });
        match numbers {
            Some((place, of)) if (1..=of).contains(&place) => Ok(Self { place: place - 1, of }),
            _ => Err("write I/N, such as 2/4 for the second of four shards, counted from 1".into()),
        }
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "shard {} of {}", self.place + 1, self.of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_is_of_one_shard() {
        for of in 1..=7 {
            let shards: Vec<Shard> =
                (1..=of).map(|place| format!("{place}/{of}").parse().expect("is one")).collect();
            for number in 0..20 {
                assert_eq!(shards.iter().filter(|shard| shard.has(number)).count(), 1);
            }
        }
    }

    #[test]
    fn a_shard_is_a_number_from_1_of_a_number() {
        let second: Shard = "2/4".parse().expect("is one");
        assert_eq!(second.to_string(), "shard 2 of 4");
        let folder = second.folder(Path::new("out/tiny-sweep"));
        assert_eq!(folder, Path::new("out/tiny-sweep/shards/2-of-4"));
        assert_eq!(Shard::of_folder(&folder), Some(second));
        for wrong in ["0/4", "5/4", "2", "2/", "/4", "+2/4", "-1/4", "1/0", "1/2/3", " 1/2", "a/b"]
        {
            assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
        }
    }
}
