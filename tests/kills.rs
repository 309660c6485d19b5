//! Protects saved states from SIGKILL at any moment.
//!
//! A child process (this program again) saves states in a loop and is killed; then the run folder
//! must open, without the child's lock, and hold what the child reported as saved or something
//! newer, byte for byte.

#![cfg(unix)]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rand_chacha::rand_core::Rng;
use trainer::random::stream;
use trainer::run::state::{SavedState, StateStore, StateTag};
use trainer::run::{FolderMode as Mode, RunFolder};

const FOLDER: &str = "TRAINER_TEST_KILLS";
const KILLS: u64 = 40;
const KEEP: usize = 2;

/// Every third state is the best so far.
fn is_best(step: u64) -> bool {
    step.is_multiple_of(3)
}

fn tag(step: u64) -> StateTag {
    StateTag { epoch: step / 10, step, batch: step % 10, reason: "test".to_owned() }
}

/// About a megabyte that follows from the step, so that the parent knows it too; made fast, so that
/// the child spends its time saving.
fn files(step: u64) -> Vec<(String, Vec<u8>)> {
    let file = |name: &str, length: usize| {
        let mut bytes = vec![0; length];
        let mut hasher = blake3::Hasher::new();
        hasher.update(name.as_bytes()).update(&step.to_le_bytes());
        hasher.finalize_xof().fill(&mut bytes);
        (name.to_owned(), bytes)
    };
    vec![file("weights.safetensors", 600_000), file("optimizer.safetensors", 400_000)]
}

fn open(folder: &Path) -> (RunFolder, StateStore) {
    let run = RunFolder::create(folder, Mode::Resume).expect("the lock went with the process");
    let store = StateStore::open(run.lock(), KEEP).expect("opens");
    (run, store)
}

/// Not a test by itself: what the child process runs until it is killed.
#[test]
fn the_child_saves_until_it_is_killed() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let (_run, mut store) = open(Path::new(&folder));
    let newest = store.newest().expect("is usable");
    let mut step = newest.map_or(0, |newest| newest.state.tag.step);
    loop {
        step += 1;
        store.save(&tag(step), &files(step), is_best(step)).expect("saves");
        let mut out = std::io::stdout();
        writeln!(out, "\nsaved {step}").and_then(|()| out.flush()).expect("the parent reads");
    }
}

fn start_child(folder: &Path) -> Child {
    let module = module_path!().split_once("::").map_or("", |(_, inner)| inner);
    let name = [module, "the_child_saves_until_it_is_killed"].join("::");
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", name.trim_start_matches("::"), "--nocapture"])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("starts")
}

fn assert_is(state: &SavedState, step: u64) {
    assert_eq!(state.tag, tag(step));
    assert!(state.files == files(step).into_iter().collect(), "step {step} is not as saved");
}

#[test]
fn a_run_folder_survives_sigkill_at_any_moment() {
    let parent = tempfile::tempdir().expect("a folder");
    let folder = parent.path().join("run");
    drop(RunFolder::create(&folder, Mode::New).expect("is new"));
    let mut delays = stream(std::process::id().into(), "delays", &[]);
    let (mut reported, mut leftovers, mut saves) = (0, 0, 0);
    for kill in 0..KILLS {
        let mut child = start_child(&folder);
        let mut lines = BufReader::new(child.stdout.take().expect("is piped")).lines();
        let mut read = |reported: &mut u64| -> bool {
            let Some(line) = lines.next() else { return false };
            if let Some(step) = line.expect("is text").strip_prefix("saved ") {
                *reported = step.parse().expect("a number");
                saves += 1;
            }
            true
        };
        // At least one save each time, so that the run gets on; then a moment long enough for
        // several.
        let before = reported;
        let started = Instant::now();
        while reported == before {
            assert!(read(&mut reported), "the child ended by itself");
            assert!(started.elapsed() < Duration::from_secs(60), "the child saves nothing");
        }
        std::thread::sleep(Duration::from_micros(delays.next_u64() % 60_000));
        child.kill().expect("is alive");
        child.wait().expect("ends");
        while read(&mut reported) {}

        let hidden =
            |name: &std::ffi::OsStr| name.to_string_lossy().starts_with('.') && name != ".lock";
        let entries = std::fs::read_dir(&folder).expect("lists");
        leftovers +=
            usize::from(entries.flatten().any(|entry| hidden(entry.file_name().as_os_str())));

        let (_run, mut store) = open(&folder);
        let newest = store.newest().expect("is usable").expect("was saved");
        let step = newest.state.tag.step;
        assert_eq!(newest.damaged, [], "kill {kill}");
        assert!(step == reported || step == reported + 1, "kill {kill}: {step}, not {reported}");
        assert_is(&newest.state, step);
        let best = store.best().expect("is usable").map_or(0, |best| {
            assert_is(&best, best.tag.step);
            best.tag.step
        });
        assert_eq!(best, step - step % 3, "kill {kill}: the best goes with the newest");
        reported = step;
    }
    // Else the kills came between saves and showed nothing.
    assert!(leftovers > KILLS as usize / 4, "{leftovers} of {KILLS} kills fell into a save");
    assert!(saves >= KILLS);
}
