//! The page in the folder of a run that is on.

use std::path::{Path, PathBuf};

use super::{Judged, REPORT_FILE, ReadFindings, Record, TracedStep, page, write};
use crate::contain::contained;
use crate::report::{Event, SaveReason, write_card};

/// Keeps `report.html` as the run is.
#[derive(Debug)]
pub struct RunPage {
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
        Self { folder: folder.to_owned(), read, judged: None, told: false, told_card: false }
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

    /// Writes the page anew.
    ///
    /// # Errors
    /// When the folder cannot be read, or the page not be written, in words.
    pub fn refresh(&mut self) -> Result<(), String> {
        self.write_page().map(drop)
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
