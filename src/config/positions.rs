//! From a key path to the place where it was written.

use super::error::{ConfigError, Position};
use super::keys::{KeyPath, Step};
use super::tree::{Node, Place, Problem, Value};
use crate::fault::Fault;

/// What a configuration was read from; turns keys into positions.
#[derive(Debug, Clone)]
pub struct Source {
    file: String,
    text: String,
    flags: Vec<String>,
    pub(super) tree: Node,
}

impl Source {
    /// `flags` as they are shown.
    pub(super) fn new(file: String, text: String, flags: Vec<String>, tree: Node) -> Self {
        Self { file, text, flags, tree }
    }

    /// Changes the tree, or leaves it as it is on a problem.
    pub(super) fn change(
        &mut self,
        change: impl FnOnce(&mut Node) -> Result<(), Problem>,
    ) -> Result<(), ConfigError> {
        let mut tree = self.tree.clone();
        change(&mut tree).map_err(|problem| self.problem(problem))?;
        self.tree = tree;
        Ok(())
    }

    /// Shows a further flag in positions; its number.
    pub(super) fn add_flag(&mut self, shown: String) -> usize {
        self.flags.push(shown);
        self.flags.len() - 1
    }

    /// Where `key` was given, in the file or in an override: its value, or the header of a table.
    /// Where it was not given, the table that it belongs in.
    pub fn position(&self, key: &str) -> Position {
        self.at(&self.place(key))
    }

    /// Whether `key` was given, in the file or in an override.
    pub fn has(&self, key: &str) -> bool {
        let steps = KeyPath::parse(key).unwrap_or_default().into_iter().map(|(step, _)| step);
        self.value(&KeyPath(steps.collect())).is_some()
    }

    /// The fault with its position.
    pub fn error(&self, fault: Fault) -> ConfigError {
        let place = match fault.on_key {
            true => self.key_place(&fault.key),
            false => self.place(&fault.key),
        };
        let mut position = self.at(&place);
        let also = fault.also.iter().map(|key| self.place(key));
        let beside = also.filter(|also| also.flag == place.flag && also.span != place.span);
        position.also = beside.map(|also| also.span).collect();
        let position = Some(Box::new(position));
        ConfigError { message: fault.message, help: fault.help, note: None, position }
    }

    pub(super) fn problem(&self, problem: Problem) -> ConfigError {
        let position = Some(Box::new(self.at(&problem.place)));
        ConfigError { message: problem.message, help: problem.help, note: None, position }
    }

    fn at(&self, place: &Place) -> Position {
        match place.flag.and_then(|number| self.flags.get(number)) {
            Some(flag) => Position::new(None, flag, place.span.clone()),
            None => Position::new(Some(self.file.clone()), &self.text, place.span.clone()),
        }
    }

    /// What was given at `path`.
    pub(super) fn value(&self, path: &KeyPath) -> Option<&Node> {
        path.0.iter().try_fold(&self.tree, below)
    }

    /// Where the last part of `key` was written, and not its value.
    fn key_place(&self, key: &str) -> Place {
        let entry = || {
            let mut steps = KeyPath::parse(key).ok()?.into_iter().map(|(step, _)| step);
            let last = steps.next_back()?;
            let table = steps.try_fold(&self.tree, |node, step| below(node, &step))?;
            match (&table.value, last) {
                (Value::Table(entries), Step::Key(name)) => {
                    entries.iter().find(|entry| entry.name == name)
                }
                _ => None,
            }
        };
        entry().map_or_else(|| self.place(key), |entry| entry.key.clone())
    }

    fn place(&self, key: &str) -> Place {
        let mut node = &self.tree;
        for (step, _) in KeyPath::parse(key).unwrap_or_default() {
            match below(node, &step) {
                Some(below) => node = below,
                None => break,
            }
        }
        node.place.clone()
    }
}

fn below<'a>(node: &'a Node, step: &Step) -> Option<&'a Node> {
    match (&node.value, step) {
        (Value::Table(_), Step::Key(key)) => node.get(key),
        (Value::Array(items), Step::Index(index)) => items.get(*index),
        _ => None,
    }
}
