//! `--set KEY=VALUE`: changes of a parsed configuration, before it is checked.
//!
//! The right side is read as TOML; what is no TOML, or is wanted as a string, is taken as a string
//! as it stands. Setting a value replaces all of the old one, tables too. A choice has one variant:
//! setting a key of another variant drops the one that was there.

use std::ops::Range;

use toml::de::DeValue;

use super::conform::Conform;
use super::keys::{KeyPath, Step};
use super::shape::{Key, Shape};
use super::syntax::{Explained, explain};
use super::tree::{Entry, Node, Place, Problem, Reader, Value};
use super::wording::{names, wanted};
use crate::screen::counted;

/// A flag that changes the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flag {
    Set,
    Grid,
}

impl Flag {
    fn name(self) -> &'static str {
        match self {
            Self::Set => "--set",
            Self::Grid => "--grid",
        }
    }

    fn example(self) -> &'static str {
        match self {
            Self::Set => "write `--set KEY=VALUE`, such as `--set train.batch_size=32`",
            Self::Grid => "write `--grid KEY=VALUE,VALUE`, such as `--grid train.batch_size=16,32`",
        }
    }

    /// The flag and the text that follows it, as they are shown.
    pub(super) fn shown(self, text: &str) -> String {
        format!("{} {text}", self.name())
    }

    /// Where the text begins in what is shown.
    pub(super) fn text_start(self) -> usize {
        self.name().len() + 1
    }
}

/// Where the parts of `KEY=VALUE` stand.
pub(super) struct Assignment {
    pub(super) steps: Vec<(Step, Range<usize>)>,
    pub(super) value: Range<usize>,
}

/// Cuts `text`, what follows `flag` on the command line, into its parts; spans count in the text
/// shown, and the problem has this number.
pub(super) fn parse(number: usize, flag: Flag, text: &str) -> Result<Assignment, Problem> {
    let start = flag.text_start();
    let shift = |span: Range<usize>| span.start + start..span.end + start;
    let problem = |span: Range<usize>, message: String, help: &str| Problem {
        place: Place { flag: Some(number), span: shift(span) },
        message,
        help: Some(help.to_owned()),
    };
    let example = flag.example();
    let Some(equals) = equals_sign(text) else {
        let what = if flag == Flag::Set { "an override" } else { "a grid" };
        return Err(problem(0..text.len(), format!("{what} needs a `=`"), example));
    };
    let (key, value) = (&text[..equals], &text[equals + 1..]);
    let steps = KeyPath::parse(key)
        .map_err(|bad| problem(bad.span, format!("not a key: {}", bad.message), example))?;
    if value.trim().is_empty() {
        let help = flag.shown("'KEY=\"\"'");
        let help = format!("for an empty string write two quotes: `{help}`");
        return Err(problem(equals..text.len(), "a value must follow `=`".to_owned(), &help));
    }
    Ok(Assignment {
        steps: steps.into_iter().map(|(step, span)| (step, shift(span))).collect(),
        value: shift(equals + 1..text.len()),
    })
}

/// An override, cut into its parts; spans count in the text shown.
pub(super) struct Override<'a> {
    /// The number of the text in which it stands.
    pub(super) number: usize,
    pub(super) flag: Flag,
    pub(super) steps: Vec<(Step, Range<usize>)>,
    pub(super) value: &'a str,
    pub(super) value_start: usize,
}

/// Changes `root` as the override with this number says.
pub(super) fn apply(
    root: &mut Node,
    shape: &Shape,
    number: usize,
    text: &str,
) -> Result<(), Problem> {
    let flag = Flag::Set;
    let Assignment { steps, value } = parse(number, flag, text)?;
    let value_start = value.start;
    let value = &text[value_start - flag.text_start()..];
    Override { number, flag, steps, value, value_start }.set(root, shape, 0)
}

