//! Kills and full disks at every operation, and damage to every file.

use std::fs;
use std::path::Path;

use super::*;
use crate::disk::crash::scratch;
use crate::disk::watch::{DiskFault, ENOSPC, ERRORS, Watch};

fn tag(step: u64) -> StateTag {
    StateTag { epoch: step / 10, step, batch: step % 10, reason: "test".to_owned() }
}

/// Different for every step, so that contents tell states apart.
fn files(step: u64) -> Vec<(String, Vec<u8>)> {
    let bytes = |salt: u8| (0..50).map(|i| (step as u8).wrapping_mul(31) ^ i ^ salt).collect();
    vec![("weights.safetensors".to_owned(), bytes(0)), ("optimizer.json".to_owned(), bytes(1))]
}

fn store(folder: &Path, keep: usize) -> StateStore {
    StateStore::over(folder, keep).expect("opens")
}

fn save(store: &mut StateStore, step: u64, is_best: bool) {
    let saved = store.save(&tag(step), &files(step), is_best).expect("saves");
    assert!(saved.not_removed.is_none(), "{:?}", saved.not_removed);
}

fn assert_is(state: &SavedState, step: u64) {
    assert_eq!(state.tag, tag(step));
    assert_eq!(state.files, files(step).into_iter().collect());
}

fn newest(store: &mut StateStore) -> Resumable {
    store.newest().expect("is usable").expect("was saved")
}

fn folders(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("lists");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("lists").file_name().into_string().expect("UTF-8"))
        .collect();
    names.sort();
    names
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("makes");
    for entry in fs::read_dir(from).expect("lists") {
        let entry = entry.expect("lists");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("copies");
        }
    }
}

#[test]
fn a_run_keeps_last_best_and_the_newest_few_before() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = store(folder.path(), 2);
    assert_eq!(store.newest().expect("reads"), None);
    for step in 1..=5 {
        save(&mut store, step, step == 2);
    }
    assert_eq!(folders(folder.path()), ["best", "last", "step-00000003", "step-00000004"]);
    let newest = newest(&mut store);
    assert_is(&newest.state, 5);
    assert_eq!(newest.damaged, []);
    assert_is(&store.best().expect("reads").expect("is there"), 2);
}

#[test]
fn states_of_the_same_step_are_all_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = store(folder.path(), 3);
    for batch in 0..4 {
        let tag = StateTag { batch, ..tag(7) };
        store.save(&tag, &files(7), false).expect("saves");
    }
    let names = ["last", "step-00000007", "step-00000007-2", "step-00000007-3"];
    assert_eq!(folders(folder.path()), names);
    assert_eq!(newest(&mut store).state.tag.batch, 3);
}

/// What was there before a save that is cut off: steps saved, and which of them was the best.
#[derive(Debug, Clone, Copy)]
struct Before {
    saved: u64,
    best: Option<u64>,
    last_damaged: bool,
}

impl Before {
    fn make(self, folder: &Path) {
        let mut store = store(folder, 2);
        for step in 1..=self.saved {
            save(&mut store, step, Some(step) == self.best);
        }
        if self.last_damaged {
            fs::write(folder.join(LAST).join("optimizer.json"), "short").expect("writes");
        }
    }

    /// The newest usable state is that of before or the new one, `best` goes with it, and saving
    /// goes on.
    fn assert_survived(self, folder: &Path, new: u64, is_best: bool, context: &str) -> u64 {
        let mut store =
            StateStore::over(folder, 2).unwrap_or_else(|error| panic!("{context}: {error}"));
        let old = self.saved - u64::from(self.last_damaged);
        let found = store.newest().unwrap_or_else(|error| panic!("{context}: {error}"));
        let step = found.as_ref().map_or(0, |found| found.state.tag.step);
        assert!(step == old || step == new, "{context}: found step {step}");
        if let Some(found) = &found {
            assert_is(&found.state, step);
            let is_last = found.state.folder == folder.join(LAST);
            assert!(is_last || self.last_damaged, "{context}: {:?}", found.state.folder);
            assert!(found.damaged.is_empty() || self.last_damaged, "{context}: {found:?}");
        }
        let best = store.best().unwrap_or_else(|error| panic!("{context}: {error}"));
        let wanted = if step == new && is_best { Some(new) } else { self.best };
        assert_eq!(best.as_ref().map(|best| best.tag.step), wanted, "{context}");
        if let Some(best) = &best {
            assert_is(best, best.tag.step);
        }
        let leftover = folders(folder).into_iter().find(|name| name.starts_with('.'));
        assert_eq!(leftover, None, "{context}");

        save(&mut store, new + 1, true);
        assert_is(&newest(&mut store).state, new + 1);
        assert_is(&store.best().expect("reads").expect("is there"), new + 1);
        step
    }
}

