//! Which labels the heads may use, and where each comes from. No file is read.

mod offered;

use std::collections::{BTreeMap, HashMap, HashSet};

use self::offered::{classes, known_as, names, offered, unread};
pub(super) use self::offered::{findings_offered, nearest};
use super::layout::{Column, Kind, Vocabulary, key_in};
use crate::fault::{Fault, fault};
use crate::model::{HeadConfig, Task};

/// Where one label of a head comes from, by the column of a vocabulary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// The finding or number of that column.
    Column(usize),
    /// 1 for this class of the column's two, 0 for the other.
    IsClass { column: usize, class: usize },
}

/// Where the labels of a head come from, in one data set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HeadSource {
    /// Label by label; none for those that this data set lacks.
    Each(Vec<Option<Origin>>),
    /// Class c of the column is class `classes[c]` of the head, if any.
    OneOf { column: usize, classes: Vec<Option<usize>> },
}

impl HeadSource {
    /// The columns it needs.
    pub fn columns(&self) -> Vec<usize> {
        match self {
            Self::OneOf { column, .. } => vec![*column],
            Self::Each(origins) => origins
                .iter()
                .flatten()
                .map(|origin| match origin {
                    Origin::Column(column) | Origin::IsClass { column, .. } => *column,
                })
                .collect(),
        }
    }

    /// Whether it supplies the head's label (or class) of that number.
    pub fn supplies(&self, label: usize) -> bool {
        match self {
            Self::Each(origins) => origins[label].is_some(),
            Self::OneOf { classes, .. } => classes.contains(&Some(label)),
        }
    }
}

/// What one data set offers to the heads.
pub(super) struct Offer<'a> {
    /// Its position in `[[data.sources]]`; none for a data set directly below `data`.
    pub place: Option<usize>,
    /// The name of its table, such as `csv`.
    pub table: &'a str,
    pub vocabulary: &'a Vocabulary,
    /// The heads it is for; all when absent.
    pub heads: Option<&'a [String]>,
    /// What it calls a head's label where the names differ.
    pub renames: Option<&'a BTreeMap<String, String>>,
}

impl Offer<'_> {
    fn is_for(&self, head: &HeadConfig) -> bool {
        self.heads.is_none_or(|heads| heads.contains(&head.name))
    }

    /// What this data set calls a label.
    fn name<'a>(&'a self, label: &'a str) -> &'a str {
        self.renames.and_then(|renames| renames.get(label)).map_or(label, String::as_str)
    }

    /// The columns that may be used by a head, with their places.
    fn columns(&self, head: &HeadConfig) -> impl Iterator<Item = (usize, &Column)> {
        let fits = |column: &Column| column.head.as_ref().is_none_or(|name| *name == head.name);
        self.vocabulary.columns.iter().enumerate().filter(move |(_, column)| fits(column))
    }

    /// The fault of a head that has no target, where targets are given head by head.
    fn lacks_target(&self, head: usize, config: &HeadConfig) -> Option<Fault> {
        let targets = self.vocabulary.targets.as_ref()?;
        if !self.is_for(config) || targets.contains(&config.name) {
            return None;
        }
        let known: Vec<&str> = targets.iter().map(String::as_str).collect();
        let meant = nearest(&config.name, &known);
        let meant =
            meant.map(|known| format!("did you mean to call `{known}` `{}`? ", config.name));
        let there = match known.as_slice() {
            [] => "there are no targets".to_owned(),
            known => format!("the targets are: {}", known.join(", ")),
        };
        let at = key_in(self.place, &[self.table, "targets"]);
        let message = format!("there is no target for the head `{}`", config.name);
        let help =
            format!("{}a target has the name of its head; {there}", meant.unwrap_or_default());
        Some(fault(at, message, help).also(format!("heads[{head}].labels")))
    }

    /// Where a head's labels come from; none where the data set has none of them.
    fn source(&self, head: &HeadConfig) -> Option<HeadSource> {
        if !self.is_for(head) {
            return None;
        }
        if head.task == Task::Multiclass {
            return self.classes(head);
        }
        let known = self.origins(head);
        let origin = |label: &String| known.get(self.name(label)).copied();
        let origins: Vec<_> = head.labels.iter().map(origin).collect();
        origins.iter().any(Option::is_some).then_some(HeadSource::Each(origins))
    }

    /// Where the labels come from that this data set has for a head's task, by its own names; the
    /// first column of several.
    fn origins(&self, head: &HeadConfig) -> HashMap<&str, Origin> {
        let mut origins = HashMap::new();
        for (place, column) in self.columns(head) {
            match (&column.kind, head.task) {
                (Kind::Finding, Task::Multilabel | Task::Binary)
                | (Kind::Number, Task::Regression) => {
                    origins.entry(column.label.as_str()).or_insert(Origin::Column(place));
                }
                (Kind::Classes(classes), Task::Binary) if classes.len() == 2 => {
                    for (class, name) in classes.iter().enumerate() {
                        let origin = Origin::IsClass { column: place, class };
                        origins.entry(name.as_str()).or_insert(origin);
                    }
                }
                _ => {}
            }
        }
        origins
    }

    /// The kind that has most of the head's classes; the first of several.
    fn classes(&self, head: &HeadConfig) -> Option<HeadSource> {
        let mut best: Option<(usize, HeadSource)> = None;
        for (column, kind) in self.columns(head) {
            let Kind::Classes(classes) = &kind.kind else { continue };
            let class = |theirs: &String| {
                head.labels.iter().position(|label| self.name(label) == theirs.as_str())
            };
            let classes: Vec<Option<usize>> = classes.iter().map(class).collect();
            let count = classes.iter().flatten().count();
            if count > best.as_ref().map_or(0, |(most, _)| *most) {
                best = Some((count, HeadSource::OneOf { column, classes }));
            }
        }
        best.map(|(_, source)| source)
    }
}

