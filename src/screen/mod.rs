//! What a person reads in a terminal: text and tables that fit its width, and counted things.

mod bytes;
mod count;
mod key;
mod lines;
mod quiet;
mod say;
mod table;
mod width;

pub use bytes::Bytes;
pub use count::{counted, thousands};
pub use key::written;
pub use lines::{side_by_side, wrapped};
pub use quiet::{bar_target, be_quiet, is_quiet, tell_progress};
pub use say::{abridged, say, say_drawn, visible, write_unless_lost};
pub use table::{Column, Frame, Table};
pub use width::{PAGE, stderr_columns, stdout_columns};

/// The columns that `text` takes in a terminal.
pub fn columns_of(text: &str) -> usize {
    console::measure_text_width(text)
}
