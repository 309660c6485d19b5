//! Whether messages are coloured.

use std::io::stderr;

use anstream::{AutoStream, ColorChoice};

/// Whether what goes to standard error is coloured: on a terminal that has colours, unless `NO_COLOR`
/// is set; elsewhere where `CLICOLOR_FORCE` is. clap decides in the same way for help and for wrong
/// command lines.
pub fn colours() -> bool {
    AutoStream::choice(&stderr()) != ColorChoice::Never
}
