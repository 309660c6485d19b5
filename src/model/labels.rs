//! A head's labels as they are written: by name, or counted.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// So many numbered labels and more are written as [`Numbered`].
const MANY: usize = 10;

/// More labels than this no head has; a count above it reads as one more.
pub const MOST_LABELS: usize = 1 << 20;

/// The labels of a head.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum LabelsConfig {
    /// By name.
    Names(Vec<String>),
    /// By number.
    Numbered(Numbered),
}

/// Labels that are called after their number, counted from 0.
#[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Numbered {
    /// How many labels there are.
    #[schemars(example = 3258)]
    count: usize,
    /// What stands before the number, which counts from 0.
    #[schemars(example = &"y")]
    prefix: String,
}

impl Numbered {
    /// What `names` are, where they are that and many.
    fn of(names: &[String]) -> Option<Self> {
        let prefix = names.first()?.strip_suffix('0')?;
        let fits = |(number, name): (usize, &String)| {
            name.strip_prefix(prefix).is_some_and(|rest| rest == number.to_string())
        };
        let all = names.len() >= MANY && names.iter().enumerate().all(fits);
        all.then(|| Self { count: names.len(), prefix: prefix.to_owned() })
    }
}

pub(super) fn serialize<S: Serializer>(names: &[String], serializer: S) -> Result<S::Ok, S::Error> {
    match Numbered::of(names) {
        Some(numbered) => numbered.serialize(serializer),
        None => names.serialize(serializer),
    }
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<String>, D::Error> {
    match LabelsConfig::deserialize(deserializer)? {
        LabelsConfig::Names(names) => Ok(names),
        LabelsConfig::Numbered(Numbered { count, prefix }) => {
            Ok((0..count.min(MOST_LABELS + 1)).map(|number| format!("{prefix}{number}")).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Head {
        #[serde(with = "super")]
        labels: Vec<String>,
    }

    fn read(text: &str) -> Vec<String> {
        toml::from_str::<Head>(text).expect("reads").labels
    }

    #[test]
    fn counted_labels_are_numbered_from_zero() {
        assert_eq!(read("labels = { count = 3, prefix = 'y' }"), ["y0", "y1", "y2"]);
        assert_eq!(read("labels = { count = 2, prefix = '' }"), ["0", "1"]);
        assert_eq!(read("labels = ['a', 'b']"), ["a", "b"]);
    }

    #[test]
    fn what_is_written_reads_back_the_same_and_many_numbers_are_written_short() {
        let long = (0..3258).map(|number| format!("y{number}")).collect::<Vec<_>>();
        let gap = long.iter().filter(|name| *name != "y7").cloned().collect::<Vec<_>>();
        for (labels, short) in [(long.clone(), true), (gap, false), (long[..3].to_vec(), false)] {
            let written = toml::to_string(&Head { labels: labels.clone() }).expect("writes");
            assert_eq!(read(&written), labels);
            assert_eq!(written.len() < 60 && written.contains("3258"), short, "{written}");
        }
    }
}
