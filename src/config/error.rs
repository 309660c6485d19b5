//! What is wrong with a configuration, shown at the place where it was written.

use std::fmt;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

use crate::screen::{abridged, visible};

/// A configuration that cannot be used: what is wrong, where, and what to write instead.
///
/// `Display` gives the whole message, over several lines and without colour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    pub(super) message: String,
    pub(super) help: Option<String>,
    pub(super) note: Option<String>,
    // Boxed because every `Result` of loading is as large as its error.
    pub(super) position: Option<Box<Position>>,
}

/// A place in the file or in an override.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// The file as the user named it, or `None` for an override.
    pub file: Option<String>,
    /// Counted from 1; 1 in an override.
    pub line: usize,
    /// Counted from 1, in characters.
    pub column: usize,
    pub(super) text: String,
    pub(super) span: Range<usize>,
    pub(super) also: Vec<Range<usize>>,
}

impl Position {
    /// The place of `span` in `text`, the content of `file` or an override.
    pub(super) fn new(file: Option<String>, text: &str, span: Range<usize>) -> Self {
        let start = floor(text, span.start.min(text.len()));
        let end = ceil(text, span.end.clamp(start, text.len()));
        let before = &text[..start];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        Self {
            file,
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            text: text.to_owned(),
            span: start..end,
            also: Vec::new(),
        }
    }

    /// The text that is wrong; empty where something is missing.
    pub fn faulty(&self) -> &str {
        &self.text[self.span.clone()]
    }
}

fn floor(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

fn ceil(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at += 1;
    }
    at
}

impl ConfigError {
    /// What is wrong, in one line.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What to write instead.
    pub fn help(&self) -> Option<&str> {
        self.help.as_deref()
    }

    /// Says under which circumstance it is wrong, such as in which combination of a sweep.
    pub fn noted(mut self, note: String) -> Self {
        self.note = Some(note);
        self
    }

    /// Where it is wrong; `None` when the file itself cannot be read.
    pub fn position(&self) -> Option<&Position> {
        self.position.as_deref()
    }

    /// The whole message, with colours for a terminal or without.
    pub fn render(&self, colour: bool) -> String {
        let shown = |text: &str| abridged(&visible(text)).into_owned();
        let mut group = Group::with_title(Level::ERROR.primary_title(shown(&self.message)));
        if let Some(position) = &self.position {
            let primary = AnnotationKind::Primary.span(position.span.clone());
            let also = position.also.iter().map(|span| AnnotationKind::Context.span(span.clone()));
            let snippet =
                Snippet::source(position.text.as_str()).annotation(primary).annotations(also);
            // An override shows for itself where it stands: on the command line.
            group = group.element(match &position.file {
                Some(file) => snippet.path(shown(file)),
                None => snippet.line_numbering(false),
            });
        }
        if let Some(note) = &self.note {
            group = group.element(Level::NOTE.message(shown(note)));
        }
        if let Some(help) = &self.help {
            group = group.element(Level::HELP.message(shown(help)));
        }
        let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
        renderer.render(&[group])
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.render(false))
    }
}

impl std::error::Error for ConfigError {}
