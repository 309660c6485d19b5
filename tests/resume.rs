//! A run that is interrupted and resumed ends as one that never stopped, wherever it was cut.

mod support;

#[path = "resume/devices.rs"]
mod devices;
#[path = "resume/memory.rs"]
mod memory;
#[path = "resume/precision.rs"]
mod precision;

use std::path::Path;

use support::Result;
use trainer::build::{BuildError, Options, build};
use trainer::report::{Event, Phase, Report, ReportError, SaveReason};
use trainer::run::{FolderMode, Outcome, Run, Signal, Stop};

/// What the cut looks like to the run.
#[derive(Debug, Clone, Copy)]
enum Cut {
    /// The process is gone: nothing more is saved.
    Kill,
    /// A signal asks it to save and stop.
    Ask(Signal),
}

/// Cuts a run at the event numbered `at` among those that `here` accepts.
struct Cutter {
    here: fn(&Event) -> bool,
    at: usize,
    cut: Cut,
    stop: Stop,
}

impl Report for Cutter {
    fn event(&mut self, event: &Event) -> std::result::Result<(), ReportError> {
        if !(self.here)(event) {
            return Ok(());
        }
        self.at = self.at.wrapping_sub(1);
        match (self.at, self.cut) {
            (0, Cut::Kill) => Err(ReportError {
                action: "survive",
                file: "the cut".into(),
                source: std::io::Error::other("killed by the test"),
            }),
            (0, Cut::Ask(signal)) => {
                self.stop.request(signal);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

fn open(config: &Path, mode: FolderMode) -> Run {
    open_with(config, mode, &[]).expect("opens")
}

fn open_with(
    config: &Path,
    mode: FolderMode,
    set: &[&str],
) -> std::result::Result<Run, BuildError> {
    let set: Vec<String> = set.iter().map(|set| (*set).to_owned()).collect();
    let loaded = trainer::config::load(config, &set).expect("a right configuration");
    let plan = trainer::plan::plan(loaded.config).expect("a right plan");
    build(plan, &Options { mode })
}

fn trains(event: &Event) -> bool {
    matches!(event, Event::Progress(progress) if progress.phase == Phase::Train)
}

fn validates(event: &Event) -> bool {
    matches!(event, Event::Progress(progress) if progress.phase == Phase::Validation)
}

fn epoch_told(event: &Event) -> bool {
    matches!(event, Event::Epoch(_))
}

fn saved_inside(event: &Event) -> bool {
    matches!(event, Event::Saved { reason: SaveReason::Interval, .. })
}

fn saved_at_end(event: &Event) -> bool {
    matches!(event, Event::Saved { reason: SaveReason::EpochEnd, .. })
}

fn evaluation_begins(event: &Event) -> bool {
    matches!(event, Event::EpochBegin(begin) if begin.phase == Phase::Validation)
}

#[test]
fn wherever_a_run_is_cut_it_goes_on_as_if_it_had_not_been() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let whole = folder.path().join("whole");
    std::fs::create_dir(&whole).expect("is made");
    let config = support::write_config(&whole, &data);
    let outcome = open(&config, FolderMode::New).execute().expect("trains");
    assert!(matches!(outcome, Outcome::Ended(_)));
    let expected = Result::of(&whole.join("tiny"));

    let ask = Cut::Ask(Signal::Terminate);
    type Here = fn(&Event) -> bool;
    let cuts: [(&str, Here, usize, Cut); 13] = [
        ("killed after the first batch", trains, 1, Cut::Kill),
        ("killed between two saves", trains, 5, Cut::Kill),
        ("killed in the second epoch", trains, 9, Cut::Kill),
        ("killed right after a save inside an epoch", saved_inside, 2, Cut::Kill),
        ("killed at the beginning of evaluation", evaluation_begins, 1, Cut::Kill),
        ("killed during evaluation", validates, 2, Cut::Kill),
        ("killed between telling an epoch and saving it", epoch_told, 2, Cut::Kill),
        ("killed right after the save of an epoch", saved_at_end, 1, Cut::Kill),
        ("killed after the last save", saved_at_end, 3, Cut::Kill),
        ("asked to stop in an epoch", trains, 3, ask),
        ("asked to stop at an epoch's last batch", evaluation_begins, 2, ask),
        ("asked to stop during evaluation", validates, 3, ask),
        ("asked to stop at an epoch's end", saved_at_end, 2, ask),
    ];
    for (index, (case, here, at, cut)) in cuts.into_iter().enumerate() {
        let place = folder.path().join(format!("cut{index}"));
        std::fs::create_dir(&place).expect("is made");
        let config = support::write_config(&place, &data);
        let mut run = open(&config, FolderMode::New);
        let stop = run.stop.clone();
        run.reports.add(Cutter { here, at, cut, stop });
        match (cut, run.execute()) {
            (Cut::Kill, Err(_)) => {}
            (Cut::Ask(signal), Ok(outcome)) => {
                assert_eq!(outcome, Outcome::Stopped(signal), "{case}");
            }
            (_, other) => panic!("{case}: {other:?}"),
        }
        drop(run);
        let mut resumed = open(&config, FolderMode::Resume);
        assert!(matches!(resumed.execute().expect(case), Outcome::Ended(_)), "{case}");
        drop(resumed);
        Result::of(&place.join("tiny")).assert_equals(&expected, case);
    }
}

#[test]
fn a_damaged_state_is_named_and_the_one_before_it_used() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = support::write_config(folder.path(), &folder.path().join("data"));
    open(&config, FolderMode::New).execute().expect("trains");
    let run = folder.path().join("tiny");
    let expected = Result::of(&run);
    let weights = run.join("last/weights.safetensors");
    let mut bytes = std::fs::read(&weights).expect("is there");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&weights, bytes).expect("is damaged");
    let mut resumed = open(&config, FolderMode::Resume);
    let lines = std::fs::read_to_string(run.join("metrics.jsonl")).expect("metrics");
    let damaged = lines.lines().find(|line| line.contains("damaged_state")).expect("is told");
    assert!(damaged.contains("tiny/last") && damaged.contains("weights.safetensors"), "{damaged}");
    resumed.execute().expect("trains on");
    drop(resumed);
    Result::of(&run).assert_equals(&expected, "after the damage");
}

#[test]
fn a_run_that_cannot_be_built_does_not_cost_the_one_it_should_replace() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = support::write_config(folder.path(), &folder.path().join("data"));
    open(&config, FolderMode::New).execute().expect("trains");
    let run = folder.path().join("tiny");
    let before = Result::of(&run);
    let refused = open_with(&config, FolderMode::Overwrite, &["model.init=\"absent.safetensors\""]);
    assert!(refused.is_err(), "there are no such weights");
    Result::of(&run).assert_equals(&before, "after a refused --overwrite");
    open(&config, FolderMode::Overwrite).execute().expect("trains");
    Result::of(&run).assert_equals(&before, "after --overwrite");
}

