//! Whether a person wants to see how far the program is.

use std::sync::atomic::{AtomicBool, Ordering};

use indicatif::ProgressDrawTarget;

use super::say;

/// `--quiet` is the process's, as its standard error is.
static QUIET: AtomicBool = AtomicBool::new(false);

/// From now on no progress is shown; warnings, errors and results are.
pub fn be_quiet() {
    QUIET.store(true, Ordering::Relaxed);
}

/// Whether no progress is to be shown.
pub fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Where bars are drawn: on standard error, which shows none where it is no terminal, or nowhere.
pub fn bar_target() -> ProgressDrawTarget {
    if is_quiet() { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() }
}

/// Writes a line about progress to standard error, unless none is to be shown.
pub fn tell_progress(line: &str) {
    if !is_quiet() {
        say(line);
    }
}
