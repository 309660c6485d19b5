//! How shapes and values are named to the user, and what to write instead of a wrong one.

use super::keys::KeyPath;
use super::shape::{Key, Shape, Variant};
use super::tree::{Node, Value};

/// `a`, `b` and `c`.
pub(super) fn list<T: AsRef<str>>(words: &[T], join: &str) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{}`", word.as_ref())).collect();
    joined(&quoted, join)
}

pub(super) fn joined(words: &[String], join: &str) -> String {
    match words.split_last() {
        None => String::new(),
        Some((last, [])) => last.clone(),
        Some((last, before)) => format!("{} {join} {last}", before.join(", ")),
    }
}

/// The candidate that `word` was most likely meant to be.
pub(super) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let plain = |text: &str| text.to_lowercase().replace(['-', ' '], "_");
    let word = plain(word);
    let distance = |candidate: &str| {
        let candidate = plain(candidate);
        let (short, long) =
            if word.len() < candidate.len() { (&word, &candidate) } else { (&candidate, &word) };
        // `warmup` for `warmup_epochs`, and `learning_rate_decay` for no `lr`.
        if short.len() >= 4 && long.starts_with(short.as_str()) {
            return 1;
        }
        strsim::damerau_levenshtein(&word, &candidate)
    };
    let limit = (word.chars().count() / 3).max(1);
    let scored = candidates.into_iter().map(|candidate| (distance(candidate), candidate));
    let near = scored.filter(|(distance, _)| *distance <= limit);
    near.min_by_key(|(distance, candidate)| (*distance, candidate.len().abs_diff(word.len())))
        .map(|(_, candidate)| candidate)
}

/// What a value of this shape is, with its article.
pub(super) fn wanted(shape: &Shape) -> String {
    match shape {
        Shape::String => "a string".to_owned(),
        Shape::Boolean => "`true` or `false`".to_owned(),
        Shape::Integer { min: i64::MIN } => "an integer".to_owned(),
        Shape::Integer { min } => format!("an integer of {min} or more"),
        Shape::Number => "a number".to_owned(),
        Shape::Array { item, fewest, most } => {
            let count = if fewest == most { format!("{fewest} ") } else { String::new() };
            format!("an array of {count}{}", plural(item))
        }
        Shape::Table(_) | Shape::Map(_) => "a table".to_owned(),
        Shape::Again(again) => wanted(&again.shape()),
        Shape::Beside { choice, .. } => wanted(choice),
        Shape::Choice(variants) => list(&literals(variants), "or"),
        Shape::Either(shapes) => {
            let each = shapes.iter().flat_map(|shape| match shape {
                Shape::Choice(variants) => {
                    literals(variants).iter().map(|word| format!("`{word}`")).collect()
                }
                Shape::Map(values) => {
                    vec![format!("a table such as `{{ \"…\" = {} }}`", example(values))]
                }
                Shape::Table(keys) => {
                    let names: Vec<&str> = keys.iter().map(|key| key.name.as_str()).collect();
                    vec![format!("a table of {}", list(&names, "and"))]
                }
                shape => vec![wanted(shape)],
            });
            joined(&each.collect::<Vec<_>>(), "or")
        }
        Shape::Anything => "another value".to_owned(),
    }
}

fn plural(shape: &Shape) -> String {
    match shape {
        Shape::String => "strings".to_owned(),
        Shape::Integer { .. } => "integers".to_owned(),
        Shape::Number => "numbers".to_owned(),
        Shape::Table(_) | Shape::Map(_) => "tables".to_owned(),
        Shape::Choice(variants) => format!("strings, each {}", list(&literals(variants), "or")),
        _ => "values".to_owned(),
    }
}

/// The variants as they are written where they stand for a whole value.
pub(super) fn literals(variants: &[Variant]) -> Vec<String> {
    let literal = |variant: &Variant| match &variant.settings {
        Some(settings) if !variant.bare || settings.keys().iter().any(|key| key.required) => {
            with_settings(&variant.name, settings)
        }
        _ => format!("\"{}\"", variant.name),
    };
    variants.iter().map(literal).collect()
}

/// The variant `name` with the settings that it must have, as a value.
pub(super) fn with_settings(name: &str, settings: &Shape) -> String {
    format!("{{ {name} = {} }}", example(settings))
}

/// The names of all variants.
pub(super) fn names(variants: &[Variant]) -> String {
    let names: Vec<&str> = variants.iter().map(|one| one.name.as_str()).collect();
    format!("the choices are {}", list(&names, "and"))
}

/// What may be written for a value of this shape, among others the name of one of `variants`.
pub(super) fn offered(shape: &Shape, variants: &[Variant], path: &KeyPath) -> String {
    let has_settings = |variant: &&Variant| {
        variant.bare && variant.settings.as_ref().is_some_and(|one| !one.keys().is_empty())
    };
    let table = variants.iter().find(has_settings).map(|variant| path.key(&variant.name).header());
    let hint = table.map(|table| format!("; one with settings is a table such as `{table}`"));
    format!("write {}{}", wanted(shape), hint.unwrap_or_default())
}

/// A value that could stand there.
pub(super) fn example(shape: &Shape) -> String {
    match shape {
        Shape::Array { item, fewest: 2, .. } => format!("[{0}, {0}]", example(item)),
        Shape::Array { item, .. } => format!("[{}]", example(item)),
        Shape::Choice(variants) => {
            let bare = variants.iter().find(|variant| variant.bare);
            bare.map_or("…".to_owned(), |variant| format!("\"{}\"", variant.name))
        }
        Shape::Either(shapes) => shapes.first().map_or("…".to_owned(), example),
        Shape::Table(keys) => {
            let required = keys.iter().filter(|key| key.required);
            let written = required.map(|key| format!("{} = {}", key.name, example(&key.shape)));
            format!("{{ {} }}", written.collect::<Vec<_>>().join(", "))
        }
        Shape::String => "\"…\"".to_owned(),
        Shape::Boolean => "true".to_owned(),
        _ => "…".to_owned(),
    }
}

