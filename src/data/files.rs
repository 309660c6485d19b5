//! Whether the files of all images are there, seen before any is read.

use std::path::Path;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::batch::BadImage;
use super::dataset::{Dataset, Sample};
use super::error::DataError;

/// Files asked for at once: what a network disk takes to answer is waiting, not work.
const AT_ONCE: usize = 16;

/// Refuses data sets some of whose files are missing, so that none is missed in the middle of a run.
///
/// Images of an array are in one file, whose length was seen when it was opened.
///
/// # Errors
/// How many are missing, and the first of them.
pub fn check_files(datasets: &[&Dataset]) -> Result<(), DataError> {
    let samples: Vec<&Sample> = datasets.iter().flat_map(|dataset| dataset.samples()).collect();
    let files: Vec<&Sample> = samples.into_iter().filter(|sample| sample.item.is_none()).collect();
    let missing = missing(&files);
    let Some(first) = missing.first().map(|place| files[*place]) else { return Ok(()) };
    Err(DataError::MissingFiles {
        missing: missing.len(),
        all: files.len(),
        first: Box::new(BadImage {
            path: first.path.clone(),
            table: first.table.to_path_buf(),
            line: first.line,
            reason: "the file does not exist".to_owned(),
        }),
    })
}

/// The places of the images whose file is not there, in order. What cannot be asked for is left to
/// whoever reads it.
fn missing(files: &[&Sample]) -> Vec<usize> {
    let next = AtomicUsize::new(0);
    let missing = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(files.len()) {
            scope.spawn(|| {
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    let Some(sample) = files.get(place) else { return };
                    if is_missing(&sample.path) {
                        missing.lock().unwrap_or_else(PoisonError::into_inner).push(place);
                    }
                }
            });
        }
    });
    let mut missing = missing.into_inner().unwrap_or_else(PoisonError::into_inner);
    missing.sort_unstable();
    missing
}

fn is_missing(path: &Path) -> bool {
    matches!(path.try_exists(), Ok(false))
}