/// The first `=` outside of quotes.
fn equals_sign(flag: &str) -> Option<usize> {
    let mut quote = None;
    for (at, c) in flag.char_indices() {
        match (quote, c) {
            (None, '=') => return Some(at),
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), c) if c == open => quote = None,
            _ => {}
        }
    }
    None
}

impl Override<'_> {
    /// Where step `depth` stands.
    fn place(&self, depth: usize) -> Place {
        Place { flag: Some(self.number), span: self.steps[depth].1.clone() }
    }

    /// The path up to step `depth`.
    fn path(&self, depth: usize) -> KeyPath {
        KeyPath(self.steps[..depth].iter().map(|(step, _)| step.clone()).collect())
    }

    fn problem(&self, depth: usize, message: String, help: String) -> Problem {
        Problem { place: self.place(depth), message, help: Some(help) }
    }

    /// Changes `node`, which lies `depth` steps along the key.
    pub(super) fn set(&self, node: &mut Node, shape: &Shape, depth: usize) -> Result<(), Problem> {
        if let Shape::Again(again) = shape {
            return self.set(node, &again.shape(), depth);
        }
        let Some((step, _)) = self.steps.get(depth) else {
            *node = self.read(shape)?;
            return Ok(());
        };
        let shape = self.below(shape, step);
        match (shape, step) {
            (Shape::Array { item, .. }, step) => self.set_item(node, item, step, depth),
            (Shape::Table(keys), Step::Key(name)) => {
                let Some(key) = keys.iter().find(|key| key.name == *name) else {
                    let conform = Conform::new(node, shape);
                    let place = self.place(depth);
                    return Err(conform.unknown_key(name, &place, keys, &self.path(depth)));
                };
                self.set_entry(node, &key.shape, name, depth, false)
            }
            (Shape::Map(shape), Step::Key(name)) => self.set_entry(node, shape, name, depth, false),
            (Shape::Beside { choice, keys }, Step::Key(name)) => {
                self.set_beside(node, choice, keys, name, depth)
            }
            (Shape::Choice(variants), Step::Key(name)) => {
                let variant = variants.iter().find(|variant| variant.name == *name);
                let Some(settings) = variant.and_then(|variant| variant.settings.as_ref()) else {
                    let conform = Conform::new(node, shape);
                    let place = self.place(depth);
                    let path = self.path(depth);
                    let known = || names(variants);
                    return Err(conform.unknown_variant(name, &place, variants, &path, known));
                };
                self.set_entry(node, settings, name, depth, true)
            }
            (shape, _) => {
                let path = self.path(depth);
                let message = format!("`{path}` is {} and has no keys", wanted(shape));
                Err(self.problem(
                    depth,
                    message,
                    format!("write `{}`", self.flag.shown(&format!("{path}=…"))),
                ))
            }
        }
    }

    /// The alternative of `shape` that `step` leads into.
    fn below<'s>(&self, shape: &'s Shape, step: &Step) -> &'s Shape {
        let leads = |shape: &&Shape| match (shape, step) {
            (Shape::Choice(variants), Step::Key(name)) => {
                variants.iter().any(|one| one.settings.is_some() && one.name == *name)
            }
            (Shape::Map(_) | Shape::Table(_), Step::Key(_)) => true,
            (Shape::Array { .. }, Step::Index(_)) => true,
            (Shape::Array { .. }, Step::Key(name)) => name.parse::<usize>().is_ok(),
            _ => false,
        };
        shape.alternatives().iter().find(leads).unwrap_or(shape)
    }

    fn set_item(
        &self,
        node: &mut Node,
        item: &Shape,
        step: &Step,
        depth: usize,
    ) -> Result<(), Problem> {
        let path = self.path(depth);
        let index = match step {
            Step::Index(index) => Some(*index),
            Step::Key(key) => key.parse().ok(),
        };
        let Some(index) = index else {
            let message = format!("`{path}` is an array, and its entries have numbers");
            return Err(self.problem(depth, message, format!("write `{path}[0]` for the first")));
        };
        let Value::Array(items) = &mut node.value else {
            let message = format!("`{path}` is not an array here");
            return Err(self.problem(depth, message, format!("set all of it: `{path}=[…]`")));
        };
        let count = items.len();
        let Some(node) = items.get_mut(index) else {
            let message = format!("`{path}` has {}", counted(count, "entry", "entries"));
            let help = match count {
                0 => format!("set all of it: `{path}=[…]`"),
                count => format!("they are counted from 0: the last is `{path}[{}]`", count - 1),
            };
            return Err(self.problem(depth, message, help));
        };
        self.set(node, item, depth + 1)
    }

    /// Sets a key beside a choice, which stays, or the choice, beside which the keys stay.
    fn set_beside(
        &self,
        node: &mut Node,
        choice: &Shape,
        keys: &[Key],
        name: &str,
        depth: usize,
    ) -> Result<(), Problem> {
        if let Value::String(variant) = &node.value {
            let place = node.place.clone();
            let settings = Node { place: place.clone(), value: Value::Table(Vec::new()) };
            let entry = Entry { name: variant.clone(), key: place, node: settings };
            node.value = Value::Table(vec![entry]);
        }
        if let Some(key) = keys.iter().find(|key| key.name == name) {
            return self.set_entry(node, &key.shape, name, depth, false);
        }
        let (conform, place, path) =
            (Conform::new(node, choice), self.place(depth), self.path(depth));
        if let Some(problem) = conform.misspelt(name, &place, choice, keys, &path) {
            return Err(problem);
        }
        let Value::Table(entries) = &mut node.value else {
            return self.set(node, choice, depth);
        };
        let is_beside = |entry: &Entry| keys.iter().any(|key| key.name == entry.name);
        let (beside, others) = std::mem::take(entries).into_iter().partition(is_beside);
        *entries = others;
        let set = self.set(node, choice, depth);
        if let Value::Table(entries) = &mut node.value {
            entries.extend::<Vec<Entry>>(beside);
        }
        set
    }

    /// Sets what is under the key `name` of a table, making the table and the key where needed.
    fn set_entry(
        &self,
        node: &mut Node,
        shape: &Shape,
        name: &str,
        depth: usize,
        alone: bool,
    ) -> Result<(), Problem> {
        if !matches!(node.value, Value::Table(_)) {
            *node = Node { place: self.place(depth), value: Value::Table(Vec::new()) };
        }
        let Value::Table(entries) = &mut node.value else { return Ok(()) };
        if alone {
            entries.retain(|entry| entry.name == name);
        }
        let at = entries.iter().position(|entry| entry.name == name).unwrap_or_else(|| {
            let place = self.place(depth);
            let node = Node { place: place.clone(), value: Value::Table(Vec::new()) };
            entries.push(Entry { name: name.to_owned(), key: place, node });
            entries.len() - 1
        });
        if depth + 1 == self.steps.len() {
            entries[at].key = self.place(depth);
        }
        self.set(&mut entries[at].node, shape, depth + 1)
    }

    /// The right side, as `shape` wants it.
    fn read(&self, shape: &Shape) -> Result<Node, Problem> {
        let reader = Reader { flag: Some(self.number), offset: self.value_start };
        let as_it_stands = || Node {
            place: reader.place(0..self.value.len()),
            value: Value::String(self.value.trim().to_owned()),
        };
        let parsed = DeValue::parse(self.value);
        let text_only = *shape == Shape::String;
        match parsed {
            Ok(value) => {
                let node = reader.node(&value)?;
                let quoted = matches!(node.value, Value::String(_));
                Ok(if text_only && !quoted { as_it_stands() } else { node })
            }
            Err(_) if text_only || !self.value.trim_start().starts_with(['"', '\'', '[', '{']) => {
                Ok(as_it_stands())
            }
            Err(error) => {
                let span = error.span().unwrap_or(0..self.value.len());
                let Explained { message, help, span } = explain(error.message(), self.value, span);
                Err(Problem { place: reader.place(span), message, help })
            }
        }
    }
}
