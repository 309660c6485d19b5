//! Standard output: what the user asked for.

use std::io::{self, ErrorKind, Write};

use super::Failure;

/// Writes `text` to standard output, ending with a new line.
///
/// A reader that has gone (`trainer schema | head`) has what it wanted; that is no error.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut output = io::stdout().lock();
    let end = if text.ends_with('\n') { "" } else { "\n" };
    match write!(output, "{text}{end}").and_then(|()| output.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::other(error)),
        _ => Ok(()),
    }
}
