//! How kinds of values, defaults and examples are written in the reference.

use serde_json::Value as Json;

use super::super::shape::{Key, Shape, Variant};
use super::super::wording::{joined, literals};
use super::sections::has_tables;

/// Longer lines are broken.
const WIDTH: usize = 100;

/// What kind of value a shape takes.
pub(super) fn kind(shape: &Shape) -> String {
    joined(&kinds(shape), "or")
}

/// The same, each kind by itself.
fn kinds(shape: &Shape) -> Vec<String> {
    let one = match shape {
        Shape::Either(shapes) => {
            let kinds = |shape: &Shape| match shape {
                Shape::Map(item) if shapes.contains(item) => vec!["table of these by name".into()],
                shape => kinds(shape),
            };
            return shapes.iter().flat_map(kinds).collect();
        }
        Shape::Choice(variants) if !has_tables(variants) => return names(variants),
        Shape::String => "string".to_owned(),
        Shape::Boolean => "boolean".to_owned(),
        Shape::Integer { .. } => "integer".to_owned(),
        Shape::Number => "number".to_owned(),
        Shape::Array { item, fewest, most } => {
            let count = if fewest == most { format!("{fewest} ") } else { String::new() };
            format!("array of {count}{}", several(item))
        }
        Shape::Table(_) => "table".to_owned(),
        Shape::Map(item) => format!("table of {} by name", several(item)),
        Shape::Choice(_) | Shape::Beside { .. } | Shape::Again(_) => "choice".to_owned(),
        Shape::Anything => "value".to_owned(),
    };
    vec![one]
}

fn several(shape: &Shape) -> String {
    match shape {
        Shape::Choice(variants) if !has_tables(variants) => joined(&names(variants), "and"),
        Shape::Array { item, .. } => format!("arrays of {}", several(item)),
        shape => format!("{}s", kind(shape)),
    }
}

fn names(variants: &[Variant]) -> Vec<String> {
    literals(variants).iter().map(|name| format!("`{name}`")).collect()
}

/// A value that the types give, as TOML writes it; a choice without settings by its name.
pub(super) fn value(json: &Json) -> String {
    if let Some((name, Json::Object(settings))) = json.as_object().and_then(|one| one.iter().next())
        && settings.is_empty()
    {
        return format!("{name:?}");
    }
    match json.as_f64() {
        // TOML would count zeros: 0.00000001.
        Some(number) if 0.0 < number && number < 1e-3 => format!("{number:e}"),
        _ => toml::Value::try_from(json).map_or(String::new(), |value| value.to_string()),
    }
}

/// A value that `key` may have: the one that its type gives to show, else one that its kind suggests.
pub(super) fn example(key: &Key) -> Option<String> {
    let suggested = || match &key.shape {
        Shape::Boolean => Some((key.default != Some(Json::Bool(true))).to_string()),
        Shape::Choice(variants) => {
            let default = key.default.as_ref().map(value);
            let mut names = variants.iter().filter(|one| one.bare).map(literal);
            names.find(|name| name.starts_with('"') && Some(name) != default.as_ref())
        }
        Shape::Table(_) => None,
        _ => key.default.as_ref().map(value).filter(|value| value != "[]" && value != "{}"),
    };
    key.example.as_ref().map(value).or_else(suggested)
}

/// A variant as it is written where it stands for a whole value.
pub(super) fn literal(variant: &Variant) -> String {
    literals(std::slice::from_ref(variant)).concat()
}

/// The anchor that a heading gets from the sites that show Markdown.
pub(super) fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// `text` in lines, all but the first indented.
pub(super) fn filled(text: &str, indent: &str) -> String {
    let margin = &text[..text.len() - text.trim_start().len()];
    let (mut lines, mut line) = (String::new(), margin.to_owned());
    for word in words(text.trim_start()) {
        let begun = !line.trim().is_empty();
        if begun && line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines += &format!("{line}\n");
            line = indent.to_owned();
        } else if begun {
            line.push(' ');
        }
        line += &word;
    }
    lines + &line
}

/// The words of `text`; code is one word.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut open) = (Vec::<String>::new(), false);
    for part in text.split(' ') {
        match words.last_mut().filter(|_| open) {
            Some(word) => *word += &format!(" {part}"),
            None => words.push(part.to_owned()),
        }
        open ^= part.matches('`').count() % 2 == 1;
    }
    words
}
