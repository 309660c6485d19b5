//! Holds a parsed configuration against the shape it must have, and says what is wrong in the
//! user's words at the place where it was written.

use super::keys::{KeyPath, Step};
use super::shape::{Key, Shape, Variant};
use super::tree::{Entry, Node, Place, Problem, Value};
use super::wording::{
    addition, found, list, names, nearest, offered, quoted, rewritten, wanted, with_settings,
};
use crate::screen::written;

/// A configuration under check.
pub(super) struct Conform<'a> {
    root: &'a Node,
    shape: &'a Shape,
}

impl<'a> Conform<'a> {
    pub(super) fn new(root: &'a Node, shape: &'a Shape) -> Self {
        Self { root, shape }
    }

    /// The first mistake, in the order of the file; missing keys of a table come after what is
    /// wrong in it, because a misspelt key is also a missing one.
    pub(super) fn check(&self) -> Result<(), Problem> {
        self.value(self.root, self.shape, &KeyPath::default())
    }

    fn value(&self, node: &Node, shape: &Shape, path: &KeyPath) -> Result<(), Problem> {
        match (shape, &node.value) {
            (Shape::Anything, _) => Ok(()),
            (Shape::Again(again), _) => self.value(node, &again.shape(), path),
            (Shape::String, Value::String(_)) | (Shape::Boolean, Value::Boolean(_)) => Ok(()),
            (Shape::Integer { min }, Value::Integer(number)) if number >= min => Ok(()),
            (Shape::Number, Value::Integer(_)) => Ok(()),
            (Shape::Number, Value::Float(number)) if number.is_finite() => Ok(()),
            (Shape::Array { item, fewest, most }, Value::Array(items))
                if (*fewest..=*most).contains(&items.len()) =>
            {
                // Of an entry alone, its key would be said to be that entry.
                let whole = || rewritten(&last(path), node, shape);
                let mut items = items.iter().enumerate();
                items.try_for_each(|(index, entry)| {
                    let checked = self.value(entry, item, &path.index(index));
                    let is_one = !matches!(entry.value, Value::Array(_) | Value::Table(_));
                    checked.map_err(|problem| {
                        match is_one && rewritten("", entry, item).is_some() {
                            true => Problem { help: whole(), ..problem },
                            false => problem,
                        }
                    })
                })
            }
            (Shape::Array { .. }, Value::Array(items)) => {
                let message = format!("`{path}` must be {}, not of {}", wanted(shape), items.len());
                Err(Problem { place: node.place.clone(), message, help: None })
            }
            (Shape::Table(keys), Value::Table(entries)) => self.table(node, entries, keys, path),
            (Shape::Map(shape), Value::Table(entries)) => entries
                .iter()
                .try_for_each(|entry| self.value(&entry.node, shape, &path.key(&entry.name))),
            (Shape::Choice(variants), Value::Table(entries)) => {
                self.choice(node, entries, variants, path)
            }
            (Shape::Choice(variants), Value::String(name)) => {
                self.bare(node, name, variants, shape, path)
            }
            (Shape::Beside { choice, keys }, Value::Table(entries)) => {
                self.beside(node, entries, choice, keys, path)
            }
            (Shape::Beside { choice, .. }, _) => self.value(node, choice, path),
            (Shape::Either(shapes), value) => match (fitting(shapes, value), value) {
                // A name that is unknown may have been meant for any of the shapes.
                (Some(Shape::Choice(variants)), Value::String(name)) => {
                    self.bare(node, name, variants, shape, path)
                }
                (Some(shape), _) => self.value(node, shape, path).map_err(|problem| Problem {
                    help: problem.help.or(meant(shapes, value)),
                    ..problem
                }),
                (None, _) => Err(wrong_type(node, shape, path)),
            },
            _ => Err(wrong_type(node, shape, path)),
        }
    }

