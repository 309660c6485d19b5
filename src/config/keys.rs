//! Key paths such as `heads[1].loss.bce` and `data.chexpert.uncertain."Pleural Effusion"`.

use std::fmt;
use std::ops::Range;

use crate::screen::written;

/// One step of a key path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Into a table.
    Key(String),
    /// Into an array, counted from 0.
    Index(usize),
}

/// The way from the whole configuration to one value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct KeyPath(pub(super) Vec<Step>);

/// Why a text is no key path, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BadPath {
    pub(super) span: Range<usize>,
    pub(super) message: &'static str,
}

impl KeyPath {
    /// The steps of `text` and where each of them stands in it.
    ///
    /// More is allowed than in TOML: `heads[0]`, and spaces in a key, because a shell takes away
    /// the quotes around it.
    pub(super) fn parse(text: &str) -> Result<Vec<(Step, Range<usize>)>, BadPath> {
        let mut steps = Vec::new();
        let mut at = 0;
        loop {
            let (key, end) = parse_key(text, at)?;
            steps.push((Step::Key(key), at..end));
            at = end;
            while text[at..].starts_with('[') {
                let close = text[at..].find(']').map(|offset| at + offset);
                let index = close.and_then(|close| text[at + 1..close].trim().parse().ok());
                let (Some(close), Some(index)) = (close, index) else {
                    let span = at..text.len();
                    return Err(BadPath { span, message: "a number and `]` must follow `[`" });
                };
                steps.push((Step::Index(index), at..close + 1));
                at = close + 1;
            }
            match text[at..].chars().next() {
                None => return Ok(steps),
                Some('.') => at += 1,
                Some(_) => {
                    let span = at..text.len();
                    return Err(BadPath { span, message: "a `.` must stand between two keys" });
                }
            }
        }
    }

    pub(super) fn key(&self, name: &str) -> Self {
        self.with(Step::Key(name.to_owned()))
    }

    pub(super) fn index(&self, index: usize) -> Self {
        self.with(Step::Index(index))
    }

    fn with(&self, step: Step) -> Self {
        let mut steps = self.0.clone();
        steps.push(step);
        Self(steps)
    }

    pub(super) fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The path as a table header has it: entries of an array of tables are not counted there.
    pub(super) fn header(&self) -> String {
        let keys = self.0.iter().filter(|step| matches!(step, Step::Key(_))).cloned();
        let keys = KeyPath(keys.collect());
        match self.0.last() {
            Some(Step::Index(_)) => format!("[[{keys}]]"),
            _ => format!("[{keys}]"),
        }
    }
}

impl fmt::Display for KeyPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, step) in self.0.iter().enumerate() {
            match step {
                Step::Index(index) => write!(formatter, "[{index}]")?,
                Step::Key(key) => {
                    let dot = if place == 0 { "" } else { "." };
                    write!(formatter, "{dot}{}", written(key))?;
                }
            }
        }
        Ok(())
    }
}

/// The key that begins at `start`, without its quotes, and where it ends.
fn parse_key(text: &str, start: usize) -> Result<(String, usize), BadPath> {
    let rest = &text[start..];
    if let Some(quote) = rest.chars().next().filter(|c| *c == '"' || *c == '\'') {
        let Some(length) = rest[1..].find(quote) else {
            return Err(BadPath { span: start..text.len(), message: "this quote is not closed" });
        };
        return Ok((rest[1..1 + length].to_owned(), start + length + 2));
    }
    let length = rest.find(['.', '[', '"', '\'']).unwrap_or(rest.len());
    let key = rest[..length].trim();
    if key.is_empty() {
        return Err(BadPath { span: start..start + length, message: "a key is missing here" });
    }
    Ok((key.to_owned(), start + length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(text: &str) -> Vec<Step> {
        KeyPath::parse(text).expect("is a path").into_iter().map(|(step, _)| step).collect()
    }

    #[test]
    fn a_path_written_out_reads_back_the_same() {
        let texts = [
            "train.epochs",
            "heads[1].labels[0]",
            "uncertain.\"Pleural Effusion\"",
            "a.'5\" \\ 6\"'.b",
        ];
        for text in texts {
            assert_eq!(KeyPath(steps(text)).to_string(), text);
        }
    }

    #[test]
    fn quotes_that_a_shell_took_away_may_be_missing() {
        let with = steps("data.chexpert.uncertain.'Pleural Effusion'");
        assert_eq!(with, steps("data.chexpert.uncertain.Pleural Effusion"));
    }

    #[test]
    fn what_is_no_path_is_refused_where_it_breaks() {
        for (text, at) in [("", 0), ("a..b", 2), ("a[x]", 1), ("a[0]b", 4), ("a.'b", 2), ("a.", 2)]
        {
            assert_eq!(KeyPath::parse(text).expect_err(text).span.start, at, "{text}");
        }
    }
}