/// What a loss learns beside the weights is in the saved states, and so is what the optimizer keeps of it.
#[test]
fn a_loss_that_learns_goes_on_as_if_it_had_not_been_cut() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let write = |name: &str| {
        let place = folder.path().join(name);
        std::fs::create_dir(&place).expect("is made");
        let config = support::write_config(&place, &data);
        let text = std::fs::read_to_string(&config).expect("reads");
        let text = text.replace("{ bce = { pos_weight = \"balanced\" } }", "\"auc_margin\"");
        assert!(text.contains("auc_margin"));
        std::fs::write(&config, text).expect("is written");
        (config, place.join("tiny"))
    };
    let (config, whole) = write("whole");
    open(&config, FolderMode::New).execute().expect("trains");
    let state = std::fs::read_to_string(whole.join("last/state.json")).expect("is there");
    let state: serde_json::Value = serde_json::from_str(&state).expect("JSON");
    for variable in ["a", "b", "alpha"] {
        let values = state["losses"]["findings"][variable].as_array().expect("one per label");
        assert_eq!(values.len(), 3);
        assert!(values.iter().all(|value| value != 0.0), "{variable}: {values:?}");
    }
    let expected = Result::of(&whole);
    for (name, at) in [("first epoch", 3), ("second epoch", 8)] {
        let (config, run) = write(name);
        let mut killed = open(&config, FolderMode::New);
        let stop = killed.stop.clone();
        killed.reports.add(Cutter { here: trains, at, cut: Cut::Kill, stop });
        assert!(killed.execute().is_err(), "{name}");
        drop(killed);
        open(&config, FolderMode::Resume).execute().expect("trains on");
        Result::of(&run).assert_equals(&expected, name);
    }
}