/// Where every head's labels come from: `[offer][head]`, none where a data set supplies nothing to
/// a head.
///
/// `multilabel` and `binary` heads take findings (`binary` also a class of two), `multiclass` heads
/// classes of one kind, `regression` heads numbers. Every label must be offered by one of the data
/// sets at least, unless they `may_lack_labels`.
///
/// # Errors
/// The first fault.
pub(super) fn bind(
    offers: &[Offer],
    heads: &[HeadConfig],
    may_lack_labels: bool,
) -> Result<Vec<Vec<Option<HeadSource>>>, Fault> {
    for offer in offers {
        check_offer(offer, heads)?;
    }
    let bound: Vec<Vec<Option<HeadSource>>> =
        offers.iter().map(|offer| heads.iter().map(|head| offer.source(head)).collect()).collect();
    for (place, head) in heads.iter().enumerate().filter(|_| !may_lack_labels) {
        let sources: Vec<&HeadSource> =
            bound.iter().filter_map(|heads| heads[place].as_ref()).collect();
        check_head(place, head, offers, &sources)?;
    }
    for (offer, bound) in offers.iter().zip(&bound) {
        check_supply(offer, heads, |head: usize| bound[head].is_some())?;
    }
    Ok(bound)
}

/// Refuses heads that there are not, and renames of labels that there are not or to such.
fn check_offer(offer: &Offer, heads: &[HeadConfig]) -> Result<(), Fault> {
    for (entry, name) in offer.heads.unwrap_or_default().iter().enumerate() {
        let known: Vec<&str> = heads.iter().map(|head| head.name.as_str()).collect();
        if !known.contains(&name.as_str()) {
            let at = format!("{}[{entry}]", key_in(offer.place, &["heads"]));
            let help = format!("the heads are: {}", known.join(", "));
            return Err(fault(at, format!("there is no head `{name}`"), help));
        }
    }
    for (label, theirs) in offer.renames.into_iter().flatten() {
        let at = || key_in(offer.place, &["labels", label]);
        if offer.vocabulary.targets.is_some() {
            let message = "arrays have no names of labels";
            let help =
                "remove it: the columns of a target are the labels of its head, in their order";
            return Err(fault(at(), message, help));
        }
        let used = heads.iter().filter(|head| offer.is_for(head));
        let used: Vec<&str> = used.flat_map(|head| &head.labels).map(String::as_str).collect();
        if !used.contains(&label.as_str()) {
            let message = format!("no head that this source supplies has a label `{label}`");
            let help = "on the left stands the head's label, on the right what this data set \
                        calls it";
            let meant = nearest(label, &used).map(|known| format!("did you mean `{known}`? "));
            let help = meant.unwrap_or_default() + help;
            return Err(fault(at(), message, help).on_key());
        }
        let known = names(&[offer.vocabulary]);
        if !known.contains(&theirs.as_str()) {
            let meant = nearest(theirs, &known).map(|known| format!("did you mean `{known}`? "));
            let help = meant.unwrap_or_default() + &findings_offered(&[offer.vocabulary]);
            return Err(fault(at(), format!("this data set has no label `{theirs}`"), help));
        }
        let twice = heads.iter().any(|head| {
            let same = head.labels.iter().filter(|label| offer.name(label) == theirs.as_str());
            head.task == Task::Multiclass && same.count() > 1
        });
        if twice {
            let message = format!("`{theirs}` would be two classes of one head");
            return Err(fault(at(), message, "rename one label to it at most"));
        }
    }
    Ok(())
}

