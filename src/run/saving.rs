//! Saving while training goes on.
//!
//! A state is taken between two steps, as a [`Snapshot`] in host memory. A thread makes files of it, writes them
//! and puts them in place, as [`state`](super::state) says, while the next steps are taken. The training thread looks
//! after each batch whether that is done, and tells it: from then on the save counts.
//!
//! One save at a time is under way. Who saves again, ends the run or gives back its folder waits for it.

use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::snapshot::{Files, GatherError, Snapshot};
use super::state::{Saved, StateStore, StateTag};
use super::{Run, RunError};
use crate::evaluate::PredictionTable;
use crate::memory::measure::apart_while;
use crate::memory::offload::Worker;
use crate::report::{Event, Report, SaveReason};

/// How many times the bytes of a state a save under way takes of the host's memory at most: the numbers read from the
/// device become files one after another.
const COPIES: u64 = 2;

/// What a save is called where it is written and where it is told.
#[derive(Debug, Clone)]
pub(super) struct Save {
    /// The place in training.
    pub tag: StateTag,
    /// The epoch that a person is shown.
    pub epoch: usize,
    /// Why it is saved.
    pub reason: SaveReason,
    /// Whether it is the best so far.
    pub is_best: bool,
}

/// Writes the states of a run, one at a time. Dropped, it waits for the one under way.
#[derive(Debug)]
pub struct Writer {
    store: Arc<Mutex<StateStore>>,
    /// None where a save is done before training goes on.
    thread: Option<Worker>,
    under_way: Option<(Save, Receiver<Result<Saved, RunError>>)>,
}

impl Writer {
    /// Writes into `store`, behind training where it `overlaps` and the system starts a thread for it.
    pub fn over(store: StateStore, overlaps: bool) -> Self {
        let thread = overlaps.then(|| Worker::start("saving").ok()).flatten();
        Self { store: Arc::new(Mutex::new(store)), thread, under_way: None }
    }

    /// The bytes that a save under way takes of the host's memory at most, where a state has `state_bytes`.
    pub fn bytes_beside(state_bytes: u64) -> u64 {
        COPIES.saturating_mul(state_bytes)
    }

    /// Begins to save the files that `files` makes. None may be under way.
    pub(super) fn begin(
        &mut self,
        save: Save,
        files: impl FnOnce() -> Result<Files, GatherError> + Send + 'static,
    ) {
        debug_assert!(self.under_way.is_none(), "one save at a time");
        let (done, outcome) = channel();
        let (store, tag, is_best) = (Arc::clone(&self.store), save.tag.clone(), save.is_best);
        let write = move || {
            let files = files().map_err(RunError::Unsaved)?;
            let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(store.save(&tag, &files, is_best)?)
        };
        // None of it is the model's memory. Nobody is there to hear of it where the run has come to a defect.
        let job = move || drop(done.send(apart_while(write)));
        self.under_way = Some((save, outcome));
        match &self.thread {
            Some(thread) => thread.give(job),
            None => job(),
        }
    }

    /// The save that was under way, if it is done.
    pub(super) fn look(&mut self) -> Option<Result<(Save, Saved), RunError>> {
        let (save, outcome) = self.under_way.take()?;
        match outcome.try_recv() {
            Err(TryRecvError::Empty) => {
                self.under_way = Some((save, outcome));
                None
            }
            Err(TryRecvError::Disconnected) => Some(Err(RunError::Unwritten)),
            Ok(saved) => Some(saved.map(|saved| (save, saved))),
        }
    }

    /// The same once it is done; `None` where none is under way.
    pub(super) fn wait(&mut self) -> Option<Result<(Save, Saved), RunError>> {
        let (save, outcome) = self.under_way.take()?;
        let saved = outcome.recv().unwrap_or(Err(RunError::Unwritten));
        Some(saved.map(|saved| (save, saved)))
    }
}