    fn table(
        &self,
        node: &Node,
        entries: &[Entry],
        keys: &[Key],
        path: &KeyPath,
    ) -> Result<(), Problem> {
        for entry in entries {
            match keys.iter().find(|key| key.name == entry.name) {
                Some(key) => {
                    let checked = self.value(&entry.node, &key.shape, &path.key(&key.name));
                    checked.map_err(|problem| described(problem, key))?;
                }
                None => return Err(self.unknown_key(&entry.name, &entry.key, keys, path)),
            }
        }
        let missing =
            keys.iter().find(|key| key.required && !entries.iter().any(|e| e.name == key.name));
        let Some(key) = missing else { return Ok(()) };
        let place = node.place.clone();
        let table = match &key.shape {
            Shape::Table(_) | Shape::Map(_) => "table",
            Shape::Array { item, .. } if matches!(**item, Shape::Table(_)) => "table",
            shape if shape.variants().iter().any(|one| one.settings.is_some()) => "table",
            _ => "key",
        };
        let name = &key.name;
        let message = if path.is_root() {
            format!("the {table} `{name}` is missing")
        } else {
            format!("the {table} `{name}` is missing in `{path}`")
        };
        Err(Problem { place, message, help: Some(addition(key, path)) })
    }

    /// A choice in a table that may hold keys beside the variant.
    fn beside(
        &self,
        node: &Node,
        entries: &[Entry],
        choice: &Shape,
        keys: &[Key],
        path: &KeyPath,
    ) -> Result<(), Problem> {
        let mut others = Vec::new();
        for entry in entries {
            if let Some(key) = keys.iter().find(|key| key.name == entry.name) {
                let checked = self.value(&entry.node, &key.shape, &path.key(&key.name));
                checked.map_err(|problem| described(problem, key))?;
                continue;
            }
            if let Some(problem) = self.misspelt(&entry.name, &entry.key, choice, keys, path) {
                return Err(problem);
            }
            others.push(entry.clone());
        }
        let rest = Node { place: node.place.clone(), value: Value::Table(others) };
        self.value(&rest, choice, path)
    }

    /// A name that is no variant and was meant for a key beside the choice.
    pub(super) fn misspelt(
        &self,
        name: &str,
        place: &Place,
        choice: &Shape,
        keys: &[Key],
        path: &KeyPath,
    ) -> Option<Problem> {
        let is_variant = choice.variants().iter().any(|variant| variant.name == name);
        let near = nearest(name, keys.iter().map(|key| key.name.as_str()));
        let meant = !is_variant && near.is_some();
        meant.then(|| self.unknown_key(name, place, keys, path))
    }

    fn choice(
        &self,
        node: &Node,
        entries: &[Entry],
        variants: &[Variant],
        path: &KeyPath,
    ) -> Result<(), Problem> {
        for entry in entries {
            let variant = variants.iter().find(|variant| variant.name == entry.name);
            match variant.map(|variant| &variant.settings) {
                Some(Some(shape)) => self.value(&entry.node, shape, &path.key(&entry.name))?,
                Some(None) => {
                    let place = entry.key.clone();
                    let message = format!("`{}` of `{path}` has no settings", entry.name);
                    let help = Some(format!("write `{} = \"{}\"`", last(path), entry.name));
                    return Err(Problem { place, message, help });
                }
                None => {
                    let (name, place) = (&entry.name, &entry.key);
                    let known = || names(variants);
                    return Err(self.unknown_variant(name, place, variants, path, known));
                }
            }
        }
        match entries {
            [_] => Ok(()),
            [] => {
                let message = format!("`{path}` names no choice");
                let tables: Vec<String> =
                    variants.iter().map(|one| path.key(&one.name).header()).collect();
                let help = Some(format!("write {}", list(&tables, "or")));
                Err(Problem { place: node.place.clone(), message, help })
            }
            [first, second, ..] => {
                let message = format!(
                    "`{path}` is one choice, but both `{}` and `{}` are given",
                    first.name, second.name
                );
                let help = Some(format!("keep one of `{}` and `{}`", first.name, second.name));
                Err(Problem { place: second.key.clone(), message, help })
            }
        }
    }

