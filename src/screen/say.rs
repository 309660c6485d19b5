//! What the program says on standard error, all of it.
//!
//! `eprintln!` panics where nothing can be written: the disk of a log is full, the reader of a pipe has
//! gone, the terminal is lost. A message that cannot be written is left out here, and nothing else
//! happens: exit codes say what became of the program. Clippy refuses `eprintln!` elsewhere.

use std::borrow::Cow;
use std::fmt::{Display, Write as _};
use std::io::{self, Write};

use super::thousands;

/// Writes a line to standard error. Control characters in it are shown, not sent to the terminal.
pub fn say(line: impl Display) {
    say_drawn(&visible(&line.to_string()));
}

/// The same, for text with colours of the program's own.
pub fn say_drawn(text: &str) {
    write_unless_lost(&mut io::stderr(), text);
}

/// Writes a line; one that cannot be written is left out.
pub fn write_unless_lost(to: &mut impl Write, line: &str) {
    // At once, so that lines of several threads and processes do not mix.
    let _ = to.write_all(format!("{line}\n").as_bytes()).and_then(|()| to.flush());
}

/// `text` with its control characters, and those that turn the direction of letters, written out as
/// `\u{1b}`: text from files and tables must not move the cursor. Tabs and ends of lines stay.
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for sign in text.chars() {
        match is_hidden(sign) {
            true => drop(write!(shown, "{}", sign.escape_default())),
            false => shown.push(sign),
        }
    }
    Cow::Owned(shown)
}

/// `text` with the middle left out of each line that is longer than any message: what a file holds may be
/// a megabyte on one line.
pub fn abridged(text: &str) -> Cow<'_, str> {
    /// Characters.
    const LONGEST: usize = 2000;
    const END: usize = 200;
    if text.len() <= LONGEST {
        return Cow::Borrowed(text);
    }
    let line = |line: &str| {
        let length = line.chars().count();
        if length <= LONGEST {
            return line.to_owned();
        }
        let begin: String = line.chars().take(LONGEST - END).collect();
        let end: String = line.chars().skip(length - END).collect();
        format!("{begin} [… {} characters …] {end}", thousands(length - LONGEST))
    };
    Cow::Owned(text.split('\n').map(line).collect::<Vec<_>>().join("\n"))
}

fn is_hidden(sign: char) -> bool {
    let turns = matches!(sign, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || sign.is_control() && !matches!(sign, '\n' | '\t')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown_and_ends_of_lines_stay() {
        assert!(matches!(visible("Ödem\tone\ntwo"), Cow::Borrowed(_)));
        let hostile = "a\u{1b}[2Jb\rc\u{7}\u{9b}31m\u{202e}d";
        assert_eq!(visible(hostile), "a\\u{1b}[2Jb\\rc\\u{7}\\u{9b}31m\\u{202e}d");
    }

    #[test]
    fn the_middle_of_a_very_long_line_is_left_out() {
        let text = format!("a\n{}{}z", "é".repeat(1_000_000), "e".repeat(500));
        let shown = abridged(&text);
        assert!(shown.starts_with("a\nééé") && shown.ends_with("eez"), "{shown}");
        assert!(shown.contains("é [… 998,501 characters …] e"), "{shown}");
        let usual = "word ".repeat(300) + "\n" + &"word ".repeat(300);
        assert_eq!(abridged(&usual), usual);
    }

    #[test]
    fn a_line_that_cannot_be_written_is_left_out() {
        struct Lost(io::ErrorKind);
        impl Write for Lost {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(self.0.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Err(self.0.into())
            }
        }
        for kind in [io::ErrorKind::BrokenPipe, io::ErrorKind::StorageFull, io::ErrorKind::Other] {
            write_unless_lost(&mut Lost(kind), "epoch 1");
        }
        let mut log = Vec::new();
        write_unless_lost(&mut log, "epoch 1");
        assert_eq!(log, b"epoch 1\n");
    }
}
