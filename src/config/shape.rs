//! What a configuration may hold, read from its JSON Schema.
//!
//! serde's own messages speak of maps and untagged enums and lose positions inside choices. So
//! [`super::conform`] checks the parsed file against this before serde reads it; the types stay the
//! one place where keys are written down.

use std::sync::Arc;

use serde_json::Value as Json;

/// What a value must be.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Shape {
    String,
    Boolean,
    /// From `min` up.
    Integer {
        min: i64,
    },
    /// Finite.
    Number,
    /// `fewest` to `most` items.
    Array {
        item: Box<Shape>,
        fewest: usize,
        most: usize,
    },
    /// With exactly these keys.
    Table(Vec<Key>),
    /// A table with keys of the user's choice.
    Map(Box<Shape>),
    /// One of several variants.
    Choice(Vec<Variant>),
    /// A choice, and keys that may stand beside the variant in its table.
    Beside {
        /// The choice.
        choice: Box<Shape>,
        /// The keys.
        keys: Vec<Key>,
    },
    /// One of several shapes that differ in their TOML type.
    Either(Vec<Shape>),
    /// A shape that stands inside itself.
    Again(Again),
    /// Nothing is known; serde decides.
    Anything,
}

/// A shape that is read when a configuration goes as deep as that.
#[derive(Debug, Clone)]
pub(super) struct Again {
    root: Arc<Json>,
    target: String,
}

impl Again {
    pub(super) fn shape(&self) -> Shape {
        Reading { root: &self.root, open: Vec::new() }.target(&self.target)
    }
}

impl PartialEq for Again {
    fn eq(&self, other: &Self) -> bool {
        self.target == other.target
    }
}

/// A key of a table.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Key {
    pub(super) name: String,
    pub(super) required: bool,
    pub(super) about: String,
    pub(super) shape: Shape,
    /// What holds when it is left out, where that is a value.
    pub(super) default: Option<Json>,
    /// A value to show, where the types give one.
    pub(super) example: Option<Json>,
}

/// A variant of a choice.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Variant {
    pub(super) name: String,
    pub(super) about: String,
    /// May be written as a string.
    pub(super) bare: bool,
    /// May be written as a table with one key, the variant's name, and this in it.
    pub(super) settings: Option<Shape>,
}

impl Shape {
    /// The shape of a whole configuration.
    pub(super) fn of_config() -> Self {
        let root = Arc::new(super::schema());
        Reading { root: &root, open: Vec::new() }.read(&root)
    }

    /// The keys a table of this shape may have.
    pub(super) fn keys(&self) -> &[Key] {
        match self {
            Shape::Table(keys) => keys,
            _ => &[],
        }
    }

    /// The variants of a choice.
    pub(super) fn variants(&self) -> &[Variant] {
        match self {
            Shape::Choice(variants) => variants,
            Shape::Beside { choice, .. } => choice.variants(),
            _ => &[],
        }
    }

    /// The alternatives: of an `Either`, each; else the shape itself.
    pub(super) fn alternatives(&self) -> &[Shape] {
        match self {
            Shape::Either(shapes) => shapes,
            shape => std::slice::from_ref(shape),
        }
    }
}

/// Reads shapes from the schema `root`.
struct Reading<'a> {
    root: &'a Arc<Json>,
    /// The definitions that are being read.
    open: Vec<String>,
}

