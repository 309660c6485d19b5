//! A choice written twice, by its name and as a table: `optimizer = "adamw"` beside
//! `[train.optimizer.sgd]`. TOML's parser sees a value that is extended or a key given twice.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

use super::keys::{KeyPath, Step};
use super::shape::Shape;
use super::syntax::Explained;
use crate::screen::written;

/// What the parser says of `span` in `text`, explained, where a choice is given twice there.
pub(super) fn explain(
    message: &str,
    text: &str,
    span: &Range<usize>,
    shape: &Shape,
) -> Option<Explained> {
    if message != "duplicate key" && !message.ends_with("with a dotted key") {
        return None;
    }
    let line_start = text.get(..span.start)?.rfind('\n').map_or(0, |at| at + 1);
    let (before, line) = (&text[..line_start], text[line_start..].lines().next()?);
    let here = Here::read(before, line)?;
    let depth = here.depth + here.steps(span.start - line_start);
    let path = KeyPath(here.path.get(..depth)?.to_vec());
    if !is_choice(shape, &path.0) {
        return None;
    }
    let key = last_key(&path)?;
    let earlier = Earlier::find(before, &path)?;
    let line_of = before[..earlier.at].matches('\n').count() + 1;
    let written_here = match &here.value {
        // A name beside a name is no more than a key given twice.
        Some(_) if depth == here.path.len() && earlier.variant.is_none() => return None,
        Some(value) if depth == here.path.len() => format!("`{key} = {value}`"),
        _ => "a table".to_owned(),
    };
    let written_before = match &earlier.variant {
        Some(_) => "a table".to_owned(),
        None => format!("`{key} = {}`", earlier.value),
    };
    let name = match &earlier.variant {
        Some(_) => here.value.unwrap_or_default(),
        None => earlier.value,
    };
    let variant = earlier.variant.as_deref().or(match here.path.get(depth) {
        Some(Step::Key(variant)) => Some(variant),
        _ => None,
    });
    let help = what_to_keep(&path, variant, &format!("{key} = {name}"), name);
    let message = format!(
        "`{path}` is given twice: as {written_before} in line {line_of}, and as {written_here} here"
    );
    Some(Explained { message, help: Some(help), span: span.clone() })
}

/// Which of the two to keep: the table of `variant`, where one is known, or `line`, which gives `name`.
fn what_to_keep(path: &KeyPath, variant: Option<&str>, line: &str, name: &str) -> String {
    let Some(variant) = variant else {
        return format!("it is one choice: keep the table, or `{line}`");
    };
    let header = path.key(variant).header();
    match variant == unquoted(name) {
        true => format!("`{header}` alone chooses `{variant}`: remove `{line}`"),
        false => format!("it is one choice: keep the table `{header}`, or `{line}`"),
    }
}

/// What stands in the line that the parser stumbled over.
struct Here<'a> {
    /// From the whole configuration to the line's last key.
    path: Vec<Step>,
    /// How many of these steps the table's header gives, where the line is not one.
    depth: usize,
    /// Where the other steps begin in the line.
    starts: Vec<usize>,
    /// The value after `=`.
    value: Option<&'a str>,
}

impl<'a> Here<'a> {
    fn read(before: &str, line: &'a str) -> Option<Self> {
        if let Some((path, starts)) = header(line) {
            return Some(Self { path, depth: 0, starts, value: None });
        }
        let (keys, value) = line.split_once('=')?;
        let above = before.lines().rev().find_map(header).map_or(Vec::new(), |(path, _)| path);
        let indent = keys.len() - keys.trim_start().len();
        let (steps, starts) = steps(keys.trim(), indent)?;
        let value = value.split('#').next().unwrap_or_default().trim();
        Some(Self {
            depth: above.len(),
            path: above.into_iter().chain(steps).collect(),
            starts,
            value: Some(value),
        })
    }

    /// How many of the line's steps begin up to `column`.
    fn steps(&self, column: usize) -> usize {
        self.starts.iter().filter(|start| **start <= column).count()
    }
}

/// The keys of a table's header, and where each begins in its line.
fn header(line: &str) -> Option<(Vec<Step>, Vec<usize>)> {
    let keys = line.trim_start().trim_start_matches('[');
    let start = line.len() - keys.len();
    let keys = keys.split(']').next().filter(|_| line.trim_start().starts_with('['))?;
    steps(keys.trim_end(), start)
}

fn steps(keys: &str, start: usize) -> Option<(Vec<Step>, Vec<usize>)> {
    let steps = KeyPath::parse(keys).ok()?;
    Some(steps.into_iter().map(|(step, span)| (step, start + span.start)).unzip())
}

/// Whether `path` leads to a choice that may be a table.
fn is_choice(shape: &Shape, path: &[Step]) -> bool {
    let choices = |shape: &Shape| match shape {
        Shape::Choice(variants) => variants.iter().any(|variant| variant.settings.is_some()),
        _ => false,
    };
    let Some((Step::Key(name), rest)) = path.split_first() else {
        return shape.alternatives().iter().any(choices);
    };
    shape.alternatives().iter().any(|shape| match shape {
        Shape::Table(keys) => {
            keys.iter().any(|key| key.name == *name && is_choice(&key.shape, rest))
        }
        Shape::Choice(variants) => variants.iter().any(|variant| {
            let settings = variant.settings.as_ref().filter(|_| variant.name == *name);
            settings.is_some_and(|settings| is_choice(settings, rest))
        }),
        Shape::Array { item, .. } => is_choice(item, path),
        _ => false,
    })
}

fn last_key(path: &KeyPath) -> Option<String> {
    match path.0.last()? {
        Step::Key(key) => Some(written(key)),
        Step::Index(_) => None,
    }
}

/// The choice as it was given first.
struct Earlier<'a> {
    /// Where it was.
    at: usize,
    /// The variant that a table names; none where the choice is a value.
    variant: Option<String>,
    /// The value, as written, or its first line.
    value: &'a str,
}

impl<'a> Earlier<'a> {
    fn find(before: &'a str, path: &KeyPath) -> Option<Self> {
        let root = DeTable::parse(before).ok()?;
        let mut table = root.get_ref();
        let (last, above) = path.0.split_last()?;
        for step in above {
            let Step::Key(key) = step else { return None };
            table = match table.get(key.as_str())?.get_ref() {
                DeValue::Table(table) => table,
                DeValue::Array(entries) => entries.last()?.get_ref().as_table()?,
                _ => return None,
            };
        }
        let Step::Key(key) = last else { return None };
        let (key, value) = table.get_key_value(key.as_str())?;
        let written = before.get(value.span())?;
        let variant = match value.get_ref() {
            DeValue::Table(variants) if !written.starts_with('{') => {
                Some(variants.keys().next()?.get_ref().to_string())
            }
            _ => None,
        };
        let value = written.lines().next().unwrap_or_default();
        Some(Self { at: key.span().start, variant, value })
    }
}

fn unquoted(value: &str) -> &str {
    value.trim_matches(['"', '\''])
}
