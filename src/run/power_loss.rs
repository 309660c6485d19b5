//! Power losses at every operation of a run, of its going on and of its being overwritten: whatever disk is
//! found, the run goes on from the last save that was told or a newer one, of one run and not of two.

use std::path::Path;

use super::folder::{CONFIG_FILE, METRICS_FILE, Mode, RunFolder};
use super::place::RunPlace;
use super::saving::{Save, Writer};
use super::state::{BEST, SavedState, StateStore, StateTag};
use crate::disk::crash::{Bound, Crashes, FileTree, Tried, is_long, scratch};
use crate::disk::watch::{DiskFault, Logged, Watch};
use crate::report::{Event, JsonLines, Report, SaveReason};

const KEEP: usize = 1;
/// The promise while a run is overwritten: there is none.
const WITHDRAWN: u64 = 999;
/// Steps of the run that takes the other's place begin here.
const OTHER: u64 = 1000;

fn config(step: u64) -> String {
    format!("[run]\nname = \"tiny\"\nseed = {}\n", step / OTHER)
}

fn split(step: u64) -> String {
    format!("image,patient,list\n{},1,train\n", step / OTHER)
}

/// The first, the fourth, … are the best so far.
fn is_best(step: u64) -> bool {
    step % OTHER % 3 == 1
}

fn best_of(step: u64) -> u64 {
    (0..=step).rev().find(|step| is_best(*step)).unwrap_or(0)
}

/// What is told in a step.
fn told(step: u64) -> Event {
    Event::Step { epoch: 1, step: step as usize, loss: Some(0.5), learning_rate: 0.1 }
}

fn lines(step: u64) -> String {
    let first = step / OTHER * OTHER + 1;
    (first..=step)
        .map(|step| format!("{}\n", serde_json::to_string(&told(step)).expect("JSON")))
        .collect()
}

fn files(step: u64) -> Vec<(String, Vec<u8>)> {
    let weights = (0..40).map(|place| (step as u8).wrapping_mul(31) ^ place).collect();
    let position = lines(step).len().to_string().into_bytes();
    vec![("weights.safetensors".to_owned(), weights), ("state.json".to_owned(), position)]
}

fn check_state(state: &SavedState, step: u64) -> Result<(), String> {
    let same = state.tag.step == step && state.files == files(step).into_iter().collect();
    if same { Ok(()) } else { Err(format!("step {} is not as saved", state.tag.step)) }
}

/// A run that is on, as `build` opens it.
struct Session {
    writer: Writer,
    folder: RunFolder,
    metrics: JsonLines,
    step: u64,
}

impl Session {
    /// `first` is the step before the first of the run where it begins anew.
    fn open(path: &Path, mode: Mode, first: u64) -> Result<Self, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let place = RunPlace::find(path, mode).map_err(|e| text(&e))?;
        let saved = match (mode, place.folder()) {
            (Mode::Resume, Some(folder)) => {
                let mut store = StateStore::open(folder.lock(), KEEP).map_err(|e| text(&e))?;
                store.newest().map_err(|e| text(&e))?
            }
            _ => None,
        };
        let folder = place.open().map_err(|e| text(&e))?;
        if mode == Mode::Overwrite {
            folder.clear().map_err(|e| text(&e))?;
        }
        let store = StateStore::open(folder.lock(), KEEP).map_err(|e| text(&e))?;
        let step = saved.as_ref().map_or(first, |saved| saved.state.tag.step);
        folder.write_config(&config(step)).map_err(|e| text(&e))?;
        folder.write_split(split(step).as_bytes(), b"labels").map_err(|e| text(&e))?;
        let path = folder.path().join(METRICS_FILE);
        let metrics = match mode {
            Mode::Resume => {
                let length = lines(step).len() as u64;
                let (metrics, warning) =
                    JsonLines::open_resumed(&path, length).map_err(|e| text(&e))?;
                warning.map_or(Ok(metrics), Err)?
            }
            Mode::New | Mode::Overwrite => JsonLines::create(&path).map_err(|e| text(&e))?,
        };
        Ok(Self { writer: Writer::over(store, true), folder, metrics, step })
    }

    fn save(&mut self) -> Result<(), String> {
        self.begin_save()?;
        self.end_save()
    }

    fn begin_save(&mut self) -> Result<(), String> {
        self.step()?;
        self.metrics.position().map_err(|error| error.to_string())?;
        let step = self.step;
        let tag = StateTag { epoch: step, step, batch: 0, reason: "test".to_owned() };
        let (reason, is_best) = (SaveReason::Interval, is_best(step));
        self.writer.begin(Save { tag, epoch: 1, reason, is_best }, move || Ok(files(step)));
        Ok(())
    }

    fn end_save(&mut self) -> Result<(), String> {
        let (_, saved) =
            self.writer.wait().ok_or("none is under way")?.map_err(|e| e.to_string())?;
        saved.not_removed.map_or(Ok(()), |error| Err(error.to_string()))
    }

    /// Takes a step that is not saved.
    fn step(&mut self) -> Result<(), String> {
        self.step += 1;
        self.metrics.event(&told(self.step)).map_err(|error| error.to_string())
    }

    fn best(&self) -> Result<SavedState, String> {
        let store = StateStore::open(self.folder.lock(), KEEP).map_err(|e| e.to_string())?;
        store
            .best()
            .map_err(|error| error.to_string())?
            .ok_or_else(|| "there is no best".to_owned())
    }
}