impl Reading<'_> {
    /// The definition that `target` points at.
    fn target(&mut self, target: &str) -> Shape {
        if self.open.iter().any(|open| open == target) {
            return Shape::Again(Again { root: Arc::clone(self.root), target: target.to_owned() });
        }
        let root = Arc::clone(self.root);
        let definition = root.pointer(target.trim_start_matches('#'));
        self.open.push(target.to_owned());
        let shape = definition.map_or(Shape::Anything, |definition| self.read(definition));
        self.open.pop();
        shape
    }

    fn read(&mut self, schema: &Json) -> Shape {
        if let Some(target) = schema.get("$ref").and_then(Json::as_str) {
            return self.target(target);
        }
        if let Some([one]) = schema.get("allOf").and_then(Json::as_array).map(Vec::as_slice) {
            return self.read(one);
        }
        if let Some(names) = schema.get("enum").and_then(Json::as_array) {
            let names = names.iter().filter_map(Json::as_str);
            return Shape::Choice(names.map(|name| bare(name, String::new())).collect());
        }
        if let Some(name) = schema.get("const").and_then(Json::as_str) {
            return Shape::Choice(vec![bare(name, about(schema))]);
        }
        if let Some(choices) = schema.get("oneOf").or(schema.get("anyOf")).and_then(Json::as_array)
        {
            let beside = beside(choices);
            return either(choices.iter().map(|choice| self.alternative(choice, &beside)));
        }
        match schema.get("type").and_then(Json::as_str) {
            Some("string") => Shape::String,
            Some("boolean") => Shape::Boolean,
            Some("integer") => {
                // Of a bound above 0 the checks of the plan say more.
                let min = schema.get("minimum").and_then(Json::as_i64);
                Shape::Integer { min: min.map_or(i64::MIN, |min| min.min(0)) }
            }
            Some("number") => Shape::Number,
            Some("array") => self.array(schema),
            Some("object") => match schema.get("additionalProperties") {
                Some(values @ Json::Object(_)) => Shape::Map(Box::new(self.read(values))),
                _ => Shape::Table(self.table(schema)),
            },
            _ => Shape::Anything,
        }
    }

    fn array(&mut self, schema: &Json) -> Shape {
        let count =
            |name: &str| schema.get(name).and_then(Json::as_u64).map(|count| count as usize);
        Shape::Array {
            item: Box::new(schema.get("items").map_or(Shape::Anything, |item| self.read(item))),
            fewest: count("minItems").unwrap_or(0),
            most: count("maxItems").unwrap_or(usize::MAX),
        }
    }

    fn table(&mut self, schema: &Json) -> Vec<Key> {
        let required = schema.get("required").and_then(Json::as_array);
        let place = |name: &str| required?.iter().position(|one| one == name);
        let properties = schema.get("properties").and_then(Json::as_object);
        let key = |(name, property): (&String, &Json)| Key {
            name: name.clone(),
            required: place(name).is_some(),
            about: about(property),
            shape: self.read(property),
            default: property.get("default").cloned(),
            example: property.pointer("/examples/0").cloned(),
        };
        let mut keys: Vec<Key> = properties.into_iter().flatten().map(key).collect();
        // Those that must be given come first, in the order of the types; the schema has no order
        // for the others.
        keys.sort_by_key(|key| place(&key.name).unwrap_or(usize::MAX));
        keys
    }

    /// Among alternatives, a table with one key that it must have is a variant with its settings; it
    /// may also have the keys `beside`.
    fn alternative(&mut self, schema: &Json, beside: &[String]) -> Shape {
        let closed = schema.get("additionalProperties") == Some(&Json::Bool(false));
        let (keys, own) = match self.read(schema) {
            Shape::Table(keys) if closed => {
                keys.into_iter().partition::<Vec<_>, _>(|key| beside.contains(&key.name))
            }
            shape => return shape,
        };
        match <[Key; 1]>::try_from(own) {
            Ok([Key { name, required: true, shape, .. }]) => {
                let (about, settings) = (about(schema), Some(shape));
                let variant = Variant { name, about, bare: false, settings };
                let choice = Shape::Choice(vec![variant]);
                if keys.is_empty() { choice } else { Shape::Beside { choice: choice.into(), keys } }
            }
            Ok([key]) => Shape::Table(keys.into_iter().chain([key]).collect()),
            Err(own) => Shape::Table(keys.into_iter().chain(own).collect()),
        }
    }
}

/// The keys that every one of several variants may have and none must.
fn beside(choices: &[Json]) -> Vec<String> {
    let optional = |choice: &Json| -> Vec<String> {
        let required = choice.get("required").and_then(Json::as_array);
        let is_required = |name: &String| required.is_some_and(|all| all.iter().any(|r| r == name));
        let keys = choice.get("properties").and_then(Json::as_object);
        keys.into_iter()
            .flatten()
            .map(|(name, _)| name)
            .filter(|n| !is_required(n))
            .cloned()
            .collect()
    };
    match choices {
        [first, others @ ..] if !others.is_empty() => {
            let mut shared = optional(first);
            shared.retain(|name| others.iter().all(|other| optional(other).contains(name)));
            shared
        }
        _ => Vec::new(),
    }
}

