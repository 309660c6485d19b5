//! The torture suite: a run is killed, its disk refuses and fills up, its files are damaged; each time it must
//! end as the run that was never disturbed, with the same bits, or say what is wrong and lose nothing.
//!
//! ```text
//! cargo test --lib torture -- --nocapture                        # a minute
//! TRAINER_TORTURE=7200 cargo test --lib torture -- --nocapture   # so many seconds
//! TRAINER_TORTURE=full cargo test --lib torture -- --nocapture   # the numbers of docs/reliability.md
//! ```
//!
//! The table at the end says what was tried. A power loss is not among it: see `run/power_loss.rs`.

mod damage;
mod program;
mod slow;
#[path = "../../tests/support/mod.rs"]
mod support;

use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use rand::RngExt;
use rand::seq::SliceRandom;

use crate::disk::crash::scratch;
use crate::disk::watch::ERRORS;
use program::{Place, ended};
use support::Result;

/// How long a part of the suite goes on.
#[derive(Debug, Clone, Copy)]
pub(super) enum Length {
    /// For so many trials, spread evenly over all that there are.
    Trials(usize),
    /// Until this much time has passed, or all are tried.
    Time(Duration),
}

impl Length {
    /// `trials`, or what `TRAINER_TORTURE` asks for: `full` trials, or this share of so many seconds.
    fn of(trials: usize, full: usize, share: f64) -> Self {
        match std::env::var("TRAINER_TORTURE").as_deref() {
            Err(_) => Self::Trials(trials),
            Ok("full") => Self::Trials(full),
            Ok(text) => {
                let seconds: f64 = text.parse().expect("TRAINER_TORTURE is `full` or seconds");
                Self::Time(Duration::from_secs_f64(seconds * share))
            }
        }
    }

    /// Does `trial` with numbers below `all`, and returns how many there were.
    pub(super) fn each(self, all: usize, mut trial: impl FnMut(usize)) -> usize {
        match self {
            Self::Trials(trials) if trials >= all => (0..all).map(trial).count(),
            Self::Trials(trials) => {
                let step = (all / trials).max(1);
                // Not the same in every round of a period.
                (0..all).step_by(step).map(|at| trial((at + at / step) % all)).count()
            }
            Self::Time(time) => {
                let begin = Instant::now();
                let mut order: Vec<usize> = (0..all).collect();
                order.shuffle(&mut crate::random::stream(1, "torture", &[all as u64]));
                let in_time = order.into_iter().take_while(|_| begin.elapsed() < time);
                in_time.map(&mut trial).count()
            }
        }
    }
}

/// As many trials as there are.
const ALL: usize = usize::MAX;

/// What was tried: a table that is printed row by row.
#[derive(Debug)]
pub(super) struct Table;

#[expect(clippy::print_stdout, reason = "it is what the suite is for")]
impl Table {
    fn begin() -> Self {
        println!("\n| what | tried | what came of it |\n|---|---|---|");
        Self
    }

    pub(super) fn add(&mut self, what: &str, tried: usize, came: &str) {
        println!("| {what} | {tried} | {came} |");
    }
}

/// A run that was never disturbed, and a place for those that are.
struct Scene {
    whole: Place,
    place: Place,
    expected: Result,
    /// The operations of the whole run, and the bytes that it writes.
    operations: usize,
    bytes: usize,
    length: Duration,
    _parent: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let parent = scratch();
        let whole = Place::new(parent.path(), "whole");
        let begin = Instant::now();
        let first = whole.train(None);
        assert!(first.status.success(), "{}", first.told);
        // Without the drawing of images, which the first run has done.
        whole.clear();
        let (drawn, begin) = (begin.elapsed(), Instant::now());
        let first = whole.train(None);
        let length = begin.elapsed().min(drawn);
        let expected = Result::of(&whole.run());
        let place = Place::new(parent.path(), "tortured");
        let (operations, bytes) = (first.operations, first.bytes);
        Self { whole, place, expected, operations, bytes, length, _parent: parent }
    }
}

#[test]
fn a_run_that_is_killed_ends_as_one_never_disturbed() {
    let Scene { place, expected, operations, length, .. } = &Scene::new();
    let mut table = Table::begin();
    kills_at_operations(place, expected, *operations, &mut table);
    kills_at_moments(place, expected, *length, None, &mut table);
}

#[test]
fn a_run_that_goes_on_beside_slow_saves_ends_as_one_whose_disk_is_fast() {
    let scene = &Scene::new();
    let Scene { place, expected, length, .. } = scene;
    let mut table = Table::begin();
    slow::whole_runs(scene, &mut table);
    slow::signals(place, expected, &mut table);
    kills_at_moments(place, expected, *length, Some(slow::SLOW), &mut table);
}

#[test]
fn a_run_whose_disk_refuses_ends_as_one_never_disturbed() {
    let Scene { place, expected, operations, bytes, .. } = &Scene::new();
    let mut table = Table::begin();
    errors(place, expected, *operations, &mut table);
    errors_in_turn(place, expected, *operations, *bytes, &mut table);
    full_disks(place, expected, *bytes, &mut table);
}

#[test]
fn a_run_whose_files_are_damaged_goes_on_from_what_is_sound() {
    let Scene { whole, place, expected, operations, .. } = &Scene::new();
    let mut table = Table::begin();
    damage::of_states(whole, Length::of(2000, ALL, 0.25), &mut table);
    damage::of_other_files(place, expected, operations / 2, &mut table);
}