/// What a value is, with its article.
pub(super) fn found(value: &Value) -> String {
    match value {
        Value::String(text) => format!("the string {}", quoted(text)),
        Value::Integer(number) => format!("the integer {number}"),
        Value::Float(number) if number.is_finite() => format!("the number {}", float(*number)),
        Value::Float(number) => format!("`{}`", float(*number)),
        Value::Boolean(value) => format!("`{value}`"),
        Value::Date => "a date or time".to_owned(),
        Value::Array(items) if items.is_empty() => "an empty array".to_owned(),
        Value::Array(_) => "an array".to_owned(),
        Value::Table(_) => "a table".to_owned(),
    }
}

/// A number as TOML writes it.
fn float(number: f64) -> String {
    toml::Value::Float(number).to_string()
}

/// A string in quotes, cut where it would fill the screen.
pub(super) fn quoted(text: &str) -> String {
    let mut cut: String = text.chars().take(60).collect();
    if cut.len() < text.len() {
        cut.push('…');
    }
    toml::Value::String(cut).to_string()
}

/// How to write `node` so that it has `shape`, where that is plain to see.
pub(super) fn rewritten(name: &str, node: &Node, shape: &Shape) -> Option<String> {
    Some(format!("write `{name} = {}`", rewritten_value(node, shape)?))
}

fn rewritten_value(node: &Node, shape: &Shape) -> Option<String> {
    /// More entries than these are not written out.
    const MOST: usize = 12;
    let value = match (shape, &node.value) {
        (Shape::Integer { min }, Value::String(text)) => {
            text.trim().parse::<i64>().ok().filter(|number| number >= min)?.to_string()
        }
        (Shape::Integer { min }, Value::Float(number))
            if number.fract() == 0.0 && number.abs() < 1e15 && *number >= *min as f64 =>
        {
            format!("{number:.0}")
        }
        (Shape::Number, Value::String(text)) => {
            let number = text.trim().parse::<f64>().ok().filter(|number| number.is_finite())?;
            float(number)
        }
        (Shape::Boolean, Value::String(text)) => {
            text.trim().to_lowercase().parse::<bool>().ok()?.to_string()
        }
        (Shape::Boolean, Value::Integer(number @ (0 | 1))) => (*number == 1).to_string(),
        (Shape::String, Value::Integer(_) | Value::Float(_) | Value::Boolean(_)) => {
            format!("\"{}\"", node.to_toml())
        }
        (Shape::Array { item, fewest, most }, Value::Array(items))
            if (*fewest..=*most).contains(&items.len()) && items.len() <= MOST =>
        {
            let entry = |node: &Node| match (&**item, &node.value) {
                (Shape::String, Value::String(_))
                | (Shape::Integer { .. }, Value::Integer(_))
                | (Shape::Number, Value::Integer(_) | Value::Float(_)) => {
                    Some(node.to_toml().to_string())
                }
                (item, _) => rewritten_value(node, item),
            };
            format!("[{}]", items.iter().map(entry).collect::<Option<Vec<_>>>()?.join(", "))
        }
        (Shape::Array { item, fewest, .. }, value) => match (&**item, value) {
            (Shape::String | Shape::Choice(_), Value::String(_))
            | (Shape::Integer { .. } | Shape::Number, Value::Integer(_))
            | (Shape::Number, Value::Float(_)) => {
                let one = node.to_toml().to_string();
                let items = vec![one; (*fewest).max(1)];
                format!("[{}]", items.join(", "))
            }
            _ => return None,
        },
        _ => return None,
    };
    Some(value)
}

/// How to add a missing key to the table at `path`.
pub(super) fn addition(key: &Key, path: &KeyPath) -> String {
    let header = path.key(&key.name).header();
    let text = match &key.shape {
        Shape::Table(_) | Shape::Map(_) => format!("add the table `{header}`"),
        Shape::Array { item, .. } if matches!(**item, Shape::Table(_)) => {
            format!("add a table `[{header}]`")
        }
        shape if shape.variants().iter().any(|variant| variant.settings.is_some()) => {
            let table = |variant: &Variant| path.key(&key.name).key(&variant.name).header();
            let tables: Vec<String> = shape.variants().iter().map(table).collect();
            format!("add {}", list(&tables, "or"))
        }
        Shape::Choice(variants) if variants.len() > 1 => {
            let choices = list(&literals(variants), "or");
            format!("add `{} = …` under `{}`: {choices}", key.name, path.header())
        }
        shape => format!("add `{} = {}` under `{}`", key.name, example(shape), path.header()),
    };
    match key.about.as_str() {
        "" => text,
        about => format!("{text}. {about}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelling_finds_its_word_and_another_word_finds_none() {
        let keys = ["epochs", "batch_size", "optimizer", "warmup_epochs", "lr"];
        let near = |word| nearest(word, keys);
        assert_eq!(near("epoch"), Some("epochs"));
        assert_eq!(near("batchsize"), Some("batch_size"));
        assert_eq!(near("Batch-Size"), Some("batch_size"));
        assert_eq!(near("optimiser"), Some("optimizer"));
        assert_eq!(near("warmup"), Some("warmup_epochs"));
        assert_eq!(near("rl"), Some("lr"));
        assert_eq!(near("momentum"), None);
        assert_eq!(near(""), None);
    }
}
