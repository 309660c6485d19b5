//! The page in the folder of a run that is on.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;

use super::{Judged, REPORT_FILE, ReadFindings, Record, TracedStep, page, write};
use crate::contain::contained;
use crate::memory::measure::apart;
use crate::memory::offload::Worker;
use crate::priority::come_second;
use crate::report::{Event, SaveReason, write_card};

/// One in so many cores draws the page while training goes on.
const CORES_FOR_ONE: usize = 4;

/// Keeps `report.html` as the run is.
#[derive(Debug)]
pub struct RunPage {
    drawing: Arc<Mutex<Drawing>>,
    /// Draws while training goes on.
    thread: Option<Worker>,
    /// What a person should know of the drawing under way.
    under_way: Option<Receiver<Option<String>>>,
}

/// What the page is drawn from.
#[derive(Debug)]
struct Drawing {
    folder: PathBuf,
    read: ReadFindings,
    /// The best epoch when its outputs were judged, and what they are worth.
    judged: Option<(usize, Result<Option<Judged>, String>)>,
    /// Whether it was told that the page cannot be written.
    told: bool,
    /// Whether it was told that the model card cannot.
    told_card: bool,
}

impl RunPage {
    /// Of the run in `folder`, whose best state is read by `read`.
    pub fn of(folder: &Path, read: ReadFindings) -> Self {
        let folder = folder.to_owned();
        let drawing = Drawing { folder, read, judged: None, told: false, told_card: false };
        Self { drawing: Arc::new(Mutex::new(drawing)), thread: None, under_way: None }
    }

    /// Writes page and model card anew after the events that change much: the start, each epoch once its state is
    /// saved, and the end. `metrics.jsonl` has the event already. After an epoch that is done by another thread, while
    /// training goes on.
    ///
    /// What a person should know when that fails: the run goes on, since nothing depends on the page.
    pub fn refresh_after(&mut self, event: &Event) -> Option<String> {
        match event {
            Event::Saved { reason: SaveReason::EpochEnd, .. } => self.begin(),
            Event::Saved { reason: SaveReason::Interval, .. } => None,
            Event::Start(_) | Event::End(_) | Event::Saved { .. } => {
                let before = self.wait();
                before.or(self.drawing().refresh())
            }
            _ => None,
        }
    }

    /// Writes the page anew.
    ///
    /// # Errors
    /// When the folder cannot be read, or the page not be written, in words.
    pub fn refresh(&mut self) -> Result<(), String> {
        self.drawing().write_page().map(drop)
    }

    /// Waits for the drawing under way, which reads the files of the last save; what a person should know of it.
    pub fn wait(&mut self) -> Option<String> {
        self.under_way.take()?.recv().ok().flatten()
    }

    /// Begins to draw; what a person should know of the drawing before.
    fn begin(&mut self) -> Option<String> {
        let before = self.wait();
        if self.thread.is_none() {
            self.thread = Worker::start("page").ok();
        }
        let Some(thread) = &self.thread else { return before.or(self.drawing().refresh()) };
        let (done, outcome) = channel();
        let drawing = Arc::clone(&self.drawing);
        thread.give(move || {
            stand_back();
            let mut drawing = drawing.lock().unwrap_or_else(PoisonError::into_inner);
            // Nobody may want to know any more.
            let _ = done.send(drawing.refresh_on_few_cores());
        });
        self.under_way = Some(outcome);
        before
    }

    fn drawing(&self) -> MutexGuard<'_, Drawing> {
        self.drawing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What this thread does is neither the model's memory nor in the way of training.
fn stand_back() {
    apart();
    come_second();
}

impl Drawing {
    /// [`Drawing::refresh`] that leaves most cores to training, and all threads that it shares work with.
    fn refresh_on_few_cores(&mut self) -> Option<String> {
        let cores = available_parallelism().map_or(1, usize::from);
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads((cores / CORES_FOR_ONE).max(1))
            .start_handler(|_| stand_back())
            .build();
        match pool {
            Ok(pool) => pool.install(|| self.refresh()),
            Err(_) => self.refresh(),
        }
    }

    /// Writes page and model card anew; what a person should know when that fails for the first time.
    fn refresh(&mut self) -> Option<String> {
        // No picture is worth a run.
        let written = contained(|| self.write_page().map(|record| self.write_card(&record)))
            .and_then(|written| written);
        let (written, card) = match written {
            Ok(card) => (Ok(()), card),
            Err(error) => (Err(error), Ok(())),
        };
        if let Err(error) = card
            && !std::mem::replace(&mut self.told_card, true)
        {
            return Some(format!("the model card is not up to date: {error}"));
        }
        let first = !std::mem::replace(&mut self.told, written.is_err());
        let folder = self.folder.display();
        let told = |error| {
            format!(
                "{REPORT_FILE} is not up to date: {error}. The run goes on without; `trainer report \
                 {folder}` writes it later."
            )
        };
        written.err().filter(|_| first).map(told)
    }

    /// Writes the page; what it tells of.
    fn write_page(&mut self) -> Result<Record, String> {
        let record = Record::read(&self.folder).map_err(|error| error.to_string())?;
        let best = record.best().map_or(0, |epoch| epoch.epoch);
        let known = self.judged.take().filter(|(epoch, _)| *epoch == best);
        let read = || Judged::read(&self.folder, &record.config, self.read);
        let judged = known.unwrap_or_else(|| (best, read()));
        let (_, judged) = self.judged.insert(judged);
        let file = self.folder.join(REPORT_FILE);
        let unwritten = |error| format!("cannot write {}: {error}", file.display());
        write(&file, &page(&record, judged, TracedStep::read(&self.folder).as_ref()))
            .map_err(unwritten)?;
        Ok(record)
    }

    /// Writes the model card from what the page shows.
    fn write_card(&self, record: &Record) -> Result<(), String> {
        match &self.judged {
            Some((_, Err(error))) => Err(error.clone()),
            Some((_, Ok(judged))) => write_card(&self.folder, record, judged.as_ref()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder without a run in it.
    #[test]
    fn what_goes_wrong_beside_training_is_told_once_and_not_by_whoever_begins_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut page = RunPage::of(folder.path(), |_| Ok(None));
        let saved = |reason| Event::Saved { folder: "last".into(), epoch: 1, step: 9, reason };
        assert_eq!(page.refresh_after(&saved(SaveReason::Interval)), None);
        assert!(page.under_way.is_none(), "nothing is drawn after each save");
        assert_eq!(page.refresh_after(&saved(SaveReason::EpochEnd)), None);
        let told = page.wait().expect("is told");
        assert!(told.starts_with("report.html is not up to date: "), "{told}");
        assert_eq!(page.refresh_after(&saved(SaveReason::EpochEnd)), None);
        assert_eq!(page.refresh_after(&saved(SaveReason::Interrupted)), None, "it is known");
        assert!(page.under_way.is_none(), "whoever ends has waited");
    }
}