fn kills_at_operations(place: &Place, expected: &Result, operations: usize, table: &mut Table) {
    let tried = Length::of(24, ALL, 0.2).each(operations, |operation| {
        place.clear();
        let case = format!("SIGKILL at operation {operation}");
        let ended = place.train(Some(&format!("{operation} signal")));
        assert_eq!(ended.status.signal(), Some(9), "{case}: {}", ended.told);
        place.assert_goes_on(expected, &case);
    });
    let what = format!("SIGKILL at one of the {operations} operations of a run on the disk");
    table.add(&what, tried, "resumed: the same bits");
}

/// The run goes on after each kill, and is killed again, until it has ended; each time with `fault`.
fn kills_at_moments(
    place: &Place,
    expected: &Result,
    length: Duration,
    fault: Option<&str>,
    table: &mut Table,
) {
    let mut random = crate::random::stream(11, "kills", &[]);
    let (mut kills, mut runs) = (0, 0);
    place.clear();
    let asked = match fault {
        None => Length::of(30, 3000, 0.2),
        Some(_) => Length::of(10, 500, 0.05),
    };
    asked.each(1_000_000, |_| {
        let mut child = place.start(fault);
        let patience = length.mul_f64(random.random_range(0.05..0.9));
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline && child.try_wait().expect("can be asked").is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        // It may have ended by now: then nothing is killed.
        child.kill().expect("can be killed");
        let ended = ended(child);
        match ended.status.signal() {
            Some(9) => kills += 1,
            _ => {
                assert!(ended.status.success(), "after {kills} kills: {}", ended.told);
                Result::of(&place.run()).assert_equals(expected, &format!("after {kills} kills"));
                runs += 1;
                place.clear();
            }
        }
    });
    place.assert_goes_on(expected, &format!("after {kills} kills"));
    let came = format!("resumed, and killed again: {} runs ended with the same bits", runs + 1);
    let what = match fault {
        None => "SIGKILL at a random moment",
        Some(_) => "SIGKILL at a random moment, where saves are slow",
    };
    table.add(what, kills, &came);
}

/// Whether the program ended with a message where the disk refused; it may also have gone on.
fn assert_told(ended: &program::Ended, case: &str) -> bool {
    let Some(code) = ended.status.code() else { panic!("{case}: {}", ended.status) };
    let defect = ["panicked", "defect"].iter().any(|word| ended.told.contains(word));
    assert!(!defect, "{case}: {}", ended.told);
    if code != 0 {
        assert!([1, 3, 5].contains(&code), "{case}: exit {code}\n{}", ended.told);
        assert!(ended.told.contains("error: "), "{case}: {}", ended.told);
    }
    code != 0
}

/// One operation is refused, or all from one on; with each error in turn.
fn errors(place: &Place, expected: &Result, operations: usize, table: &mut Table) {
    let (mut told, mut went_on) = (0, 0);
    let kinds = 2 * ERRORS.len();
    let tried = Length::of(42, 560, 0.1).each(operations * kinds, |number| {
        let (operation, kind) = (number / kinds, number % kinds);
        let word = ["refused", "broken"][kind / ERRORS.len()];
        let error = ERRORS[kind % ERRORS.len()];
        place.clear();
        let case = format!("{word} with error {error} at operation {operation}");
        let ended = place.train(Some(&format!("{operation} {word} {error}")));
        assert!(ended.struck, "{case}");
        match assert_told(&ended, &case) {
            true => told += 1,
            false => went_on += 1,
        }
        place.assert_goes_on(expected, &case);
    });
    let came =
        format!("{told} ended with a message and were resumed, {went_on} went on: the same bits");
    let what = "an operation refused, or it and all later ones (ENOSPC, EINTR, EIO, EACCES, EMFILE, EROFS, EDQUOT)";
    table.add(what, tried, &came);
}

/// The run goes on after each refusal, and is refused again at another operation, until it has ended.
fn errors_in_turn(
    place: &Place,
    expected: &Result,
    operations: usize,
    bytes: usize,
    table: &mut Table,
) {
    let mut random = crate::random::stream(12, "refusals", &[]);
    let (mut struck, mut runs) = (0, 0);
    place.clear();
    Length::of(30, 7000, 0.1).each(1_000_000, |_| {
        let error = ERRORS[random.random_range(0..ERRORS.len())];
        // Early ones more often: then a run takes many of them.
        let most = random.random_range(0..operations);
        let operation = random.random_range(0..=most);
        let fault = match random.random_range(0..5) {
            0 => format!("0 room {}", random.random_range(0..bytes)),
            1 | 2 => format!("{operation} refused {error}"),
            _ => format!("{operation} broken {error}"),
        };
        let case = format!("{fault}, after {struck} others and {runs} runs");
        let ended = place.train(Some(&fault));
        struck += usize::from(ended.struck);
        if !assert_told(&ended, &case) {
            Result::of(&place.run()).assert_equals(expected, &case);
            runs += 1;
            place.clear();
        }
    });
    place.assert_goes_on(expected, &format!("after {struck} refusals"));
    let what = "operations refused in one run after another, at random: one, all from one on, or for want of room";
    let came =
        format!("gone on with, and refused again: {} runs ended with the same bits", runs + 1);
    table.add(what, struck, &came);
}

fn full_disks(place: &Place, expected: &Result, bytes: usize, table: &mut Table) {
    let mut told = 0;
    let tried = Length::of(10, 100, 0.05).each(bytes, |room| {
        place.clear();
        let case = format!("room for {room} bytes");
        let ended = place.train(Some(&format!("0 room {room}")));
        told += usize::from(assert_told(&ended, &case));
        place.assert_goes_on(expected, &case);
    });
    let what = format!("a disk with room for fewer bytes than the {bytes} that are written");
    table.add(&what, tried, &format!("{told} ended with a message; resumed: the same bits"));
}