fn bare(name: &str, about: String) -> Variant {
    Variant { name: name.to_owned(), about, bare: true, settings: None }
}

/// The text that describes a key or a variant.
fn about(schema: &Json) -> String {
    schema.get("description").and_then(Json::as_str).unwrap_or("").replace('\n', " ")
}

/// Puts all variants into one choice, in the order of the types.
fn either(shapes: impl Iterator<Item = Shape>) -> Shape {
    let mut variants: Vec<Variant> = Vec::new();
    let (mut others, mut beside) = (Vec::new(), None);
    for shape in shapes {
        let shape = match shape {
            Shape::Beside { choice, keys } => {
                beside = Some(keys);
                *choice
            }
            shape => shape,
        };
        let Shape::Choice(more) = shape else {
            others.push(shape);
            continue;
        };
        for variant in more {
            match variants.iter_mut().find(|known| known.name == variant.name) {
                Some(known) => {
                    known.bare |= variant.bare;
                    if known.about.is_empty() {
                        known.about = variant.about;
                    }
                    known.settings = known.settings.take().or(variant.settings);
                }
                None => variants.push(variant),
            }
        }
    }
    if others.is_empty() {
        let choice = Shape::Choice(variants);
        return match beside {
            Some(keys) => Shape::Beside { choice: choice.into(), keys },
            None => choice,
        };
    }
    if !variants.is_empty() {
        others.insert(0, Shape::Choice(variants));
    }
    Shape::Either(others)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all<'a>(shape: &'a Shape, found: &mut Vec<&'a Shape>) {
        found.push(shape);
        match shape {
            Shape::Array { item, .. } | Shape::Map(item) => all(item, found),
            Shape::Table(keys) => keys.iter().for_each(|key| all(&key.shape, found)),
            Shape::Choice(variants) => {
                variants.iter().flat_map(|one| &one.settings).for_each(|one| all(one, found));
            }
            Shape::Either(shapes) => shapes.iter().for_each(|shape| all(shape, found)),
            Shape::Beside { choice, keys } => {
                all(choice, found);
                keys.iter().for_each(|key| all(&key.shape, found));
            }
            _ => {}
        }
    }

    #[test]
    fn the_schema_leaves_no_value_unknown() {
        let config = Shape::of_config();
        let mut found = Vec::new();
        all(&config, &mut found);
        assert!(found.len() > 100, "{}", found.len());
        assert!(!found.contains(&&Shape::Anything));
    }

    #[test]
    fn only_the_model_has_a_key_beside_its_choice() {
        let config = Shape::of_config();
        let beside: Vec<(&str, Vec<&str>)> = config
            .keys()
            .iter()
            .filter_map(|key| match &key.shape {
                Shape::Beside { keys, .. } => {
                    Some((key.name.as_str(), keys.iter().map(|key| key.name.as_str()).collect()))
                }
                _ => None,
            })
            .collect();
        assert_eq!(beside, [("model", vec!["freeze", "init"])]);
        let mut found = Vec::new();
        all(&config, &mut found);
        assert_eq!(found.iter().filter(|shape| matches!(shape, Shape::Beside { .. })).count(), 1);
    }

    #[test]
    fn alternatives_can_be_told_apart_by_their_toml_type() {
        let config = Shape::of_config();
        let mut found = Vec::new();
        all(&config, &mut found);
        for shape in found {
            let Shape::Either(shapes) = shape else { continue };
            let arrays = shapes.iter().filter(|one| matches!(one, Shape::Array { .. })).count();
            let tables =
                shapes.iter().filter(|one| matches!(one, Shape::Map(_) | Shape::Table(_))).count();
            let strings =
                shapes.iter().filter(|one| matches!(one, Shape::Choice(_) | Shape::String)).count();
            let is_number = |one: &&Shape| matches!(one, Shape::Number | Shape::Integer { .. });
            let numbers = shapes.iter().filter(is_number).count();
            assert_eq!(arrays + tables + strings + numbers, shapes.len(), "{shapes:?}");
            assert!(arrays < 2 && tables < 2 && strings < 2 && numbers < 2, "{shapes:?}");
        }
    }
}