const BEFORES: [Before; 5] = [
    Before { saved: 0, best: None, last_damaged: false },
    Before { saved: 1, best: None, last_damaged: false },
    Before { saved: 1, best: Some(1), last_damaged: false },
    Before { saved: 5, best: Some(3), last_damaged: false },
    Before { saved: 3, best: Some(2), last_damaged: true },
];

/// Saves once for every operation of the save, with the fault there; returns how many there were.
fn with_a_fault_at_every_operation(before: Before, is_best: bool, fault: DiskFault) -> usize {
    let made = scratch();
    before.make(made.path());
    let new = before.saved + 1;
    let mut outcomes = BTreeSet::new();
    for operation in 0.. {
        let context = format!("{before:?}, best {is_best}, {fault:?} at operation {operation}");
        let folder = scratch();
        copy(made.path(), folder.path());
        let mut store = store(folder.path(), 2);
        let disk = Watch::over(folder.path());
        disk.strike_after(operation, fault);
        let result = store.save(&tag(new), &files(new), is_best);
        let struck = disk.struck();
        drop(disk);
        if result.is_err() {
            // The same process may try again once the disk is back.
            let again = scratch();
            copy(folder.path(), again.path());
            store.folder = again.path().to_owned();
            save(&mut store, new, is_best);
            before.assert_survived(again.path(), new, is_best, &context);
        }
        drop(store);
        let step = before.assert_survived(folder.path(), new, is_best, &context);
        if result.is_ok() {
            assert_eq!(step, new, "{context}: a save that reports success is there");
        }
        outcomes.insert(step);
        if !struck {
            assert!(outcomes.len() == 2, "both outcomes occur: {outcomes:?}");
            return operation;
        }
    }
    unreachable!("the save ends")
}

#[test]
fn a_kill_at_any_operation_of_a_save_leaves_the_old_or_the_new_state() {
    for before in BEFORES {
        for is_best in [false, true] {
            let operations = with_a_fault_at_every_operation(before, is_best, DiskFault::Killed);
            assert!(operations > 10, "{operations}");
        }
    }
}

#[test]
fn an_error_at_any_operation_of_a_save_leaves_the_old_or_the_new_state() {
    for before in BEFORES {
        for is_best in [false, true] {
            for error in ERRORS {
                with_a_fault_at_every_operation(before, is_best, DiskFault::Refused(error));
            }
            with_a_fault_at_every_operation(before, is_best, DiskFault::Broken(ENOSPC));
        }
    }
}

#[test]
fn a_disk_full_at_any_byte_of_a_save_leaves_the_old_or_the_new_state() {
    let before = BEFORES[3];
    let made = scratch();
    before.make(made.path());
    let mut refused = 0;
    for room in 0.. {
        let context = format!("room for {room} bytes");
        let folder = scratch();
        copy(made.path(), folder.path());
        let mut store = store(folder.path(), 2);
        let disk = Watch::over(folder.path());
        disk.strike_after(0, DiskFault::Room(room));
        let result = store.save(&tag(6), &files(6), true);
        drop(disk);
        let step = before.assert_survived(folder.path(), 6, true, &context);
        match result {
            Ok(_) => {
                assert_eq!(step, 6, "{context}");
                assert!(refused > 1000, "{refused}");
                return;
            }
            Err(error) => {
                assert!(error.to_string().contains("Free space on that disk"), "{error}");
                refused += 1;
            }
        }
    }
}