/// Opens a disk that was found as a resumed run does, and lets the run go on.
fn check(folder: &Path, promise: u64) -> Result<(), String> {
    let path = folder.join("runs/tiny");
    let least = if promise == WITHDRAWN { 0 } else { promise };
    if !path.exists() {
        return if least == 0 { Ok(()) } else { Err("the run folder is gone".to_owned()) };
    }
    let run = RunFolder::create(&path, Mode::Resume).map_err(|error| error.to_string())?;
    let mut store = StateStore::open(run.lock(), KEEP).map_err(|error| error.to_string())?;
    let newest = store.newest().map_err(|error| error.to_string())?;
    let step = newest.as_ref().map_or(0, |newest| newest.state.tag.step);
    if step < least {
        return Err(format!("step {step} is found, and step {least} was saved"));
    }
    let configuration = std::fs::read_to_string(path.join(CONFIG_FILE)).ok();
    if let Some(newest) = newest {
        check_state(&newest.state, step)?;
        if let [damage, ..] = newest.damaged.as_slice() {
            return Err(format!("damage is told where there is none: {damage}"));
        }
        if configuration != Some(config(step)) {
            return Err(format!("the state of step {step} is beside {configuration:?}"));
        }
        if promise == WITHDRAWN && step < OTHER {
            // It was to be removed, and some of it is.
            return Ok(());
        }
        let best = store.best().map_err(|error| error.to_string())?;
        check_state(&best.ok_or("there is no best")?, best_of(step))?;
        if run.read_split() != [split(step).into_bytes(), b"labels".to_vec()] {
            return Err("split.csv is another".to_owned());
        }
    } else if configuration.is_some_and(|text| text != config(0) && text != config(OTHER)) {
        return Err("the configuration is of no run".to_owned());
    } else if store.best().is_ok_and(|best| best.is_some()) {
        return Err(format!("{BEST} is there and no state to go on from"));
    }
    drop((run, store));
    if step == 0 {
        return Ok(());
    }
    let mut session = Session::open(&path, Mode::Resume, 0)?;
    session.save().and_then(|()| session.save())?;
    check_state(&session.best()?, best_of(step + 2))?;
    let metrics = std::fs::read_to_string(path.join(METRICS_FILE)).unwrap_or_default();
    let left = std::fs::read_dir(&path).into_iter().flatten().flatten().find(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        name.starts_with(".saving") || name.starts_with(".removing") || name.starts_with(".best")
    });
    match (metrics == lines(step + 2), left) {
        (false, _) => Err("the metrics are not those of a run never stopped".to_owned()),
        (_, Some(left)) => Err(format!("{} is left", left.path().display())),
        (true, None) => Ok(()),
    }
}

/// A folder that is watched, and what was in it.
struct Scene {
    parent: tempfile::TempDir,
    watch: Watch,
    before: FileTree,
}

impl Scene {
    fn new() -> Self {
        let parent = scratch();
        let (watch, before) = (Watch::over(parent.path()), FileTree::of(parent.path()));
        Self { parent, watch, before }
    }

    fn open(&self, mode: Mode, first: u64) -> Session {
        Session::open(&self.parent.path().join("runs/tiny"), mode, first).expect("opens")
    }

    fn save(&self, session: &mut Session, times: usize) {
        for _ in 0..times {
            session.save().expect("saves");
            self.watch.promise(session.step);
        }
    }

    fn crashes(&self, log: &[Logged]) -> Crashes {
        Crashes::new(self.parent.path(), self.before.clone(), log)
    }

