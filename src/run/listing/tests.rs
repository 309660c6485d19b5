use std::collections::BTreeMap;

use super::*;
use crate::report::{End, Epoch, EpochValues, Event, Start};
use crate::run::lock::RunLock;
use crate::run::state::{LAST, StateStore, StateTag};

fn start(epochs: usize) -> Event {
    Event::Start(Start { name: "xray".to_owned(), epochs, ..Start::default() })
}

fn epoch(epoch: usize, best: f64, best_epoch: usize) -> Event {
    let metric = "val/findings/auroc".to_owned();
    let (value, best, best_epoch) = (Some(0.5), Some(best), Some(best_epoch));
    let watched = Some(Watched { metric, value, best, best_epoch });
    Event::Epoch(Epoch { epoch, watched, ..Epoch::default() })
}

fn end(epochs: usize, reason: EndReason) -> Event {
    let (last, undefined) = (EpochValues::default(), BTreeMap::new());
    let (best, weights, next) = (None, None, Vec::new());
    Event::End(End { epochs, step: 9, seconds: 1.0, reason, best, last, undefined, weights, next })
}

fn interrupted() -> Event {
    Event::Interrupted { signal: "SIGINT".to_owned() }
}

/// A run folder `name` in `parent` in which these events were told.
fn told(parent: &Path, name: &str, events: &[Event]) -> PathBuf {
    let folder = parent.join(name);
    fs::create_dir_all(&folder).expect("is made");
    fs::write(folder.join(CONFIG_FILE), "[run]\nname = \"xray\"\n").expect("is written");
    let line = |event: &Event| serde_json::to_string(event).expect("JSON") + "\n";
    let lines: String = events.iter().map(line).collect();
    fs::write(folder.join(METRICS_FILE), lines).expect("is written");
    folder
}

fn save(folder: &Path) {
    let lock = RunLock::acquire(folder).expect("is free");
    let tag = StateTag { epoch: 1, step: 2, batch: 0, reason: "epoch_end".to_owned() };
    let mut store = StateStore::open(&lock, 2).expect("opens");
    store.save(&tag, &[("weights".to_owned(), vec![1; 100])], false).expect("is saved");
}

fn only(folder: &Path) -> ListedRun {
    let mut runs = list_runs(folder).expect("is read");
    assert_eq!(runs.len(), 1, "{runs:?}");
    runs.remove(0)
}

fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).expect("is read") {
        let path = entry.expect("is read").path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => drop(found.insert(path.clone(), fs::read(&path).expect("is read"))),
        }
    }
    found
}

#[test]
fn a_run_is_what_it_told_last_and_what_it_saved() {
    use ListedState::{Done, Failed, Interrupted, NoState, StoppedEarly};
    let (begin, first) = (start(5), epoch(1, 0.7, 1));
    let early = end(2, EndReason::EarlyStopping);
    let done = end(5, EndReason::Epochs);
    let cases: [(&[Event], ListedState, ListedState, usize); 7] = [
        (&[], NoState, Failed, 0),
        (std::slice::from_ref(&begin), NoState, Failed, 0),
        (&[begin.clone(), first.clone()], NoState, Failed, 1),
        (&[begin.clone(), first.clone(), interrupted()], NoState, Interrupted, 1),
        (&[begin.clone(), first.clone(), early.clone()], StoppedEarly, StoppedEarly, 2),
        (&[begin.clone(), first.clone(), done.clone()], Done, Done, 5),
        // Resumed, and killed then.
        (&[begin.clone(), first, early, start(9), epoch(3, 0.7, 1)], NoState, Failed, 3),
    ];
    for (events, unsaved, saved, epochs) in cases {
        let parent = tempfile::tempdir().expect("a folder");
        let folder = told(parent.path(), "a", events);
        let run = only(parent.path());
        assert_eq!((run.state, run.epochs_done), (unsaved, epochs), "{events:?}");
        save(&folder);
        assert_eq!(only(&folder).state, saved, "{events:?}");
        assert_eq!(only(&folder).problem, None);
    }
}

#[test]
fn the_best_value_epochs_and_size_are_those_of_the_folder() {
    let parent = tempfile::tempdir().expect("a folder");
    let folder = told(parent.path(), "a", &[start(5), epoch(1, 0.7, 1), epoch(2, 0.75, 2)]);
    save(&folder);
    let run = only(parent.path());
    assert_eq!((run.name.as_deref(), run.epochs_done, run.epochs), (Some("xray"), 2, Some(5)));
    assert_eq!(run.metric.as_deref(), Some("val/findings/auroc"));
    assert_eq!((run.best, run.best_epoch), (Some(0.75), Some(2)));
    let bytes: usize = files(&folder).values().map(Vec::len).sum();
    assert_eq!(run.bytes, bytes as u64);
    let about = fs::metadata(folder.join(METRICS_FILE)).and_then(|about| about.modified());
    let then = about.expect("a time").duration_since(UNIX_EPOCH).expect("after 1970");
    assert_eq!(run.modified, Some(then.as_secs()));
}

#[test]
fn a_folder_whose_lock_is_held_is_running_and_listing_changes_nothing() {
    let parent = tempfile::tempdir().expect("a folder");
    let folder = told(parent.path(), "a", &[start(5), interrupted()]);
    let lock = RunLock::acquire(&folder).expect("is free");
    let before = files(&folder);
    assert_eq!(only(parent.path()).state, ListedState::Running);
    drop(lock);
    assert_eq!(only(parent.path()).state, ListedState::NoState);
    assert_eq!(files(&folder), before);
    drop(RunLock::acquire(&folder).expect("no lock is left behind"));
}

