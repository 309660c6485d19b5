//! From a key path to the place where it was written.

use super::error::{ConfigError, Fault, Position};
use super::keys::{KeyPath, Step};
use super::overrides::shown;
use super::tree::{Node, Place, Problem, Value};

/// What a configuration was read from; turns keys into positions.
#[derive(Debug, Clone)]
pub struct Source {
    file: String,
    text: String,
    flags: Vec<String>,
    pub(super) tree: Node,
}

impl Source {
    pub(super) fn new(file: String, text: String, flags: &[String], tree: Node) -> Self {
        Self { file, text, flags: flags.iter().map(|flag| shown(flag)).collect(), tree }
    }

    /// Where `key` was given, in the file or in an override: its value, or the header of a table.
    /// Where it was not given, the table that it belongs in.
    pub fn position(&self, key: &str) -> Position {
        self.at(&self.place(key))
    }

    /// The fault with its position.
    pub fn error(&self, fault: Fault) -> ConfigError {
        let place = self.place(&fault.key);
        let mut position = self.at(&place);
        let also = fault.also.iter().map(|key| self.place(key));
        let beside = also.filter(|also| also.flag == place.flag && also.span != place.span);
        position.also = beside.map(|also| also.span).collect();
        ConfigError { message: fault.message, help: fault.help, position: Some(Box::new(position)) }
    }

    pub(super) fn problem(&self, problem: Problem) -> ConfigError {
        let position = Some(Box::new(self.at(&problem.place)));
        ConfigError { message: problem.message, help: problem.help, position }
    }

    fn at(&self, place: &Place) -> Position {
        match place.flag.and_then(|number| self.flags.get(number)) {
            Some(flag) => Position::new(None, flag, place.span.clone()),
            None => Position::new(Some(self.file.clone()), &self.text, place.span.clone()),
        }
    }

    fn place(&self, key: &str) -> Place {
        let mut node = &self.tree;
        for (step, _) in KeyPath::parse(key).unwrap_or_default() {
            let below = match (&node.value, &step) {
                (Value::Table(_), Step::Key(key)) => node.get(key),
                (Value::Array(items), Step::Index(index)) => items.get(*index),
                _ => None,
            };
            match below {
                Some(below) => node = below,
                None => break,
            }
        }
        node.place.clone()
    }
}