    fn tried(&self) -> Tried {
        let crashes = self.crashes(&self.watch.log());
        crashes.assert_complete(self.parent.path());
        crashes.check(Bound::asked(), check)
    }
}

#[test]
fn a_power_loss_at_any_moment_of_a_run_leaves_the_last_save_or_a_newer_one() {
    let scene = Scene::new();
    scene.save(&mut scene.open(Mode::New, 0), 5);
    scene.tried().assert_nothing_lost("a run", 500);
}

#[test]
fn a_power_loss_while_a_run_goes_on_beside_its_save_leaves_the_last_save_or_a_newer_one() {
    let scene = Scene::new();
    let mut session = scene.open(Mode::New, 0);
    // Steps taken behind each save; what is saved is 1, 4, 6, 7, 10 and 11.
    for steps in [2, 1, 0, 2, 0, 1] {
        session.begin_save().expect("begins");
        let saved = session.step;
        (0..steps).for_each(|_| session.step().expect("is told"));
        session.end_save().expect("saves");
        scene.watch.promise(saved);
    }
    scene.tried().assert_nothing_lost("a run that goes on while it is saved", 500);
}

#[test]
fn a_power_loss_while_a_run_is_resumed_or_overwritten_leaves_one_run_and_not_two() {
    let scene = Scene::new();
    scene.save(&mut scene.open(Mode::New, 0), 3);
    let from = scene.watch.operations();
    scene.save(&mut scene.open(Mode::Resume, 0), 1);
    scene.watch.promise(WITHDRAWN);
    scene.save(&mut scene.open(Mode::Overwrite, OTHER), 2);
    let crashes = scene.crashes(&scene.watch.log());
    crashes.assert_complete(scene.parent.path());
    let tried = crashes.check_from(from, Bound::asked(), check);
    tried.assert_nothing_lost("a run resumed and overwritten", 500);
}

/// Operations of a save are cut off at each, and the power fails while that is tidied up.
#[test]
fn a_power_loss_after_a_kill_leaves_the_last_save_or_a_newer_one() {
    let every = if is_long() { 1 } else { 6 };
    let mut all = Tried::default();
    for operation in (0..).step_by(every) {
        let scene = Scene::new();
        let mut session = scene.open(Mode::New, 0);
        scene.save(&mut session, 3);
        let from = scene.watch.operations();
        scene.watch.strike_after(operation, DiskFault::Killed);
        let saved = session.save();
        drop(session);
        scene.watch.clear();
        if saved.is_ok() {
            break;
        }
        scene.save(&mut scene.open(Mode::Resume, 0), 1);
        let bound = Bound { all: Bound::asked().all / 2, random: Bound::asked().random / 2 };
        let tried = scene.crashes(&scene.watch.log()).check_from(from, bound, check);
        all.points += tried.points;
        all.disks += tried.disks;
        all.faults.extend(tried.faults);
    }
    all.assert_nothing_lost("a run killed and resumed", 500);
}

/// Else the tests above would show nothing: without one sync of a file, some disk breaks a promise. So it is
/// without those of the run folder; one of them alone is made good by the next.
#[test]
fn without_its_syncs_a_save_breaks_a_promise_on_some_disk() {
    let scene = Scene::new();
    let mut session = scene.open(Mode::New, 0);
    // The first save, and one that is the best and removes an older state.
    for times in [1, 3] {
        scene.save(&mut session, times - 1);
        let (from, operations) = (scene.watch.log().len(), scene.watch.operations());
        scene.save(&mut session, 1);
        let log = scene.watch.log();
        let is_broken = |without: &dyn Fn(usize) -> bool| {
            let kept = log.iter().enumerate().filter(|(at, _)| *at < from || !without(*at));
            let log: Vec<Logged> = kept.map(|(_, logged)| logged.clone()).collect();
            let tried = scene.crashes(&log).check_from(operations, Bound::QUICK, check);
            !tried.faults.is_empty()
        };
        let run = scene.parent.path().join("runs/tiny");
        let of_names = |at: usize| log[at] == Logged::SyncFolder(run.clone());
        assert!(is_broken(&of_names), "no sync of the run folder is needed");
        let is_sync = |at: &usize| matches!(log[*at], Logged::SyncFile(_) | Logged::SyncFolder(_));
        for at in (from..log.len()).filter(|at| is_sync(at) && !of_names(*at)) {
            assert!(is_broken(&|one| one == at), "{:?} is not needed", log[at]);
        }
    }
}
