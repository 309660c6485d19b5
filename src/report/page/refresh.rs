//! The page in the folder of a run that is on.

use std::path::{Path, PathBuf};

use super::{Judged, REPORT_FILE, Record, page, write};
use crate::contain::contained;
use crate::report::{Event, SaveReason, write_card};

/// Keeps `report.html` as the run is.
#[derive(Debug)]
pub struct RunPage {
    folder: PathBuf,
    /// The best epoch when its outputs were judged, and what they are worth.
    judged: Option<(usize, Result<Option<Judged>, String>)>,
    /// Whether it was told that the page cannot be written.
    told: bool,
    /// Whether it was told that the model card cannot.
    told_card: bool,
}

impl RunPage {
    /// Of the run in `folder`.
    pub fn of(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), judged: None, told: false, told_card: false }
    }

    /// Writes page and model card anew after the events that change much: the start, each epoch once its state is
    /// saved, and the end. `metrics.jsonl` has the event already.
    ///
    /// What a person should know when that fails: the run goes on, since nothing depends on the page.
    pub fn refresh_after(&mut self, event: &Event) -> Option<String> {
        let interval = |reason: &SaveReason| *reason == SaveReason::Interval;
        match event {
            Event::Start(_) | Event::End(_) => {}
            Event::Saved { reason, .. } if !interval(reason) => {}
            _ => return None,
        }
        // No picture is worth a run.
        let written = contained(|| self.refresh()).and_then(|written| written);
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

    /// Writes the page; what became of the model card.
    fn refresh(&mut self) -> Result<Result<(), String>, String> {
        let record = Record::read(&self.folder).map_err(|error| error.to_string())?;
        let best = record.best().map_or(0, |epoch| epoch.epoch);
        let known = self.judged.take().filter(|(epoch, _)| *epoch == best);
        let judged = known.unwrap_or_else(|| (best, Judged::read(&self.folder, &record.config)));
        let (_, judged) = self.judged.insert(judged);
        let file = self.folder.join(REPORT_FILE);
        let unwritten = |error| format!("cannot write {}: {error}", file.display());
        write(&file, &page(&record, judged)).map_err(unwritten)?;
        let judged = judged.as_ref().ok().and_then(Option::as_ref);
        Ok(write_card(&self.folder, &record, judged))
    }
}
