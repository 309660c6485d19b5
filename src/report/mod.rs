//! What a run tells: progress, JSONL, TensorBoard, a page, the closing table; one file a format.
//!
//! The loop tells [`Event`]s to one [`Report`], which is [`Reports`]: all formats at once. Every
//! format writes an event through before it returns, so that a kill loses nothing already told.

mod append;
mod card;
mod comparison;
mod counting;
mod courses;
mod evaluation;
mod chart;
mod event;
mod jsonl;
mod lines;
mod page;
mod progress;
mod remaining;
mod skipped;
mod table;
mod tensorboard;
mod tfrecord;
mod trace;
#[cfg(test)]
mod examples;

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::screen::is_quiet;
pub use card::{CARD_FILE, refresh_card, write_card};
pub use chart::{Chart, Curve, Shape};
pub use comparison::comparison_text;
pub use counting::Counting;
pub use courses::{DeviceCourse, to_svg as courses_to_svg};
pub use evaluation::{estimate_text, evaluation_text};
pub use event::*;
pub use jsonl::JsonLines;
pub use lines::{duration, number};
pub use page::{
    EvaluationPage, Findings, Judged, REPORT_FILE, ReadFindings, Record, RecordError, RunPage,
    SamplePictures, SweepPage, SweepRow, Tested, TracedStep, Wanted, comparison, evaluation_page,
    page, sweep_page, wanted, write as write_page,
};
pub use progress::{Bar, Plain, Quiet, progress};
pub use skipped::SkippedImages;
pub use table::{ClosingJson, ClosingTable};
pub use tensorboard::TensorBoard;
pub use trace::{StepFailure, StepTrace};

/// One format that a run is told in.
pub trait Report {
    /// Takes note of `event` and writes it through.
    ///
    /// # Errors
    ///
    /// When what the event gives rise to cannot be written.
    fn event(&mut self, event: &Event) -> Result<(), ReportError>;
}

/// A file or screen that cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}; {}", file.display(), advice(source))]
pub struct ReportError {
    /// What was tried, such as "append to".
    pub action: &'static str,
    /// The file, or the name of the screen.
    pub file: PathBuf,
    /// What the system says.
    pub source: io::Error,
}

impl ReportError {
    /// For `map_err`: what was tried on which file.
    fn at(action: &'static str, file: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self { action, file: file.to_owned(), source }
    }
}

fn advice(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free space on its disk, then go on with --resume"
        }
        io::ErrorKind::PermissionDenied => "make it writable for this user",
        io::ErrorKind::ReadOnlyFilesystem => "set run.output to a folder that can be written",
        io::ErrorKind::NotFound => "leave the run folder in place while the run lasts",
        io::ErrorKind::IsADirectory => "a folder stands in its place: move it away",
        io::ErrorKind::InvalidData => "correct the file, or move it away",
        _ => "see that its disk works, then go on with --resume",
    }
}

/// Where the files of a resumed run go on; kept with every saved state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResumePoint {
    /// [`Reports::position`] at the moment the state was taken.
    pub metrics_bytes: u64,
    /// The first step that is told (again) after resuming: the one after the state's, which was
    /// told before the state was taken. An epoch that ends at the state's step had been told then or
    /// never was.
    pub first_step: usize,
}

/// Every format of a run; each is told every event.
#[derive(Default)]
pub struct Reports {
    metrics: Option<JsonLines>,
    others: Vec<Box<dyn Report>>,
    /// What is written to standard output at the end.
    closing: Option<Box<dyn Report>>,
    /// Made from what the others have written.
    page: Option<RunPage>,
}

impl Reports {
    /// All reports of the run in `folder`, which exists: `metrics.jsonl`, TensorBoard events,
    /// `skipped_images.csv`, `report.html`, progress on standard error and the closing table on standard
    /// output; with `--quiet` no table, and of progress only warnings and the last line. `read` reads
    /// the best state for the page.
    ///
    /// # Errors
    ///
    /// When one of the files cannot be opened.
    pub fn open(
        folder: &Path,
        resumed: Option<ResumePoint>,
        read: ReadFindings,
    ) -> Result<Self, ReportError> {
        let file = folder.join("metrics.jsonl");
        let (metrics, warning) = match resumed {
            None => (JsonLines::create(&file)?, None),
            Some(point) => JsonLines::open_resumed(&file, point.metrics_bytes)?,
        };
        let first_step = resumed.map_or(0, |point| point.first_step);
        let closing: Option<Box<dyn Report>> = match is_quiet() {
            true => None,
            false => Some(Box::new(ClosingTable::on_stdout())),
        };
        let page = Some(RunPage::of(folder, read));
        let mut reports = Self { metrics: Some(metrics), others: Vec::new(), closing, page };
        reports.add(progress());
        reports.add(TensorBoard::create(folder, first_step)?);
        reports.add(SkippedImages::open(&folder.join("skipped_images.csv"))?);
        if let Some(message) = warning {
            reports.event(&Event::Warning { message })?;
        }
        Ok(reports)
    }

