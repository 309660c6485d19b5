//! How wide a line may be.

use console::Term;

/// Columns of a line where no terminal says how many it has: in a pipe and in a file.
pub const PAGE: usize = 80;

/// Columns for what is printed on standard output: those of its terminal. Where it is a pipe or a
/// file, those that the variable `COLUMNS` says, or [`PAGE`].
pub fn stdout_columns() -> usize {
    let asked = || std::env::var("COLUMNS").ok()?.trim().parse().ok();
    of(&Term::stdout()).or_else(asked).filter(|columns| *columns > 0).unwrap_or(PAGE)
}

/// Columns of the terminal that standard error is; `None` for a pipe or a file, where nothing wraps
/// a long line.
pub fn stderr_columns() -> Option<usize> {
    of(&Term::stderr())
}

fn of(terminal: &Term) -> Option<usize> {
    terminal.size_checked().map(|(_, columns)| usize::from(columns))
}