#[test]
fn runs_of_a_sweep_are_found_and_what_is_no_run_is_not() {
    let parent = tempfile::tempdir().expect("a folder");
    for name in [
        "b",
        "a",
        "x-sweep/runs/lr-1",
        "x-sweep/runs/lr-2",
        "y-sweep/runs/lr/fold-1",
        "1/2/3/4/too-deep",
    ] {
        told(parent.path(), name, &[start(5)]);
    }
    fs::write(parent.path().join("x-sweep/.lock"), "").expect("is written");
    fs::create_dir(parent.path().join("pictures")).expect("is made");
    fs::write(parent.path().join("metrics.jsonl.txt"), "mine").expect("is written");
    let site = parent.path().join("site");
    fs::create_dir(&site).expect("is made");
    fs::write(site.join(CONFIG_FILE), "baseURL = \"https://example.org\"\n").expect("is written");
    let runs = list_runs(parent.path()).expect("is read");
    let names: Vec<_> =
        runs.iter().map(|run| run.folder.strip_prefix(parent.path()).expect("below")).collect();
    let expected = ["a", "b", "x-sweep/runs/lr-1", "x-sweep/runs/lr-2", "y-sweep/runs/lr/fold-1"];
    assert_eq!(names, expected.map(Path::new));
}

#[test]
fn a_torn_last_line_is_left_out_and_any_other_that_is_no_event_is_named() {
    let parent = tempfile::tempdir().expect("a folder");
    let folder = told(parent.path(), "a", &[start(5), epoch(1, 0.7, 1), epoch(2, 0.7, 1)]);
    let path = folder.join(METRICS_FILE);
    let whole = fs::read(&path).expect("is read");
    fs::write(&path, &whole[..whole.len() - 2]).expect("is written");
    let run = only(parent.path());
    assert_eq!((run.epochs_done, run.problem), (1, None));
    for (lines, line) in [
        (&b"\xff\xfe\0\0\n"[..], 1),
        (b"{\"event\":\"later\",\"new\":[1]}\n[]\n", 2),
        (b"{\"event\":\"epoch\",\"epoch\":-3}\n", 1),
        (b"{\"event\":\"end\",\"epochs\":1e300,\"reason\":\"epochs\"}\n", 1),
        (b"{\"event\":\"start\",\"name\":7,\"epochs\":1}\n", 1),
        (b"\n", 1),
    ] {
        fs::write(&path, lines).expect("is written");
        let run = only(parent.path());
        assert_eq!(run.state, ListedState::Unreadable, "{lines:?}");
        let problem = run.problem.expect("a reason");
        assert!(problem.starts_with(&format!("line {line} of metrics.jsonl")), "{problem}");
    }
}

#[test]
fn a_line_without_end_is_not_read_into_memory() {
    let parent = tempfile::tempdir().expect("a folder");
    let folder = told(parent.path(), "a", &[]);
    let file = File::options().write(true).open(folder.join(METRICS_FILE)).expect("opens");
    file.set_len(1 << 40).expect("a file with holes takes no room");
    let run = only(parent.path());
    assert_eq!(run.problem.as_deref(), Some("line 1 of metrics.jsonl is too long"));
}

#[cfg(unix)]
#[test]
fn pipes_folders_and_links_in_place_of_files_are_reasons_and_nothing_waits() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::os::unix::fs::symlink;

    type Change<'a> = &'a dyn Fn(&Path);

    let pipe = |path: &Path| {
        let _ = fs::remove_file(path);
        mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("is made");
    };
    let parent = tempfile::tempdir().expect("a folder");
    let problem = |name: &str, change: Change<'_>| {
        let folder = told(parent.path(), name, &[start(5), interrupted()]);
        save(&folder);
        change(&folder);
        let run = only(&folder);
        (run.state, run.problem.expect(name))
    };
    let metrics = |folder: &Path| folder.join(METRICS_FILE);
    let cases: [(&str, Change<'_>); 5] = [
        ("metrics pipe", &|folder| pipe(&metrics(folder))),
        ("metrics folder", &|folder| {
            fs::remove_file(metrics(folder)).expect("is there");
            fs::create_dir(metrics(folder)).expect("is made");
        }),
        ("metrics link to itself", &|folder| {
            fs::remove_file(metrics(folder)).expect("is there");
            symlink(METRICS_FILE, metrics(folder)).expect("is made");
        }),
        ("lock pipe", &|folder| pipe(&folder.join(LOCK_FILE))),
        ("manifest pipe", &|folder| pipe(&folder.join(LAST).join("manifest.json"))),
    ];
    for (name, change) in cases {
        let (state, problem) = problem(name, change);
        let readable = name == "lock pipe" || name == "manifest pipe";
        let expected = if readable { ListedState::Interrupted } else { ListedState::Unreadable };
        assert_eq!(state, expected, "{name}: {problem}");
    }
}

#[test]
fn a_damaged_state_is_said() {
    let parent = tempfile::tempdir().expect("a folder");
    let folder = told(parent.path(), "a", &[start(5), interrupted()]);
    save(&folder);
    fs::write(folder.join(LAST).join("weights"), "short").expect("is written");
    let problem = only(parent.path()).problem.expect("a reason");
    assert!(
        problem.contains("weights is damaged (it has 5 bytes, and 100 were saved)"),
        "{problem}"
    );
}