    /// Adds a format.
    pub fn add(&mut self, report: impl Report + 'static) {
        self.others.push(Box::new(report));
    }

    /// Ends with the [`Event::End`] on standard output, as `metrics.jsonl` has it, and no table.
    pub fn close_in_json(&mut self) {
        self.closing = Some(Box::new(ClosingJson(io::stdout())));
    }

    /// Waits for the page where that is being drawn: it reads the files of the last save, which the next one replaces.
    ///
    /// # Errors
    ///
    /// When what a person should know of it cannot be told.
    pub fn wait_for_page(&mut self) -> Result<(), ReportError> {
        let warning = self.page.as_mut().and_then(RunPage::wait);
        warning.map_or(Ok(()), |message| self.tell(&Event::Warning { message }))
    }

    /// The length of `metrics.jsonl` in bytes, which are on disk, for [`ResumePoint`]; 0 without that file.
    ///
    /// # Errors
    ///
    /// When they cannot be synced.
    pub fn position(&mut self) -> Result<u64, ReportError> {
        self.metrics.as_mut().map_or(Ok(0), JsonLines::position)
    }
}

impl Report for Reports {
    /// Tells every format, also those after one that fails; the first error is returned. A page that
    /// cannot be written is a warning.
    fn event(&mut self, event: &Event) -> Result<(), ReportError> {
        // The page of an epoch tells of no later one and not of the end, whoever is faster.
        let waited = match event {
            Event::Epoch(_) | Event::End(_) => self.wait_for_page(),
            _ => Ok(()),
        };
        let told = waited.and(self.tell(event));
        let warning = self.page.as_mut().and_then(|page| page.refresh_after(event));
        told.and(warning.map_or(Ok(()), |message| self.tell(&Event::Warning { message })))
    }
}

impl Reports {
    fn tell(&mut self, event: &Event) -> Result<(), ReportError> {
        let metrics = self.metrics.as_mut().map_or(Ok(()), |metrics| metrics.event(event));
        let others = self.others.iter_mut().chain(&mut self.closing);
        others.map(|report| report.event(event)).fold(metrics, Result::and)
    }
}

impl<R: Report + ?Sized> Report for Box<R> {
    fn event(&mut self, event: &Event) -> Result<(), ReportError> {
        (**self).event(event)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::fs;
    use std::rc::Rc;

    /// Counts what it is told, and fails or not.
    struct Counting(Rc<RefCell<usize>>, Option<io::ErrorKind>);

    impl Report for Counting {
        fn event(&mut self, _: &Event) -> Result<(), ReportError> {
            *self.0.borrow_mut() += 1;
            match self.1 {
                Some(kind) => Err(ReportError::at("write", "x".as_ref())(kind.into())),
                None => Ok(()),
            }
        }
    }

    #[test]
    fn every_report_is_told_and_the_first_error_is_returned() {
        let told = Rc::new(RefCell::new(0));
        let mut reports = Reports::default();
        for kind in [None, Some(io::ErrorKind::StorageFull), Some(io::ErrorKind::NotFound), None] {
            reports.add(Counting(told.clone(), kind));
        }
        let error = reports.event(&examples::epoch()).unwrap_err();
        assert_eq!(error.source.kind(), io::ErrorKind::StorageFull);
        assert_eq!(*told.borrow(), 4);
    }

    #[test]
    fn a_resumed_run_goes_on_from_the_position_saved() {
        // At an epoch's end nothing is said on screen, where the tests' own output goes.
        let reason = SaveReason::EpochEnd;
        let saved = |step| Event::Saved { folder: "last".into(), epoch: 1, step, reason };
        let folder = tempfile::tempdir().unwrap();
        let mut reports = Reports::open(folder.path(), None, |_| Ok(None)).unwrap();
        reports.event(&saved(140)).unwrap();
        let point = ResumePoint { metrics_bytes: reports.position().unwrap(), first_step: 141 };
        assert!(point.metrics_bytes > 0);
        reports.event(&saved(280)).unwrap();

        assert!(
            Reports::open(folder.path(), None, |_| Ok(None)).is_err(),
            "a new run never writes over one"
        );
        let mut resumed = Reports::open(folder.path(), Some(point), |_| Ok(None)).unwrap();
        assert_eq!(resumed.position().unwrap(), point.metrics_bytes);
        resumed.event(&saved(300)).unwrap();
        let lines = fs::read_to_string(folder.path().join("metrics.jsonl")).unwrap();
        let steps: Vec<bool> = [140, 280, 300]
            .iter()
            .map(|step| lines.contains(&format!("\"step\":{step},")))
            .collect();
        assert_eq!(steps, [true, false, true]);
    }
}
