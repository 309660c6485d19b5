//! Standard output: what the user asked for.

use std::borrow::Cow;
use std::io::{self, ErrorKind, IsTerminal, Write};

use super::Failure;
use crate::screen::visible;

/// Writes `text` to standard output, ending with a new line. A terminal gets its control characters
/// written out.
///
/// # Errors
/// When it cannot be written. A reader that has gone (`trainer schema | head`) has what it wanted; that
/// is no error.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut output = io::stdout().lock();
    let text = if output.is_terminal() { visible(text) } else { Cow::Borrowed(text) };
    let end = if text.ends_with('\n') { "" } else { "\n" };
    written(write!(output, "{text}{end}").and_then(|()| output.flush()))
}

/// What became of writing to standard output.
pub(super) fn written(outcome: io::Result<()>) -> Result<(), Failure> {
    match outcome {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::other(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}
