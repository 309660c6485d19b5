//! Which tables a data set is read from.
//!
//! Layouts read tables of different names and kinds at different places. Each of these places tells
//! this module, so that no layout has to list its tables a second time.

use std::cell::RefCell;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::paths::open_file;

/// A table and what it held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableSeal {
    /// Its path, as it was read.
    pub path: String,
    /// BLAKE3 of the file; of an array, of its numbers.
    pub blake3: String,
}

thread_local! {
    /// What this thread has read since [`recorded`] began; opening data sets on other threads does not
    /// disturb it.
    static OPENED: RefCell<Option<Vec<TableSeal>>> = const { RefCell::new(None) };
}

/// What `work` gives, and the tables that it reads on this thread, each once and in their order.
pub(super) fn recorded<T>(work: impl FnOnce() -> T) -> (T, Vec<TableSeal>) {
    OPENED.set(Some(Vec::new()));
    let done = work();
    (done, OPENED.take().unwrap_or_default())
}

/// Notes a file that is about to be read. Where it cannot be, reading it tells.
pub(super) fn note_file(path: &Path) {
    note(path, |hasher| {
        let file = open_file(path).ok()?;
        hasher.update_reader(file).ok().map(drop)
    });
}

/// Notes an array that was read.
pub(super) fn note_numbers(path: &Path, numbers: &[f64]) {
    note(path, |hasher| {
        for number in numbers {
            hasher.update(&number.to_le_bytes());
        }
        Some(())
    });
}

/// Notes an array of names that was read.
pub(super) fn note_names(path: &Path, names: &[String]) {
    note(path, |hasher| {
        for name in names {
            hasher.update(&(name.len() as u64).to_le_bytes()).update(name.as_bytes());
        }
        Some(())
    });
}

fn note(path: &Path, read: impl FnOnce(&mut blake3::Hasher) -> Option<()>) {
    let path_shown = path.display().to_string();
    OPENED.with_borrow_mut(|opened| {
        let Some(opened) = opened else { return };
        if opened.iter().any(|seal| seal.path == path_shown) {
            return;
        }
        let mut hasher = blake3::Hasher::new();
        if read(&mut hasher).is_some() {
            let blake3 = hasher.finalize().to_hex().to_string();
            opened.push(TableSeal { path: path_shown, blake3 });
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_read_while_recording_is_noted_and_each_table_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("t.csv");
        std::fs::write(&path, "a,b\n").expect("is written");
        note_file(&path);
        let (seven, tables) = recorded(|| {
            note_file(&path);
            note_numbers(Path::new("ages.npy"), &[1.0, 2.0]);
            note_file(&path);
            note_file(&folder.path().join("absent.csv"));
            7
        });
        let seal = |path: &Path, bytes: &[u8]| TableSeal {
            path: path.display().to_string(),
            blake3: blake3::hash(bytes).to_hex().to_string(),
        };
        let numbers = [1.0_f64.to_le_bytes(), 2.0_f64.to_le_bytes()].concat();
        let expected = [seal(&path, b"a,b\n"), seal(Path::new("ages.npy"), &numbers)];
        assert_eq!((seven, tables.as_slice()), (7, &expected[..]));
        assert_eq!(recorded(|| ()).1, []);
    }
}