#[test]
fn a_kill_while_a_killed_save_is_tidied_up_is_tidied_up_as_well() {
    let before = BEFORES[3];
    let made = tempfile::tempdir().expect("a folder");
    before.make(made.path());
    let new = before.saved + 1;
    let mut second_kills = 0;
    for operation in 0.. {
        let killed = scratch();
        copy(made.path(), killed.path());
        let mut store = store(killed.path(), 2);
        let disk = Watch::over(killed.path());
        disk.strike_after(operation, DiskFault::Killed);
        let _ = store.save(&tag(new), &files(new), true);
        if !disk.struck() {
            assert!(second_kills > 100, "{second_kills}");
            return;
        }
        for second in 0.. {
            let folder = scratch();
            copy(killed.path(), folder.path());
            let disk = Watch::over(folder.path());
            disk.strike_after(second, DiskFault::Killed);
            let tidied = StateStore::over(folder.path(), 2);
            drop(disk);
            let context = format!("killed at {operation}, and again at {second}");
            before.assert_survived(folder.path(), new, true, &context);
            if tidied.is_ok() {
                break;
            }
            second_kills += 1;
        }
    }
}

#[test]
fn a_full_disk_is_named_with_what_to_do_and_nothing_is_lost() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = store(folder.path(), 2);
    save(&mut store, 1, true);
    let before = folders(folder.path());
    let disk = Watch::over(folder.path());
    disk.strike_after(3, DiskFault::Refused(ENOSPC));
    let error = store.save(&tag(2), &files(2), true).expect_err("is full");
    let message = error.to_string();
    assert!(message.contains("weights.safetensors: No space left on device"), "{message}");
    assert!(message.contains("Free space on that disk"), "{message}");
    assert_eq!(error.exit_code(), 1);
    assert_eq!(folders(folder.path()), before, "the space is given back");
}

type Harm = fn(&Path);

/// Ways to damage a file, each of which changes what it says.
const HARMS: [(&str, Harm); 4] = [
    ("flip", |file| {
        let mut bytes = fs::read(file).expect("reads");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(file, bytes).expect("writes");
    }),
    ("truncate", |file| {
        let bytes = fs::read(file).expect("reads");
        fs::write(file, &bytes[..bytes.len() - 2]).expect("writes");
    }),
    ("empty", |file| fs::write(file, "").expect("writes")),
    ("delete", |file| fs::remove_file(file).expect("removes")),
];

#[test]
fn damage_to_any_file_is_refused_by_name_and_the_state_before_is_used() {
    for name in ["manifest.json", "weights.safetensors", "optimizer.json"] {
        for (harm, damage) in HARMS {
            let folder = tempfile::tempdir().expect("a folder");
            let mut store = store(folder.path(), 2);
            for step in 1..=3 {
                save(&mut store, step, false);
            }
            damage(&folder.path().join(LAST).join(name));
            let found = newest(&mut store);
            assert_is(&found.state, 2);
            let [reported] = found.damaged.as_slice() else {
                panic!("{harm} of {name}: {:?}", found.damaged)
            };
            assert_eq!(reported.folder, folder.path().join(LAST));
            assert_eq!(reported.file, name);

            // Going on sets the damaged one aside and counts it for nothing.
            save(&mut store, 4, false);
            let names = ["damaged-last", "last", "step-00000001", "step-00000002"];
            assert_eq!(folders(folder.path()), names, "{harm} of {name}");
            assert_eq!(newest(&mut store).damaged, []);
        }
    }
}

#[test]
fn a_damaged_best_is_reported_though_the_newest_is_intact() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = store(folder.path(), 2);
    save(&mut store, 1, true);
    save(&mut store, 2, false);
    (HARMS[0].1)(&folder.path().join(BEST).join("weights.safetensors"));
    let found = newest(&mut store);
    assert_is(&found.state, 2);
    assert_eq!(found.damaged.len(), 1);
    let error = store.best().expect_err("is damaged");
    assert!(error.to_string().contains("weights.safetensors is damaged"), "{error}");
    assert_eq!(error.exit_code(), 5);
}

#[test]
fn best_is_used_when_everything_newer_is_damaged() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = store(folder.path(), 1);
    for step in 1..=3 {
        save(&mut store, step, step == 1);
    }
    for name in [LAST, "step-00000002"] {
        (HARMS[0].1)(&folder.path().join(name).join("optimizer.json"));
    }
    let found = newest(&mut store);
    assert_is(&found.state, 1);
    assert_eq!(found.damaged.len(), 2);
}