    fn bare(
        &self,
        node: &Node,
        name: &str,
        variants: &[Variant],
        shape: &Shape,
        path: &KeyPath,
    ) -> Result<(), Problem> {
        match variants.iter().find(|variant| variant.name == name) {
            Some(Variant { bare: true, settings: Some(settings), .. })
                if settings.keys().iter().any(|key| key.required) =>
            {
                let place = node.place.clone();
                let message = format!("the choice `{name}` of `{path}` needs settings");
                let literal = with_settings(name, settings);
                let help = match path.0.last() {
                    Some(Step::Key(key)) => {
                        let header = path.key(name).header();
                        let key = written(key);
                        format!("write `{key} = {literal}`, or the table `{header}` in its place")
                    }
                    _ => format!("write `{literal}`"),
                };
                Err(Problem { place, message, help: Some(help) })
            }
            Some(Variant { bare: true, settings: Some(settings), .. }) => {
                let empty = Node { place: node.place.clone(), value: Value::Table(Vec::new()) };
                self.value(&empty, settings, &path.key(name))
            }
            Some(Variant { bare: true, settings: None, .. }) => Ok(()),
            Some(_) => Err(wrong_type(node, shape, path)),
            None => {
                let known = || offered(shape, variants, path);
                Err(self.unknown_variant(name, &node.place, variants, path, known))
            }
        }
    }

    /// A key that the table does not have.
    pub(super) fn unknown_key(
        &self,
        name: &str,
        place: &Place,
        keys: &[Key],
        path: &KeyPath,
    ) -> Problem {
        let message = if path.is_root() {
            format!("unknown key `{}` at the top of the configuration", written(name))
        } else {
            format!("unknown key `{}` in `{path}`", written(name))
        };
        let near = nearest(name, keys.iter().map(|key| key.name.as_str()));
        let top = || self.shape.keys().iter().any(|key| key.name == name);
        let help = near.map(|near| format!("did you mean `{near}`?")).or_else(|| {
            if top() {
                return Some(format!("`{name}` belongs at the top, before the first `[table]`"));
            }
            let place = self.elsewhere(name)?;
            Some(format!("`{name}` is a key of `{place}`"))
        });
        let help = help.unwrap_or_else(|| match keys {
            [] => format!("`{path}` has no settings"),
            keys => {
                let names: Vec<&str> = keys.iter().map(|key| key.name.as_str()).collect();
                format!("the keys here are {}", list(&names, "and"))
            }
        });
        Problem { place: place.clone(), message, help: Some(help) }
    }

    /// A variant that the choice does not have; `known` says which there are, where none is near.
    pub(super) fn unknown_variant(
        &self,
        name: &str,
        place: &Place,
        variants: &[Variant],
        path: &KeyPath,
        known: impl FnOnce() -> String,
    ) -> Problem {
        let message = format!("unknown choice {} for `{path}`", quoted(name));
        let near = nearest(name, variants.iter().map(|variant| variant.name.as_str()));
        let owner = variants.iter().find(|variant| {
            let keys = variant.settings.as_ref().map_or(&[][..], Shape::keys);
            keys.iter().any(|key| key.name == name)
        });
        let help = match (near, owner) {
            (Some(near), _) => format!("did you mean `{near}`?"),
            (None, Some(owner)) => {
                let table = path.key(&owner.name).header();
                format!("`{name}` is a setting of a choice: write it in a table such as `{table}`")
            }
            (None, None) => known(),
        };
        Problem { place: place.clone(), message, help: Some(help) }
    }

    /// The table that has a key called `name`, where the user wrote that table or there is only
    /// one such.
    fn elsewhere(&self, name: &str) -> Option<KeyPath> {
        let mut tables = Vec::new();
        owners(self.shape, Some(self.root), &KeyPath::default(), name, &mut tables);
        let used = tables.iter().find(|(_, used)| *used);
        let only = if tables.len() == 1 { tables.first() } else { None };
        used.or(only).map(|(path, _)| path.clone())
    }
}

