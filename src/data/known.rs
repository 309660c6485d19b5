//! What is known of the labels: a head that nothing can be learnt for is refused, and what is missing
//! otherwise is told before the run begins.

use super::dataset::{Dataset, Splits};
use super::error::DataError;
use crate::model::{HeadConfig, Task};

/// Labels that a message names; it counts the others.
const NAMED: usize = 3;

/// Images whose label is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Known {
    /// Of those, the ones that have it (of a soft label, 0.5 or more); for a number, all.
    positive: usize,
    /// And those that have it not.
    negative: usize,
}

/// What a person should know about the labels of both sides, a sentence each.
///
/// # Errors
/// A head that has a weight and not a single known label in training.
pub fn check_known(splits: &Splits, heads: &[HeadConfig]) -> Result<Vec<String>, DataError> {
    let mut warnings = Vec::new();
    for (place, head) in heads.iter().enumerate() {
        let train = counts(&splits.train, place, head);
        if head.weight > 0.0 && is_unknown(&train) {
            let labels = named(head.labels.iter().map(|label| format!("`{label}`")));
            return Err(DataError::NothingKnown { head: head.name.clone(), labels });
        }
        warnings.extend(told("training", head, &train));
        warnings.extend(told("validation", head, &counts(&splits.validation, place, head)));
    }
    Ok(warnings)
}

/// What is known of each label of a head, or of each of its classes.
fn counts(dataset: &Dataset, place: usize, head: &HeadConfig) -> Vec<Known> {
    let targets = dataset.head_targets(place);
    let mut counts = vec![Known::default(); head.labels.len()];
    let known = targets.values.iter().zip(&targets.mask).enumerate();
    let known = known.filter(|(_, (_, mask))| **mask != 0.0).map(|(at, (value, _))| (at, *value));
    if head.task == Task::Multiclass {
        let mut all = 0;
        for (_, class) in known {
            all += 1;
            counts[class as usize].positive += 1;
        }
        counts.iter_mut().for_each(|class| class.negative = all - class.positive);
        return counts;
    }
    for (at, value) in known {
        let count = &mut counts[at % head.labels.len()];
        match head.task == Task::Regression || value >= 0.5 {
            true => count.positive += 1,
            false => count.negative += 1,
        }
    }
    counts
}

fn is_unknown(counts: &[Known]) -> bool {
    counts.iter().all(|known| *known == Known::default())
}

/// What the labels of a head lack among the images of a list.
fn told(list: &str, head: &HeadConfig, counts: &[Known]) -> Vec<String> {
    let name = &head.name;
    let trains = list == "training";
    if is_unknown(counts) {
        let then = if trains { "it is not trained" } else { "all its metrics are undefined" };
        return vec![format!("no {list} image has a known label of the head `{name}`: {then}")];
    }
    let with = || head.labels.iter().zip(counts);
    let unknown = with().filter(|(_, known)| **known == Known::default());
    let unknown: Vec<String> = unknown.map(|(label, _)| format!("`{label}`")).collect();
    if head.task == Task::Multiclass {
        let never = with().filter(|(_, known)| known.positive == 0);
        let never: Vec<String> = never.map(|(label, _)| format!("`{label}`")).collect();
        let (is, they) = match never.len() {
            0 => return Vec::new(),
            1 => ("the class", "it"),
            _ => ("the classes", "they"),
        };
        let then = match (trains, never.len()) {
            (true, _) => format!("{they} cannot be learnt"),
            (false, 1) => "it has no AUROC and AUPRC".to_owned(),
            (false, _) => "they have no AUROC and AUPRC".to_owned(),
        };
        let what = if trains { "; remove what is not in the data from `labels`" } else { "" };
        let never = named(never.into_iter());
        return vec![format!(
            "no {list} image is of {is} {never} of the head `{name}`, so {then}{what}"
        )];
    }
    let is_number = head.task == Task::Regression;
    let one_class = with().filter_map(|(label, known)| match (known.positive, known.negative) {
        _ if is_number => None,
        (0, 1..) => Some(format!("`{label}` (never positive)")),
        (1.., 0) => Some(format!("`{label}` (always positive)")),
        _ => None,
    });
    let one_class: Vec<String> = one_class.collect();
    let mut warnings = Vec::new();
    if !unknown.is_empty() {
        let then = if trains { "learnt" } else { "evaluated" };
        warnings.push(format!(
            "no {list} image has a known value of these labels of the head `{name}`, so they are not \
             {then}: {}",
            named(unknown.into_iter())
        ));
    }
    if !one_class.is_empty() {
        let then = if trains { "cannot be learnt" } else { "have no AUROC and AUPRC" };
        warnings.push(format!(
            "among the {list} images these labels of the head `{name}` have one class only, so they \
             {then}: {}",
            named(one_class.into_iter())
        ));
    }
    warnings
}

/// The first few, and how many more there are.
fn named(mut names: impl ExactSizeIterator<Item = String>) -> String {
    let more = names.len().saturating_sub(NAMED);
    let shown: Vec<String> = names.by_ref().take(NAMED).collect();
    match more {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests;
