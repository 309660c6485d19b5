//! Saves that take longer than the steps after them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::program::{Place, ended};
use super::support::Result;
use super::{Length, Scene, Table};
use crate::run::state::{LAST, SavedState, read_state};

/// Each operation on a new state takes so many milliseconds, and a save longer than a step.
pub(super) const SLOW: &str = "0 slow 15";

/// What a state holds but for times, by its folder's name.
fn states(run: &Path) -> BTreeMap<String, BTreeMap<String, Vec<u8>>> {
    let folders = std::fs::read_dir(run).expect("lists").map(|entry| entry.expect("lists").path());
    let states = folders.filter(|path| path.join("manifest.json").is_file()).map(|path| {
        let SavedState { mut files, .. } = read_state(&path).expect("is intact");
        files.remove("state.json");
        (path.file_name().expect("a name").to_string_lossy().into_owned(), files)
    });
    states.collect()
}

fn events(run: &Path) -> Vec<Value> {
    let lines = std::fs::read_to_string(run.join("metrics.jsonl")).expect("metrics");
    lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// How many saves are told behind a step that was taken after them.
fn told_later(events: &[Value]) -> usize {
    let step = |event: &Value| event["step"].as_u64().expect("a number");
    let is = |event: &Value, name: &str| event["event"] == name;
    let taken = |before: &[Value]| before.iter().filter(|e| is(e, "step")).map(step).max();
    let saves = events.iter().enumerate().filter(|(_, event)| is(event, "saved"));
    saves.filter(|(at, saved)| taken(&events[..*at]) > Some(step(saved))).count()
}

/// How many saves had been told when the last state was taken.
fn told_before_last(run: &Path) -> usize {
    let state = read_state(&run.join(LAST)).expect("is intact");
    let state: Value = serde_json::from_slice(&state.files["state.json"]).expect("JSON");
    let length = state["metrics_bytes"].as_u64().expect("a number") as usize;
    let lines = std::fs::read(run.join("metrics.jsonl")).expect("metrics");
    let lines = String::from_utf8_lossy(&lines[..length]).into_owned();
    lines.lines().filter(|line| line.contains("\"event\":\"saved\"")).count()
}

/// Every state has the bytes that it has where the disk is fast, and was told before the next was taken.
pub(super) fn whole_runs(scene: &Scene, table: &mut Table) {
    let Scene { place, whole, expected, .. } = scene;
    let tried = Length::of(2, 20, 0.05).each(1_000_000, |_| {
        place.clear();
        let ended = place.train(Some(SLOW));
        assert!(ended.status.success() && ended.struck, "{}", ended.told);
        Result::of(&place.run()).assert_equals(expected, "slow saves");
        assert!(states(&place.run()) == states(&whole.run()), "states differ");
        let events = events(&place.run());
        assert!(told_later(&events) > 0, "no step was taken beside a save");
        let saved = |event: &&Value| event["event"] == "saved";
        let steps: Vec<_> = events.iter().filter(saved).map(|event| &event["step"]).collect();
        let of_whole = self::events(&whole.run());
        let expected: Vec<_> = of_whole.iter().filter(saved).map(|event| &event["step"]).collect();
        assert_eq!(steps, expected, "saves that were told");
        assert_eq!(told_before_last(&place.run()), steps.len() - 1, "a save did not wait");
    });
    table.add("a run beside slow saves, its states compared", tried, "the same bits");
}

/// Waits until a state is being written.
fn is_saving(run: &Path, child: &mut Child) -> bool {
    let new: PathBuf = run.join(".saving-last");
    while !new.exists() {
        if child.try_wait().expect("can be asked").is_some() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

/// A signal that comes while a state is being written: it is saved, then that of the moment.
pub(super) fn signals(place: &Place, expected: &Result, table: &mut Table) {
    place.clear();
    let mut runs = 0;
    let tried = Length::of(6, 60, 0.05).each(1_000_000, |number| {
        let mut child = place.start(Some(SLOW));
        if !is_saving(&place.run(), &mut child) {
            let ended = ended(child);
            assert!(ended.status.success(), "{}", ended.told);
            Result::of(&place.run()).assert_equals(expected, "after signals");
            runs += 1;
            place.clear();
            return;
        }
        let (signal, code) = [(Signal::TERM, 143), (Signal::INT, 130)][number % 2];
        kill_process(Pid::from_child(&child), signal).expect("can be sent");
        let ended = ended(child);
        // The last save of a run may be under way, after which there is nothing to stop.
        assert!([Some(code), Some(0)].contains(&ended.status.code()), "{}", ended.told);
        let names = std::fs::read_dir(place.run()).expect("lists");
        let left = names.map(|entry| entry.expect("lists").file_name());
        let left: Vec<_> = left.filter(|n| n.to_string_lossy().starts_with(".saving")).collect();
        assert!(left.is_empty(), "{left:?} is left");
        let events = events(&place.run());
        let last = read_state(&place.run().join(LAST)).expect("is intact").tag;
        let told = events.iter().rev().find(|event| event["event"] == "saved").expect("was told");
        assert_eq!((&told["step"], &told["reason"]), (&last.step.into(), &last.reason.into()));
        if ended.status.code() == Some(0) {
            place.clear();
        }
    });
    place.assert_goes_on(expected, "after signals while it was saved");
    let came = format!("saved, and gone on with: {} runs ended with the same bits", runs + 1);
    table.add("SIGTERM or SIGINT while a state is written", tried, &came);
}
