//! What can be wrong with a layout's settings, told before any file is read.

use std::fmt;
use std::path::Path;

use super::super::config::{Uncertain, UncertainPolicy};
use super::{Kind, Vocabulary};
use crate::data::labels::{findings_offered, nearest};

/// The key of `uncertain` that stands for all labels not named.
const DEFAULT: &str = "default";

/// Where in the configuration a fault stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FaultPlace {
    /// `heads[head].labels` as a whole.
    Head {
        /// The position of the head.
        head: usize,
    },
    /// `heads[head].labels[label]`.
    Label {
        /// The position of the head.
        head: usize,
        /// The position of the label.
        label: usize,
    },
    /// A key below `data`, or below `data.sources[source]`.
    Setting {
        /// The position of the source; none for a key directly below `data`.
        source: Option<usize>,
        /// The keys down to it; none for the table itself.
        keys: Vec<String>,
        /// The entry, where the last key is an array's.
        entry: Option<usize>,
    },
    /// The last of these keys below `data`, or below `data.sources[source]`, and not its value.
    Key {
        /// The position of the source; none for a key directly below `data`.
        source: Option<usize>,
        /// The keys down to it.
        keys: Vec<String>,
    },
}

impl fmt::Display for FaultPlace {
    /// The key, its parts as they are, without quotes.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Head { head } => write!(formatter, "heads[{head}].labels"),
            Self::Label { head, label } => write!(formatter, "heads[{head}].labels[{label}]"),
            Self::Key { source, keys } => {
                let (source, keys) = (*source, keys.clone());
                write!(formatter, "{}", Self::Setting { source, keys, entry: None })
            }
            Self::Setting { source, keys, entry } => {
                write!(formatter, "data")?;
                source.iter().try_for_each(|source| write!(formatter, ".sources[{source}]"))?;
                keys.iter().try_for_each(|key| write!(formatter, ".{key}"))?;
                entry.iter().try_for_each(|entry| write!(formatter, "[{entry}]"))
            }
        }
    }
}

/// A setting of the data, or a label of a head, that cannot be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// What it is about.
    pub place: FaultPlace,
    /// What it contradicts, if anything.
    pub also: Option<Box<FaultPlace>>,
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub help: Option<String>,
}

impl Fault {
    pub(in crate::data) fn new(
        place: FaultPlace,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        Self { place, also: None, message: message.into(), help: Some(help.into()) }
    }

    pub(in crate::data) fn also(self, place: FaultPlace) -> Self {
        Self { also: Some(Box::new(place)), ..self }
    }
}

/// A setting that cannot be; its keys count from the layout's table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::data) struct SettingFault {
    pub keys: Vec<String>,
    pub entry: Option<usize>,
    pub message: String,
    pub help: String,
    /// Whether the last key is wrong, and not its value.
    pub on_key: bool,
}

impl SettingFault {
    pub fn new(key: &str, message: impl Into<String>, help: impl Into<String>) -> Self {
        let (message, help) = (message.into(), help.into());
        Self { keys: vec![key.to_owned()], entry: None, message, help, on_key: false }
    }

    /// The fault as it stands in a configuration with that layout's table.
    pub fn below(self, source: Option<usize>, table: &str) -> Fault {
        let keys = std::iter::once(table.to_owned()).chain(self.keys).collect();
        let place = match self.on_key {
            true => FaultPlace::Key { source, keys },
            false => FaultPlace::Setting { source, keys, entry: self.entry },
        };
        Fault::new(place, self.message, self.help)
    }
}

/// Refuses a folder without a name.
pub(super) fn check_root(root: &Path) -> Result<(), SettingFault> {
    let help = "write the data set's folder; a relative path counts from the folder in which the program is \
                started";
    match root.as_os_str().is_empty() {
        true => Err(SettingFault::new("root", "`root` is empty", help)),
        false => Ok(()),
    }
}

/// Refuses an empty choice, and one with something twice. `what` is one of its entries, such as
/// "view", and `offered` what there is to choose from.
pub(super) fn check_choice<T: PartialEq>(
    key: &str,
    what: &str,
    chosen: Option<&[T]>,
    offered: &str,
) -> Result<(), SettingFault> {
    let Some(chosen) = chosen else { return Ok(()) };
    if chosen.is_empty() {
        let message = format!("`{key}` is empty, so no image is left");
        let help = format!("write some of {offered}, or leave `{key}` out for all");
        return Err(SettingFault::new(key, message, help));
    }
    match (1..chosen.len()).find(|place| chosen[..*place].contains(&chosen[*place])) {
        Some(entry) => {
            let fault = SettingFault::new(key, format!("this {what} is given twice"), "remove one");
            Err(SettingFault { entry: Some(entry), ..fault })
        }
        None => Ok(()),
    }
}

/// Refuses soft labels drawn from a range that is none.
pub(in crate::data) fn check_policies(uncertain: &Uncertain) -> Result<(), SettingFault> {
    let check = |key: Option<&String>, policy: &UncertainPolicy| match policy {
        UncertainPolicy::Smooth([low, high]) if !(0.0 <= *low && low <= high && *high <= 1.0) => {
            let keys = ["uncertain"].into_iter().chain(key.map(String::as_str)).chain(["smooth"]);
            Err(SettingFault {
                keys: keys.map(str::to_owned).collect(),
                entry: None,
                on_key: false,
                message: format!("a soft label cannot be drawn between {low} and {high}"),
                help: "write two numbers from 0 to 1, the smaller first: `smooth = [0.55, 0.85]`"
                    .to_owned(),
            })
        }
        _ => Ok(()),
    };
    match uncertain {
        Uncertain::All(policy) => check(None, policy),
        Uncertain::PerLabel(policies) => {
            policies.iter().try_for_each(|(key, policy)| check(Some(key), policy))
        }
    }
}

/// Refuses a policy for a label that the layout does not have.
pub(in crate::data) fn check_uncertain_labels(
    uncertain: &Uncertain,
    vocabulary: &Vocabulary,
) -> Result<(), SettingFault> {
    let Uncertain::PerLabel(policies) = uncertain else { return Ok(()) };
    let findings = vocabulary.columns.iter().filter(|column| column.kind == Kind::Finding);
    let mut known: Vec<&str> = findings.map(|column| column.label.as_str()).collect();
    known.push(DEFAULT);
    match policies.keys().find(|key| !known.contains(&key.as_str())) {
        None => Ok(()),
        Some(key) => {
            let meant = nearest(key, &known).map(|known| format!("did you mean `{known}`? "));
            Err(SettingFault {
                keys: vec!["uncertain".to_owned(), key.clone()],
                entry: None,
                on_key: true,
                message: format!("there is no finding `{key}`"),
                help: format!(
                    "{}write a finding, or `default` for those not named; {}",
                    meant.unwrap_or_default(),
                    findings_offered(&[vocabulary])
                ),
            })
        }
    }
}

impl Uncertain {
    /// What a −1 of that finding becomes.
    pub(in crate::data) fn policy(&self, finding: &str) -> UncertainPolicy {
        match self {
            Self::All(policy) => *policy,
            Self::PerLabel(policies) => {
                policies.get(finding).or_else(|| policies.get(DEFAULT)).copied().unwrap_or_default()
            }
        }
    }
}
