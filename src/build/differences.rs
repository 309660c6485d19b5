//! What differs between two configurations, in the words of their files.

use std::collections::{BTreeMap, BTreeSet};

use toml::Value;

/// The keys that differ between two TOML texts, with both values, but for those that are free, with all that is below them.
pub(crate) fn differences(before: &str, now: &str, is_free: impl Fn(&str) -> bool) -> Vec<String> {
    // A damaged copy compares as empty: then every key is named as changed, which is true.
    let read = |text: &str| toml::Value::Table(toml::from_str(text).unwrap_or_default());
    compare("", Some(&read(before)), Some(&read(now)), &is_free)
}

fn compare(
    key: &str,
    before: Option<&Value>,
    now: Option<&Value>,
    is_free: &impl Fn(&str) -> bool,
) -> Vec<String> {
    if before == now || is_free(key) {
        return Vec::new();
    }
    let (parts_before, parts_now) = (parts(key, before), parts(key, now));
    let (Some(parts_before), Some(parts_now)) = (parts_before, parts_now) else {
        return vec![format!("  {key} was {}, is {}", shown(before), shown(now))];
    };
    let all: BTreeSet<&String> = parts_before.keys().chain(parts_now.keys()).collect();
    let part = |key: &String| {
        let (before, now) = (parts_before.get(key).copied(), parts_now.get(key).copied());
        compare(key, before, now, is_free)
    };
    let below: Vec<String> = all.into_iter().flat_map(part).collect();
    let another = match (variant(before), variant(now)) {
        (Some(before), Some(now)) => before != now,
        (one, other) => before.is_none() && other.is_some() || now.is_none() && one.is_some(),
    };
    match another && !below.is_empty() {
        true => vec![format!("  {key} was {}, is {}", shown(before), shown(now))],
        false => below,
    }
}

/// The parts of a table or of an array of tables by their dotted keys, none of what is absent; `None`
/// for a value that is written in one piece.
fn parts<'a>(key: &str, value: Option<&'a Value>) -> Option<BTreeMap<String, &'a Value>> {
    match value {
        None => Some(BTreeMap::new()),
        Some(Value::Table(table)) => {
            let dot = if key.is_empty() { "" } else { "." };
            Some(table.iter().map(|(name, value)| (format!("{key}{dot}{name}"), value)).collect())
        }
        Some(Value::Array(items)) if items.iter().any(Value::is_table) => {
            let items = items.iter().enumerate();
            Some(items.map(|(index, value)| (format!("{key}[{index}]"), value)).collect())
        }
        Some(_) => None,
    }
}

/// The name of a choice: a table with the settings of one variant.
fn variant(value: Option<&Value>) -> Option<&str> {
    let table = value?.as_table()?;
    match (table.len(), table.iter().next()?) {
        (1, (name, Value::Table(_))) => Some(name),
        _ => None,
    }
}

/// A value as a file has it; a choice by its name.
fn shown(value: Option<&Value>) -> String {
    match (value, variant(value)) {
        (_, Some(name)) => format!("\"{name}\""),
        (Some(value), None) => value.to_string(),
        (None, None) => "not set".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(before: &str, now: &str) -> String {
        differences(before, now, |key| key == "data.workers").join("\n")
    }

    #[test]
    fn keys_are_named_with_both_values_and_choices_by_their_names() {
        let before = "
            [data]
            workers = 4
            cache = { off = {} }
            augment = {}
            [data.image]
            normalize = \"unit\"
            [[heads]]
            weight = 1.0
            [train.optimizer.adamw]
            lr = 1e-3
            betas = [0.9, 0.99]
            [train.schedule.constant]
            [memory.checkpointing.none]
            ";
        let now = "
            [data]
            workers = 2
            cache = { disk = { bits = \"16\" } }
            augment = { rotate_degrees = 10.0 }
            [data.image.normalize]
            mean = [0.5]
            [[heads]]
            weight = 2.0
            [[heads]]
            weight = 1.0
            [train]
            ema = { decay = 0.9 }
            [train.optimizer.sgd]
            lr = 0.1
            [train.schedule.constant]
            [memory.checkpointing.sequential]
            segments = 4
            ";
        insta::assert_snapshot!(told(before, now), @r#"
        data.augment.rotate_degrees was not set, is 10.0
        data.cache was "off", is "disk"
        data.image.normalize was "unit", is { mean = [0.5] }
        heads[0].weight was 1.0, is 2.0
        heads[1].weight was not set, is 1.0
        memory.checkpointing was "none", is "sequential"
        train.ema.decay was not set, is 0.9
        train.optimizer was "adamw", is "sgd"
        "#);
        insta::assert_snapshot!(told(before, &before.replace("0.99", "0.9")), @"  train.optimizer.adamw.betas was [0.9, 0.99], is [0.9, 0.9]");
        assert_eq!(told(before, before), "");
    }
}