#[test]
fn with_no_intact_state_every_fault_is_listed() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = store(folder.path(), 2);
    for step in 1..=3 {
        save(&mut store, step, false);
    }
    fs::remove_file(folder.path().join("last/optimizer.json")).expect("removes");
    fs::write(folder.path().join("step-00000002/manifest.json"), "{").expect("writes");
    (HARMS[0].1)(&folder.path().join("step-00000001/weights.safetensors"));
    let error = store.newest().expect_err("nothing is intact");
    assert_eq!(error.exit_code(), 5);
    let message = error.to_string();
    for part in [
        "last/optimizer.json is missing",
        "step-00000002/manifest.json is damaged",
        "step-00000001/weights.safetensors is damaged (its contents do not match",
        "--overwrite",
    ] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn pruning_never_counts_a_damaged_state_as_one_to_fall_back_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = store(folder.path(), 2);
    for step in 1..=3 {
        save(&mut store, step, false);
    }
    (HARMS[1].1)(&folder.path().join("step-00000002/weights.safetensors"));
    save(&mut store, 4, false);
    assert_eq!(folders(folder.path()), ["last", "step-00000001", "step-00000003"]);
}

#[test]
fn a_damaged_state_goes_once_there_are_enough_sound_ones() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = store(folder.path(), 3);
    for step in 1..=3 {
        save(&mut store, step, false);
    }
    (HARMS[1].1)(&folder.path().join("step-00000001/weights.safetensors"));
    save(&mut store, 4, false);
    let older = ["step-00000001", "step-00000002", "step-00000003"];
    assert_eq!(folders(folder.path())[1..], older);
    save(&mut store, 5, false);
    let older = ["step-00000002", "step-00000003", "step-00000004"];
    assert_eq!(folders(folder.path())[1..], older);
}

#[test]
fn the_old_best_comes_back_when_the_new_one_is_damaged_before_it_is_in_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = store(folder.path(), 2);
    save(&mut store, 1, true);
    save(&mut store, 2, false);
    let at = |name: &str| folder.path().join(name);
    fs::rename(at(BEST), at(OLD_BEST)).expect("renames");
    copy(&at(LAST), &at(NEW_BEST));
    (HARMS[0].1)(&at(NEW_BEST).join("weights.safetensors"));
    store.recover().expect("recovers");
    assert_is(&store.best().expect("reads").expect("is there"), 1);
    assert_eq!(folders(folder.path()), ["best", "last", "step-00000001"]);
}

#[test]
fn names_that_are_no_plain_files_are_refused_before_anything_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = store(folder.path(), 2);
    for name in ["../config.toml", MANIFEST, "a/b", ""] {
        let error = store.save(&tag(1), &[(name.to_owned(), vec![])], false);
        assert!(matches!(error, Err(StateError::Name { .. })), "{name:?}");
    }
    let twice = [("a".to_owned(), vec![1]), ("a".to_owned(), vec![2])];
    assert!(matches!(store.save(&tag(1), &twice, false), Err(StateError::Name { .. })));
    assert_eq!(folders(folder.path()), Vec::<String>::new());
}

#[cfg(unix)]
#[test]
fn a_folder_that_cannot_be_written_says_what_to_do() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = store(folder.path(), 2);
    save(&mut store, 1, false);
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o500)).expect("sets");
    let result = store.save(&tag(2), &files(2), false);
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).expect("sets");
    match result {
        Err(error) => assert!(error.to_string().contains("writable for this user"), "{error}"),
        // The superuser may write anywhere; what is saved must then be there.
        Ok(_) => assert_is(&newest(&mut store).state, 2),
    }
}

#[test]
fn a_valid_older_state_in_the_place_of_last_hides_no_newer_one() {
    for only_manifest in [true, false] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut first = store(folder.path(), 3);
        for step in 1..=4 {
            save(&mut first, step, step == 2);
        }
        let (older, last) = (folder.path().join("step-00000001"), folder.path().join(LAST));
        match only_manifest {
            true => drop(fs::copy(older.join(MANIFEST), last.join(MANIFEST)).expect("copies")),
            false => copy(&older, &last),
        }
        let mut store = store(folder.path(), 3);
        let found = newest(&mut store);
        assert_is(&found.state, 3);
        let told: Vec<String> = found.damaged.iter().map(ToString::to_string).collect();
        assert_eq!(told.len(), 1, "{told:?}");
        let expected = "is that of step 1, older than step-00000003 of step 3, and was put there";
        assert!(told[0].ends_with(expected), "{told:?}");
        // It is set aside, and saving goes on.
        save(&mut store, 4, false);
        assert_is(&newest(&mut store).state, 4);
        assert!(folder.path().join(DAMAGED_LAST).is_dir());
    }
}

