//! Pages for people who would rather look than read: `report.html` of a run, of an evaluation and of a
//! sweep, and several runs side by side.
//!
//! The page of a run is made from what its folder holds and nothing else, so that it is the same whether the run
//! writes it, a resumed run does, or `trainer report` later. It is one file: styles and pictures are
//! within, and it loads nothing. Templates (`templates/` at the crate's root) escape every text.

mod comparison;
mod curves;
mod evaluation;
mod figure;
mod head;
mod judged;
mod listed;
mod pictures;
mod quality;
mod record;
mod refresh;
mod run;
mod samples;
mod step;
mod sweep;

use std::io;
use std::path::Path;

use crate::disk;

pub use comparison::{Tested, comparison};
pub use evaluation::{EvaluationPage, evaluation_page};
pub use judged::{Findings, Judged, ReadFindings, wanted};
pub use pictures::{SamplePictures, Wanted};
pub use record::{Progress, Record, RecordError, Start};
pub use refresh::RunPage;
pub use run::page;
pub use step::TracedStep;
pub use sweep::{SweepPage, SweepRow, sweep_page};

/// The page of a run, in its folder.
pub const REPORT_FILE: &str = "report.html";

/// Writes a page to `path`: all of the old one or all of the new one is there whenever the process ends.
///
/// # Errors
/// When it cannot be written.
pub fn write(path: &Path, page: &str) -> io::Result<()> {
    Ok(disk::replace(path, page.as_bytes())?)
}