/// Refuses a head with too few labels or too many, and labels that no data set supplies.
fn check_head(
    head: usize,
    config: &HeadConfig,
    offers: &[Offer],
    sources: &[&HeadSource],
) -> Result<(), Fault> {
    let offering: Vec<&Offer> = offers.iter().filter(|offer| offer.is_for(config)).collect();
    let whole = format!("heads[{head}].labels");
    if offering.is_empty() {
        let message = format!("no source is for the head `{}`", config.name);
        let help = "add it to `heads` of one of the `[[data.sources]]`";
        return Err(fault(whole, message, help));
    }
    let vocabularies: Vec<&Vocabulary> = offering.iter().map(|offer| offer.vocabulary).collect();
    let offered = |task| offered(task, &vocabularies, &config.name);
    let mut known = HashSet::with_capacity(config.labels.len());
    for (label, name) in config.labels.iter().enumerate() {
        if !known.insert(name) {
            let at = format!("{whole}[{label}]");
            return Err(fault(at, format!("`{name}` stands twice"), "remove one of the two"));
        }
    }
    match (config.task, config.labels.len()) {
        (task, 0) => return Err(fault(whole, "a head needs a label", offered(task))),
        (Task::Binary, count @ 2..) => {
            let message = format!("a `binary` head has one label, not {count}");
            let help = "use `task = \"multilabel\"`, or one head per label";
            return Err(fault(whole, message, help));
        }
        (Task::Multiclass, 1) => {
            let message = "a `multiclass` head needs at least two classes";
            return Err(fault(whole, message, offered(Task::Multiclass)));
        }
        _ => {}
    }
    let missing = |label: &usize| !sources.iter().any(|source| source.supplies(*label));
    let Some(label) = (0..config.labels.len()).find(missing) else { return Ok(()) };
    // Where only arrays are for a head, what it lacks is its target.
    let without: Vec<Fault> =
        offering.iter().filter_map(|offer| offer.lacks_target(head, config)).collect();
    if without.len() == offering.len()
        && let Some(fault) = without.into_iter().next()
    {
        return Err(fault);
    }
    if config.task == Task::Multiclass {
        let known = |name: &String| classes(&vocabularies).any(|class| class == name);
        match config.labels.iter().position(|name| !known(name)) {
            Some(label) => return Err(not_offered(head, label, config, &vocabularies)),
            None => {
                let message =
                    format!("`{}` are not classes of one kind", config.labels.join("`, `"));
                return Err(fault(whole, message, offered(Task::Multiclass)));
            }
        }
    }
    Err(not_offered(head, label, config, &vocabularies))
}

/// Refuses a source that supplies nothing, or nothing to a head that it names.
fn check_supply(
    offer: &Offer,
    heads: &[HeadConfig],
    supplied: impl Fn(usize) -> bool,
) -> Result<(), Fault> {
    for (entry, name) in offer.heads.unwrap_or_default().iter().enumerate() {
        let head = heads.iter().position(|head| head.name == *name);
        if let Some(head) = head.filter(|head| !supplied(*head)) {
            if let Some(fault) = offer.lacks_target(head, &heads[head]) {
                return Err(fault);
            }
            let at = format!("{}[{entry}]", key_in(offer.place, &["heads"]));
            let message = format!("this data set has no label of the head `{name}`");
            let help = "take the head out of `heads`, or say under `labels` what this data set \
                        calls its labels";
            return Err(fault(at, message, help));
        }
    }
    if heads.is_empty() || (0..heads.len()).any(supplied) {
        return Ok(());
    }
    let mut faults = heads.iter().enumerate();
    if let Some(fault) = faults.find_map(|(place, head)| offer.lacks_target(place, head)) {
        return Err(fault);
    }
    let columns = match unread(&[offer.vocabulary]).as_slice() {
        [] => String::new(),
        unread => format!("; its columns are: {}", unread.join(", ")),
    };
    let help = format!(
        "remove the source, or say under `labels` what it calls the heads' labels{columns}"
    );
    Err(fault(key_in(offer.place, &[]), "this data set has no label of any head", help))
}

fn not_offered(
    head: usize,
    label: usize,
    config: &HeadConfig,
    vocabularies: &[&Vocabulary],
) -> Fault {
    let name = &config.labels[label];
    let unread = unread(vocabularies);
    let known = [names(vocabularies), unread.clone()].concat();
    let offer = offered(config.task, vocabularies, &config.name);
    let (message, help) = match known_as(name, vocabularies) {
        Some(kind) => (format!("`{name}` is {kind}"), offer),
        None => {
            let meant = nearest(name, &known).map(|known| format!("did you mean `{known}`? "));
            let columns = match unread.as_slice() {
                [] => String::new(),
                unread => format!("; columns that no head reads: {}", unread.join(", ")),
            };
            let help = format!("{}{offer}{columns}", meant.unwrap_or_default());
            (format!("the data have no label `{name}`"), help)
        }
    };
    fault(format!("heads[{head}].labels[{label}]"), message, help)
}

#[cfg(test)]
mod tests;