#[cfg(unix)]
#[test]
fn what_cannot_be_read_is_not_taken_for_damage() {
    // A link to itself can be read by no one, not even by root.
    let unreadable = |path: &Path| {
        let bytes = fs::read(path).expect("reads");
        fs::remove_file(path).expect("is removed");
        std::os::unix::fs::symlink(path, path).expect("is linked");
        bytes
    };
    for file in [MANIFEST, "weights.safetensors"] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut first = store(folder.path(), 2);
        save(&mut first, 1, false);
        save(&mut first, 2, true);
        let path = folder.path().join(LAST).join(file);
        let bytes = unreadable(&path);
        let mut store = store(folder.path(), 2);
        let error = store.newest().expect_err("is not passed over");
        assert!(matches!(error, StateError::Unread { .. }), "{file}: {error}");
        assert_eq!(error.exit_code(), 5);
        assert!(error.to_string().contains("cannot be read ("), "{file}: {error}");
        fs::remove_file(&path).expect("is removed");
        fs::write(&path, bytes).expect("writes");
        assert_is(&newest(&mut store).state, 2);
        // Further back it is told, as damage is.
        unreadable(&folder.path().join(BEST).join(file));
        let found = newest(&mut store);
        assert_is(&found.state, 2);
        assert_eq!(found.damaged.len(), 1, "{file}");
    }
}

#[cfg(unix)]
#[test]
fn a_new_last_that_cannot_be_read_is_not_thrown_away() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut first = store(folder.path(), 2);
    save(&mut first, 1, false);
    save(&mut first, 2, false);
    // As a kill between the two renames leaves it.
    fs::rename(folder.path().join(LAST), folder.path().join(NEW_LAST)).expect("renames");
    let weights = folder.path().join(NEW_LAST).join("weights.safetensors");
    let aside = folder.path().join("aside");
    fs::rename(&weights, &aside).expect("renames");
    std::os::unix::fs::symlink(&weights, &weights).expect("is linked");
    let error = StateStore::over(folder.path(), 2).expect_err("is refused");
    assert!(matches!(error, StateError::Unread { .. }), "{error}");
    fs::rename(&aside, &weights).expect("renames");
    let mut store = store(folder.path(), 2);
    assert_is(&newest(&mut store).state, 2);
}

#[test]
fn a_pipe_in_the_place_of_a_file_is_damage_and_is_not_waited_for() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    for file in [MANIFEST, "weights.safetensors"] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut first = store(folder.path(), 2);
        save(&mut first, 1, false);
        save(&mut first, 2, false);
        let path = folder.path().join(LAST).join(file);
        fs::remove_file(&path).expect("is removed");
        mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).expect("is made");
        let found = newest(&mut store(folder.path(), 2));
        assert_is(&found.state, 1);
        assert!(found.damaged[0].fault.contains("is no file"), "{:?}", found.damaged);
    }
}

/// Each folder is made and its name brought to the disk, in the folder above: two operations.
#[test]
fn the_names_of_new_folders_are_on_the_disk_in_the_folder_above() {
    for above in [&["runs"][..], &["runs", "a", "b"]] {
        let mut operations = 0;
        loop {
            let parent = tempfile::tempdir().expect("a folder");
            let path: std::path::PathBuf = above.iter().collect();
            let path = parent.path().join(path);
            let watch = Watch::over(parent.path());
            watch.strike_after(operations, DiskFault::Killed);
            if disk::create_folders(&path).is_ok() {
                assert!(path.is_dir());
                break;
            }
            let begun = above.iter().scan(parent.path().to_owned(), |path, name| {
                path.push(name);
                Some(path.is_dir())
            });
            // A folder is begun only when the one above is on the disk.
            assert_eq!(begun.filter(|made| *made).count(), operations.div_ceil(2));
            operations += 1;
        }
        assert_eq!(operations, 2 * above.len());
    }
}