impl Run {
    /// Begins to save the state of the run, and with it what `validation` has found of exactly these weights, once
    /// the save before it has ended.
    ///
    /// # Errors
    /// When that save or the device has failed.
    pub(super) fn save(
        &mut self,
        reason: SaveReason,
        is_best: bool,
        validation: Option<PredictionTable>,
    ) -> Result<(), RunError> {
        self.end_save()?;
        self.reports.wait_for_page()?;
        // Not only of the first process, where others have a part of it.
        let has_part = self.keeper.is_some() || self.plan.optimizer_shards() > 1;
        // None of it is the model's memory.
        let kept = match has_part {
            true => apart_while(|| self.trainer.kept())?,
            false => None,
        };
        let (Some(keeper), Some(kept)) = (&mut self.keeper, kept) else { return Ok(()) };
        // What was told until here is on the disk; what is told from here on is told again by a run that goes on.
        self.state.metrics_bytes = self.reports.position()?;
        let (plan, trainer, state) = (&self.plan, &self.trainer, &mut self.state);
        let taken = apart_while(|| Snapshot::take(plan, trainer, kept, state, validation));
        let snapshot = taken.map_err(RunError::Unsaved)?;
        let tag = StateTag {
            epoch: state.epoch as u64 - 1,
            step: state.step as u64,
            batch: state.batch as u64,
            reason: reason.name().to_owned(),
        };
        let save = Save { tag, epoch: state.epoch_shown(), reason, is_best };
        keeper.writer.begin(save, || snapshot.into_files());
        self.saved_at = Instant::now();
        self.look_at_save()
    }

    /// Tells of the save that was under way, if it is done.
    ///
    /// # Errors
    /// When it has failed.
    pub(super) fn look_at_save(&mut self) -> Result<(), RunError> {
        let done = self.keeper.as_mut().and_then(|keeper| keeper.writer.look());
        done.map_or(Ok(()), |done| self.tell_saved(done?))
    }

    /// Waits for the save that is under way, if there is one, and tells of it.
    ///
    /// # Errors
    /// When it has failed.
    pub(super) fn end_save(&mut self) -> Result<(), RunError> {
        let done = self.keeper.as_mut().and_then(|keeper| keeper.writer.wait());
        done.map_or(Ok(()), |done| self.tell_saved(done?))
    }

