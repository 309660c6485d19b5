//! What can be wrong with a layout's settings, told before any file is read.

use std::path::Path;

use super::super::config::{Uncertain, UncertainPolicy};
use super::{Kind, Vocabulary};
use crate::data::labels::{findings_offered, nearest};
use crate::fault::{Fault, fault};
use crate::screen::written;

/// The key of `uncertain` that stands for all labels not named.
const DEFAULT: &str = "default";

/// A key below `data`, or below `data.sources[source]`.
pub(in crate::data) fn key_in(source: Option<usize>, keys: &[&str]) -> String {
    let above = source.map_or("data".to_owned(), |place| format!("data.sources[{place}]"));
    keys.iter().fold(above, |above, key| format!("{above}.{}", written(key)))
}

/// Refuses a folder without a name.
pub(super) fn check_root(root: &Path) -> Result<(), Fault> {
    let help = "write the data set's folder; a relative path counts from the folder in which the program is \
                started";
    match root.as_os_str().is_empty() {
        true => Err(fault("root", "`root` is empty", help)),
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
) -> Result<(), Fault> {
    let Some(chosen) = chosen else { return Ok(()) };
    if chosen.is_empty() {
        let message = format!("`{key}` is empty, so no image is left");
        let help = format!("write some of {offered}, or leave `{key}` out for all");
        return Err(fault(key, message, help));
    }
    match (1..chosen.len()).find(|place| chosen[..*place].contains(&chosen[*place])) {
        Some(entry) => {
            let message = format!("this {what} is given twice");
            Err(fault(format!("{key}[{entry}]"), message, "remove one"))
        }
        None => Ok(()),
    }
}

/// Refuses soft labels drawn from a range that is none.
pub(in crate::data) fn check_policies(uncertain: &Uncertain) -> Result<(), Fault> {
    let check = |key: Option<&String>, policy: &UncertainPolicy| match policy {
        UncertainPolicy::Smooth([low, high]) if !(0.0 <= *low && low <= high && *high <= 1.0) => {
            let table = key.map_or(String::new(), |key| format!(".{}", written(key)));
            let message = format!("a soft label cannot be drawn between {low} and {high}");
            let help = "write two numbers from 0 to 1, the smaller first: `smooth = [0.55, 0.85]`";
            Err(fault(format!("uncertain{table}.smooth"), message, help))
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
) -> Result<(), Fault> {
    let Uncertain::PerLabel(policies) = uncertain else { return Ok(()) };
    let findings = vocabulary.columns.iter().filter(|column| column.kind == Kind::Finding);
    let mut known: Vec<&str> = findings.map(|column| column.label.as_str()).collect();
    known.push(DEFAULT);
    match policies.keys().find(|key| !known.contains(&key.as_str())) {
        None => Ok(()),
        Some(key) => {
            let meant = nearest(key, &known).map(|known| format!("did you mean `{known}`? "));
            let help = format!(
                "{}write a finding, or `default` for those not named; {}",
                meant.unwrap_or_default(),
                findings_offered(&[vocabulary])
            );
            let message = format!("there is no finding `{key}`");
            Err(fault(format!("uncertain.{}", written(key)), message, help).on_key())
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
