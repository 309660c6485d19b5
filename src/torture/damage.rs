//! Files of a run folder, damaged.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::program::Place;
use super::support::Result;
use super::{Length, Table};
use crate::run::state::{SavedState, StateStore, read_state};
use crate::run::{FolderMode, RunFolder};

/// What is done to a file, at a byte of it.
const HARMS: [&str; 4] = ["flip", "cut", "extend", "swap"];

/// Damages the file at that byte; `other` is another file of the same name.
fn harm(path: &Path, how: usize, at: usize, other: &[u8]) -> Option<()> {
    let mut bytes = fs::read(path).expect("reads");
    match HARMS[how] {
        "flip" => *bytes.get_mut(at)? ^= 1 << (at % 8),
        "cut" => bytes.truncate(at),
        "extend" => bytes.push(at as u8),
        _ => bytes = (other != bytes).then(|| other.to_vec())?,
    }
    fs::write(path, bytes).expect("writes");
    Some(())
}

/// Every byte of every file of the saved states: the state is used as it was saved, or told as damaged and the
/// one before it used as it was saved.
pub(super) fn of_states(place: &Place, length: Length, table: &mut Table) {
    let run = place.run();
    let folders: Vec<PathBuf> = fs::read_dir(&run)
        .expect("lists")
        .map(|entry| entry.expect("lists").path())
        .filter(|path| path.join("manifest.json").is_file())
        .collect();
    let saved: BTreeMap<PathBuf, SavedState> = folders
        .into_iter()
        .map(|folder| (folder.clone(), read_state(&folder).expect("is intact")))
        .collect();
    let files: Vec<PathBuf> = saved
        .keys()
        .flat_map(|folder| {
            fs::read_dir(folder).expect("lists").map(|entry| entry.expect("lists").path())
        })
        .collect();
    // A flip and a cut at every byte, and the two others once for each file.
    let mut places: Vec<(usize, usize, usize)> = Vec::new();
    for (file, path) in files.iter().enumerate() {
        let bytes = fs::metadata(path).expect("is there").len() as usize;
        places.extend((0..bytes).flat_map(|at| [(file, 0, at), (file, 1, at)]));
        places.extend([(file, 2, 0), (file, 3, 0)]);
    }
    let (mut told, all) = (0, places.len());
    let tried = length.each(all, |number| {
        let (file, how, at) = places[number];
        let path = &files[file];
        let before = fs::read(path).expect("reads");
        let other =
            files.iter().find(|other| *other != path && other.file_name() == path.file_name());
        let other = other.map_or_else(Vec::new, |other| fs::read(other).expect("reads"));
        if harm(path, how, at, &other).is_some() {
            let case = format!("{} of {} at byte {at}", HARMS[how], path.display());
            told += usize::from(is_told(&run, path, &saved, &case));
            fs::write(path, before).expect("writes");
        }
    });
    let what = format!(
        "damage to the saved states of a run, out of {all}: a bit of each byte flipped, each file cut at each byte, extended, exchanged"
    );
    let came = format!(
        "{told} told by name, and the state before used; {} in what is not needed",
        tried - told
    );
    table.add(&what, tried, &came);
}

/// Whether damage to the file at `path` is told. What is used is as it was saved in any case.
fn is_told(run: &Path, path: &Path, saved: &BTreeMap<PathBuf, SavedState>, case: &str) -> bool {
    let folder = RunFolder::create(run, FolderMode::Resume).expect("opens");
    let mut store = StateStore::open(folder.lock(), 2).expect("opens");
    let found = store.newest().unwrap_or_else(|error| panic!("{case}: {error}")).expect("is there");
    assert!(saved.get(&found.state.folder) == Some(&found.state), "{case}: is not as saved");
    let told = found.damaged.iter().any(|damage| path.starts_with(&damage.folder));
    let newest = saved.values().map(|state| state.tag.order()).max();
    assert!(
        told || Some(found.state.tag.order()) == newest,
        "{case}: is passed over without a word"
    );
    told
}

/// The configuration and the split: the run ends as it would have, or says what is wrong.
pub(super) fn of_other_files(
    place: &Place,
    expected: &Result,
    operation: usize,
    table: &mut Table,
) {
    const FILES: [&str; 3] = ["config.toml", "split.csv", ".labels"];
    place.clear();
    // In the middle of the run.
    place.train(Some(&format!("{operation} signal")));
    let run = place.run();
    let kept = place.folder.join("kept");
    copy(&run, &kept);
    let bytes = FILES.map(|file| fs::read(run.join(file)).expect("reads").len());
    let mut told = 0;
    let tried = Length::of(12, 2000, 0.1).each(2 * bytes.iter().sum::<usize>(), |number| {
        let (mut at, how) = (number / 2, number % 2);
        let file = bytes.iter().position(|length| {
            let is_here = at < *length;
            at -= if is_here { 0 } else { *length };
            is_here
        });
        let name = FILES[file.expect("is in one of them")];
        fs::remove_dir_all(&run).expect("is removed");
        copy(&kept, &run);
        harm(&run.join(name), how, at, &[]).expect("is damaged");
        let case = format!("{} of {name} at byte {at}", HARMS[how]);
        let ended = place.train(None);
        let defect = ["panicked", "defect"].iter().any(|word| ended.told.contains(word));
        assert!(!defect && ended.status.code().is_some(), "{case}: {}", ended.told);
        match ended.status.success() {
            true => Result::of(&run).assert_equals(expected, &case),
            false => told += 1,
        }
    });
    fs::remove_dir_all(kept).expect("is removed");
    let came = format!("{told} ended with a message, {} with the same bits", tried - told);
    table.add(
        "damage to `config.toml`, `split.csv` and `.labels`: a bit flipped, cut",
        tried,
        &came,
    );
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("makes");
    for entry in fs::read_dir(from).expect("lists") {
        let (path, target) =
            entry.map(|entry| (entry.path(), to.join(entry.file_name()))).expect("lists");
        match path.is_dir() {
            true => copy(&path, &target),
            false => drop(fs::copy(path, target).expect("copies")),
        }
    }
}