    fn tell_saved(&mut self, (save, saved): (Save, Saved)) -> Result<(), RunError> {
        if let Some(error) = saved.not_removed {
            self.reports.event(&Event::Warning { message: error.to_string() })?;
        }
        let Save { tag, epoch, reason, .. } = save;
        let (folder, step) = (saved.folder, tag.step as usize);
        Ok(self.reports.event(&Event::Saved { folder, epoch, step, reason })?)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Sender;

    use super::super::state::{LAST, StateError, read_state};
    use super::super::{FolderMode, Keeper, RunFolder, RunLock};
    use super::*;
    use crate::disk::watch::{DiskFault, ENOSPC, Watch};

    fn save(step: u64) -> Save {
        let tag = StateTag { epoch: 0, step, batch: step, reason: "interval".to_owned() };
        Save { tag, epoch: 1, reason: SaveReason::Interval, is_best: false }
    }

    fn files(step: u64) -> Files {
        vec![("weights".to_owned(), vec![step as u8; 100])]
    }

    /// What makes the files of that step once the sender sends or is gone.
    fn held(step: u64) -> (Sender<()>, impl FnOnce() -> Result<Files, GatherError> + Send) {
        let (release, released) = channel::<()>();
        let make = move || {
            let _ = released.recv();
            Ok(files(step))
        };
        (release, make)
    }

    fn keeper(parent: &tempfile::TempDir, overlaps: bool) -> Keeper {
        let folder = RunFolder::create(&parent.path().join("run"), FolderMode::New).expect("new");
        let store = StateStore::open(folder.lock(), 1).expect("opens");
        Keeper { writer: Writer::over(store, overlaps), folder }
    }

    fn saved_step(keeper: &Keeper) -> u64 {
        let state = read_state(&keeper.folder.path().join(LAST)).expect("is intact");
        assert_eq!(state.files, files(state.tag.step).into_iter().collect());
        state.tag.step
    }

    #[test]
    fn a_save_goes_on_behind_whoever_began_it_and_is_known_once_it_is_done() {
        let parent = tempfile::tempdir().expect("a folder");
        let mut keeper = keeper(&parent, true);
        assert!(keeper.writer.look().is_none() && keeper.writer.wait().is_none());
        for step in 1..4 {
            let (release, make) = held(step);
            keeper.writer.begin(save(step), make);
            assert!(keeper.writer.look().is_none(), "it is under way");
            let before = keeper.folder.path().join(LAST).exists().then(|| saved_step(&keeper));
            assert_eq!(before, (step > 1).then(|| step - 1));
            drop(release);
            let (told, saved) = keeper.writer.wait().expect("was under way").expect("is saved");
            assert_eq!((told.tag.step, saved.folder), (step, keeper.folder.path().join(LAST)));
            assert_eq!(saved_step(&keeper), step);
            assert!(keeper.writer.look().is_none(), "it is told once");
        }
    }

    #[test]
    fn what_does_not_overlap_is_done_when_it_has_begun() {
        let parent = tempfile::tempdir().expect("a folder");
        let mut keeper = keeper(&parent, false);
        keeper.writer.begin(save(1), || Ok(files(1)));
        assert_eq!(saved_step(&keeper), 1);
        keeper.writer.look().expect("is done").expect("is saved");
    }

    #[test]
    fn a_save_that_fails_is_told_and_the_state_before_it_stays() {
        let parent = tempfile::tempdir().expect("a folder");
        let mut keeper = keeper(&parent, true);
        keeper.writer.begin(save(1), || Ok(files(1)));
        keeper.writer.wait().expect("was under way").expect("is saved");
        let watch = Watch::over(parent.path());
        watch.strike_after(4, DiskFault::Broken(ENOSPC));
        keeper.writer.begin(save(2), || Ok(files(2)));
        let error = keeper.writer.wait().expect("was under way").expect_err("is refused");
        assert!(matches!(error, RunError::State(StateError::Write { .. })), "{error}");
        assert!(error.to_string().contains("lower `run.save.keep`"), "{error}");
        watch.clear();
        assert_eq!(saved_step(&keeper), 1);
        keeper.writer.begin(save(3), || Ok(files(3)));
        keeper.writer.wait().expect("was under way").expect("is saved");
        assert_eq!(saved_step(&keeper), 3);
    }

    #[test]
    fn a_folder_stays_locked_until_the_save_under_way_has_ended() {
        let parent = tempfile::tempdir().expect("a folder");
        let mut keeper = keeper(&parent, true);
        let folder = keeper.folder.path().to_owned();
        let (release, make) = held(1);
        keeper.writer.begin(save(1), make);
        let dropped = std::thread::spawn(move || drop(keeper));
        RunLock::acquire(&folder).expect_err("is held");
        drop(release);
        dropped.join().expect("ends");
        RunLock::acquire(&folder).expect("is free");
        assert_eq!(read_state(&folder.join(LAST)).expect("is saved").tag.step, 1);
    }

    #[test]
    fn a_defect_of_the_thread_is_an_error_of_this_save_and_of_those_after_it() {
        let parent = tempfile::tempdir().expect("a folder");
        let mut keeper = keeper(&parent, true);
        for _ in 0..2 {
            // As a panic, but for what the hook says of it.
            keeper.writer.begin(save(1), || std::panic::resume_unwind(Box::new("a defect")));
            let error = keeper.writer.wait().expect("was under way").expect_err("is not saved");
            assert!(matches!(error, RunError::Unwritten), "{error}");
        }
    }
}