/// Finds the tables that have a key called `name`, each with whether the user wrote it.
fn owners(
    shape: &Shape,
    node: Option<&Node>,
    path: &KeyPath,
    name: &str,
    found: &mut Vec<(KeyPath, bool)>,
) {
    match shape {
        Shape::Table(keys) => {
            if !path.is_root() && keys.iter().any(|key| key.name == name) {
                found.push((path.clone(), node.is_some()));
            }
            for key in keys {
                let below = node.and_then(|node| node.get(&key.name));
                owners(&key.shape, below, &path.key(&key.name), name, found);
            }
        }
        Shape::Beside { choice, keys } => {
            if keys.iter().any(|key| key.name == name) {
                found.push((path.clone(), node.is_some()));
            }
            owners(choice, node, path, name, found);
        }
        Shape::Choice(variants) => {
            for variant in variants {
                let Some(settings) = &variant.settings else { continue };
                let below = node.and_then(|node| node.get(&variant.name));
                owners(settings, below, &path.key(&variant.name), name, found);
            }
        }
        _ => {}
    }
}

/// The alternative that a value of this TOML type can only be meant for.
fn fitting<'s>(shapes: &'s [Shape], value: &Value) -> Option<&'s Shape> {
    let variant_given = |variants: &[Variant]| match value {
        Value::Table(entries) => entries.iter().any(|entry| {
            variants.iter().any(|one| one.settings.is_some() && one.name == entry.name)
        }),
        _ => false,
    };
    shapes
        .iter()
        .find(|shape| matches!(shape, Shape::Choice(variants) if variant_given(variants)))
        .or_else(|| {
            shapes.iter().find(|shape| {
                matches!(
                    (shape, value),
                    (Shape::String | Shape::Choice(_), Value::String(_))
                        | (Shape::Array { .. }, Value::Array(_))
                        | (Shape::Map(_) | Shape::Table(_), Value::Table(_))
                        | (Shape::Number, Value::Integer(_) | Value::Float(_))
                        | (Shape::Integer { .. }, Value::Integer(_))
                        | (Shape::Boolean, Value::Boolean(_))
                )
            })
        })
}

/// Where nothing better is known, says what the key is for.
fn described(problem: Problem, key: &Key) -> Problem {
    let about = Some(&key.about).filter(|about| !about.is_empty());
    let help = problem.help.or(about.map(|about| format!("`{}`: {about}", key.name)));
    Problem { help, ..problem }
}

/// `{ smoth = … }` reads as a table by label with a label of that name; it was meant otherwise.
fn meant(shapes: &[Shape], value: &Value) -> Option<String> {
    let Value::Table(entries) = value else { return None };
    let variants = shapes.iter().find_map(|shape| match shape {
        Shape::Choice(variants) => Some(variants),
        _ => None,
    })?;
    let tables = variants.iter().filter(|one| one.settings.is_some());
    let near = |entry: &Entry| nearest(&entry.name, tables.clone().map(|one| one.name.as_str()));
    entries.iter().find_map(near).map(|near| format!("did you mean `{near}`?"))
}

fn wrong_type(node: &Node, shape: &Shape, path: &KeyPath) -> Problem {
    let message = format!("`{path}` must be {}, not {}", wanted(shape), found(&node.value));
    let help = match shape {
        Shape::Table(_) => Some(format!("write a table: `{}`", path.header())),
        // Of several kinds of values, a string is likely to be a name out of a list.
        Shape::Either(shapes) => shapes
            .iter()
            .filter(|one| **one != Shape::String)
            .find_map(|one| rewritten(&last(path), node, one)),
        shape => rewritten(&last(path), node, shape),
    };
    Problem { place: node.place.clone(), message, help }
}

/// The last key of a path, as it stands before `=`.
fn last(path: &KeyPath) -> String {
    let key = path.0.iter().rev().find_map(|step| match step {
        Step::Key(key) => Some(written(key)),
        Step::Index(_) => None,
    });
    key.unwrap_or_default()
}
