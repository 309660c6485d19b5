//! What validation found of the best state, for the page of its run.

use std::path::Path;

use super::state::{BEST, read_files};
use crate::evaluate::{Fitted, PredictionTable};
use crate::report::Findings;

/// What the best state of the run in `folder` holds of the validation images, every byte as it was saved;
/// `None` where there is no best state.
///
/// # Errors
/// When the state is damaged, in words.
pub fn best_findings(folder: &Path) -> Result<Option<Findings>, String> {
    let best = folder.join(BEST);
    if !best.is_dir() {
        return Ok(None);
    }
    let read = || read_files(&best, &[PredictionTable::FILE, Fitted::FILE]);
    // A run that is on may have put another state in its place meanwhile.
    let state = read().or_else(|_| read()).map_err(|error| error.to_string())?;
    let (epoch, step) = (state.tag.epoch, state.tag.step);
    Ok(Some(Findings { folder: state.folder, epoch, step, files: state.files }))
}
