//! Which labels the heads may use, and where each comes from. No file is read.

use std::collections::BTreeMap;

use super::layout::{Column, Fault, FaultPlace, Kind, Vocabulary};
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
    fn supplies(&self, label: usize) -> bool {
        match self {
            Self::Each(origins) => origins[label].is_some(),
            Self::OneOf { classes, .. } => classes.contains(&Some(label)),
        }
    }
}

/// What one data set offers to the heads.
pub(super) struct Offer<'a> {
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

    /// Where a head's labels come from; none where the data set has none of them.
    fn source(&self, head: &HeadConfig) -> Option<HeadSource> {
        if !self.is_for(head) {
            return None;
        }
        if head.task == Task::Multiclass {
            return self.classes(head);
        }
        let origins: Vec<_> = head.labels.iter().map(|label| self.origin(head, label)).collect();
        origins.iter().any(Option::is_some).then_some(HeadSource::Each(origins))
    }

    fn origin(&self, head: &HeadConfig, label: &str) -> Option<Origin> {
        let wanted = self.name(label);
        self.columns(head).find_map(|(place, column)| match (&column.kind, head.task) {
            (Kind::Finding, Task::Multilabel | Task::Binary) | (Kind::Number, Task::Regression) => {
                (column.label == wanted).then_some(Origin::Column(place))
            }
            (Kind::Classes(classes), Task::Binary) if classes.len() == 2 => {
                let class = classes.iter().position(|class| class == wanted)?;
                Some(Origin::IsClass { column: place, class })
            }
            _ => None,
        })
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
/// sets at least.
///
/// # Errors
/// The first fault.
pub(super) fn bind(
    offers: &[Offer],
    heads: &[HeadConfig],
) -> Result<Vec<Vec<Option<HeadSource>>>, Fault> {
    for (place, offer) in offers.iter().enumerate() {
        check_offer(place, offer, heads)?;
    }
    let bound: Vec<Vec<Option<HeadSource>>> =
        offers.iter().map(|offer| heads.iter().map(|head| offer.source(head)).collect()).collect();
    for (place, head) in heads.iter().enumerate() {
        let sources: Vec<&HeadSource> =
            bound.iter().filter_map(|heads| heads[place].as_ref()).collect();
        check_head(place, head, offers, &sources)?;
    }
    for (source, bound) in bound.iter().enumerate() {
        let supplied = |head: usize| bound[head].is_some();
        check_supply(source, &offers[source], heads, supplied)?;
    }
    Ok(bound)
}

/// Refuses heads that there are not, and renames of labels that there are not or to such.
fn check_offer(place: usize, offer: &Offer, heads: &[HeadConfig]) -> Result<(), Fault> {
    for (entry, name) in offer.heads.unwrap_or_default().iter().enumerate() {
        let known: Vec<&str> = heads.iter().map(|head| head.name.as_str()).collect();
        if !known.contains(&name.as_str()) {
            let at = setting(place, &["heads"], Some(entry));
            let help = format!("the heads are: {}", known.join(", "));
            return Err(Fault::new(at, format!("there is no head `{name}`"), help));
        }
    }
    for (label, theirs) in offer.renames.into_iter().flatten() {
        let at = || setting(place, &["labels", label], None);
        let used = heads.iter().filter(|head| offer.is_for(head));
        let used: Vec<&str> = used.flat_map(|head| &head.labels).map(String::as_str).collect();
        if !used.contains(&label.as_str()) {
            let message = format!("no head that this source supplies has a label `{label}`");
            let help = "on the left stands the head's label, on the right what this data set \
                        calls it";
            let meant = nearest(label, &used).map(|known| format!("did you mean `{known}`? "));
            return Err(Fault::new(at(), message, meant.unwrap_or_default() + help));
        }
        let known = names(&[offer.vocabulary]);
        if !known.contains(&theirs.as_str()) {
            let meant = nearest(theirs, &known).map(|known| format!("did you mean `{known}`? "));
            let help = meant.unwrap_or_default() + &findings_offered(&[offer.vocabulary]);
            return Err(Fault::new(at(), format!("this data set has no label `{theirs}`"), help));
        }
        let twice = heads.iter().any(|head| {
            let same = head.labels.iter().filter(|label| offer.name(label) == theirs.as_str());
            head.task == Task::Multiclass && same.count() > 1
        });
        if twice {
            let message = format!("`{theirs}` would be two classes of one head");
            return Err(Fault::new(at(), message, "rename one label to it at most"));
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
    let whole = FaultPlace::Head { head };
    if offering.is_empty() {
        let message = format!("no source is for the head `{}`", config.name);
        let help = "add it to `heads` of one of the `[[data.sources]]`";
        return Err(Fault::new(whole, message, help));
    }
    let vocabularies: Vec<&Vocabulary> = offering.iter().map(|offer| offer.vocabulary).collect();
    let offered = |task| offered(task, &vocabularies, &config.name);
    for (label, name) in config.labels.iter().enumerate() {
        if config.labels[..label].contains(name) {
            let at = FaultPlace::Label { head, label };
            return Err(Fault::new(at, format!("`{name}` stands twice"), "remove one of the two"));
        }
    }
    match (config.task, config.labels.len()) {
        (task, 0) => return Err(Fault::new(whole, "a head needs a label", offered(task))),
        (Task::Binary, count @ 2..) => {
            let message = format!("a `binary` head has one label, not {count}");
            let help = "use `task = \"multilabel\"`, or one head per label";
            return Err(Fault::new(whole, message, help));
        }
        (Task::Multiclass, 1) => {
            let message = "a `multiclass` head needs at least two classes";
            return Err(Fault::new(whole, message, offered(Task::Multiclass)));
        }
        _ => {}
    }
    let missing = |label: &usize| !sources.iter().any(|source| source.supplies(*label));
    let Some(label) = (0..config.labels.len()).find(missing) else { return Ok(()) };
    if config.task == Task::Multiclass {
        let known = |name: &String| classes(&vocabularies).any(|class| class == name);
        match config.labels.iter().position(|name| !known(name)) {
            Some(label) => return Err(not_offered(head, label, config, &vocabularies)),
            None => {
                let message =
                    format!("`{}` are not classes of one kind", config.labels.join("`, `"));
                return Err(Fault::new(whole, message, offered(Task::Multiclass)));
            }
        }
    }
    Err(not_offered(head, label, config, &vocabularies))
}

/// Refuses a source that supplies nothing, or nothing to a head that it names.
fn check_supply(
    source: usize,
    offer: &Offer,
    heads: &[HeadConfig],
    supplied: impl Fn(usize) -> bool,
) -> Result<(), Fault> {
    for (entry, name) in offer.heads.unwrap_or_default().iter().enumerate() {
        if heads.iter().position(|head| head.name == *name).is_some_and(|head| !supplied(head)) {
            let at = setting(source, &["heads"], Some(entry));
            let message = format!("this data set has no label of the head `{name}`");
            let help = "take the head out of `heads`, or say under `labels` what this data set \
                        calls its labels";
            return Err(Fault::new(at, message, help));
        }
    }
    if !heads.is_empty() && !(0..heads.len()).any(supplied) {
        let help = "remove the source, or say under `labels` what it calls the heads' labels";
        return Err(Fault::new(
            setting(source, &[], None),
            "this data set has no label of any head",
            help,
        ));
    }
    Ok(())
}

fn setting(source: usize, keys: &[&str], entry: Option<usize>) -> FaultPlace {
    let keys = keys.iter().map(|key| (*key).to_owned()).collect();
    FaultPlace::Setting { source: Some(source), keys, entry }
}

fn not_offered(
    head: usize,
    label: usize,
    config: &HeadConfig,
    vocabularies: &[&Vocabulary],
) -> Fault {
    let name = &config.labels[label];
    let known = names(vocabularies);
    let offer = offered(config.task, vocabularies, &config.name);
    let (message, help) = match known_as(name, vocabularies) {
        Some(kind) => (format!("`{name}` is {kind}"), offer),
        None => {
            let meant = nearest(name, &known).map(|known| format!("did you mean `{known}`? "));
            let help = format!("{}{offer}", meant.unwrap_or_default());
            (format!("the data has no label `{name}`"), help)
        }
    };
    Fault::new(FaultPlace::Label { head, label }, message, help)
}

/// What a name stands for, where it stands for something.
fn known_as(name: &str, vocabularies: &[&Vocabulary]) -> Option<&'static str> {
    let mut columns = vocabularies.iter().flat_map(|vocabulary| &vocabulary.columns);
    columns.find_map(|column| match &column.kind {
        Kind::Number if column.label == name => {
            Some("a number, for a head with `task = \"regression\"`")
        }
        Kind::Finding if column.label == name => {
            Some("a finding, for a head with `task = \"multilabel\"` or `\"binary\"`")
        }
        Kind::Classes(classes) if classes.iter().any(|class| class == name) => {
            Some("a class, for a head with `task = \"multiclass\"`")
        }
        _ => None,
    })
}

/// What a head of that task and name may have as labels.
fn offered(task: Task, vocabularies: &[&Vocabulary], head: &str) -> String {
    let fits = |column: &&Column| column.head.as_ref().is_none_or(|name| name == head);
    let columns = vocabularies.iter().flat_map(|vocabulary| &vocabulary.columns).filter(fits);
    let classes = |count: std::ops::RangeInclusive<usize>| {
        let mut kinds: Vec<&[String]> = Vec::new();
        for column in columns.clone() {
            match &column.kind {
                Kind::Classes(classes)
                    if count.contains(&classes.len()) && !kinds.contains(&&classes[..]) =>
                {
                    kinds.push(classes);
                }
                _ => {}
            }
        }
        kinds
    };
    match task {
        Task::Multilabel => findings_offered(vocabularies),
        Task::Binary => {
            let finding = columns.clone().find(|column| column.kind == Kind::Finding);
            let example = finding.map(|column| format!("one finding (such as {:?})", column.label));
            let classes = classes(2..=2).concat().into_iter().map(|class| format!("{class:?}"));
            let all: Vec<String> = example.into_iter().chain(classes).collect();
            takes("binary", &alternatives(&all))
        }
        Task::Multiclass => {
            let quoted = |kind: &&[String]| {
                kind.iter().map(|class| format!("{class:?}")).collect::<Vec<_>>().join(", ")
            };
            let kinds: Vec<String> = classes(2..=usize::MAX).iter().map(quoted).collect();
            let of_one_kind = match kinds.is_empty() {
                true => String::new(),
                false => format!("classes of one kind: {}", kinds.join("; or ")),
            };
            takes("multiclass", &of_one_kind)
        }
        Task::Regression => {
            let numbers = columns.filter(|column| column.kind == Kind::Number);
            let mut numbers: Vec<String> =
                numbers.map(|column| format!("{:?}", column.label)).collect();
            numbers.dedup();
            takes("regression", &alternatives(&numbers))
        }
    }
}

fn takes(task: &str, what: &str) -> String {
    match what.is_empty() {
        true => format!("the data has nothing for a `{task}` head"),
        false => format!("a `{task}` head takes {what}"),
    }
}

/// `a`, `a or b`, `a, b or c`.
fn alternatives(all: &[String]) -> String {
    match all {
        [rest @ .., before, last] if !rest.is_empty() => {
            format!("{}, {before} or {last}", rest.join(", "))
        }
        all => all.join(" or "),
    }
}

/// More findings than these fill a screen.
const MANY: usize = 40;

/// The findings of all, as a help lists them.
pub(super) fn findings_offered(vocabularies: &[&Vocabulary]) -> String {
    let mut findings: Vec<&str> = Vec::new();
    for column in vocabularies.iter().flat_map(|vocabulary| &vocabulary.columns) {
        if column.kind == Kind::Finding && !findings.contains(&column.label.as_str()) {
            findings.push(&column.label);
        }
    }
    match findings.len() {
        0 => "the data has no findings".to_owned(),
        count if count > MANY => {
            let few = findings[..MANY / 2].join(", ");
            let more = count - MANY / 2;
            format!("the findings are: {few} and {more} more (see datasets/README.md)")
        }
        _ => format!("the findings are: {}", findings.join(", ")),
    }
}

fn classes<'a>(vocabularies: &[&'a Vocabulary]) -> impl Iterator<Item = &'a str> {
    let columns = vocabularies.iter().flat_map(|vocabulary| &vocabulary.columns);
    let classes = columns.filter_map(|column| match &column.kind {
        Kind::Classes(classes) => Some(classes),
        _ => None,
    });
    classes.flatten().map(String::as_str)
}

/// Everything that a head may name.
fn names<'a>(vocabularies: &[&'a Vocabulary]) -> Vec<&'a str> {
    let columns = vocabularies.iter().flat_map(|vocabulary| &vocabulary.columns);
    let single = columns.filter(|column| !matches!(column.kind, Kind::Classes(_)));
    let mut names: Vec<&str> = single.map(|column| column.label.as_str()).collect();
    names.extend(classes(vocabularies));
    names
}

/// The known name most like `name`, if one is like it at all.
pub(super) fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let likeness = |other: &str| strsim::jaro_winkler(&name.to_lowercase(), &other.to_lowercase());
    let best = known.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (likeness(best) > 0.8).then_some(*best)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::config::{DataConfig, UncertainPolicy};
    use crate::data::layout::FINDINGS;
    use crate::data::{check_labels, check_layouts};

    fn config(uncertain: &str) -> DataConfig {
        let text = format!(
            "image = {{ size = [32, 32] }}\n[chexpert]\nroot = 'x'\nuncertain = {uncertain}"
        );
        toml::from_str(&text).expect("reads")
    }

    fn check(task: &str, labels: &[&str]) -> Result<(), Fault> {
        let text = format!("name = 'h'\ntask = '{task}'\nlabels = {labels:?}");
        check_labels(&config("'ones'"), &[toml::from_str(&text).expect("reads")])
    }

    fn said(outcome: Result<(), Fault>) -> String {
        let fault = outcome.expect_err("is refused");
        format!("{:?}: {}\n{}", fault.place, fault.message, fault.help.unwrap_or_default())
    }

    #[test]
    fn every_task_takes_what_is_offered_to_it() {
        assert_eq!(check("multilabel", &FINDINGS), Ok(()));
        for label in ["Female", "Male", "Frontal", "Edema"] {
            assert_eq!(check("binary", &[label]), Ok(()));
        }
        for classes in [&["PA", "AP", "Lateral"][..], &["Frontal", "Lateral"], &["Female", "Male"]]
        {
            assert_eq!(check("multiclass", classes), Ok(()));
        }
        assert_eq!(check("multiclass", &["Lateral", "PA"]), Ok(()));
        assert_eq!(check("regression", &["Age"]), Ok(()));
    }

    #[test]
    fn wrong_labels_are_named_with_what_to_write_instead() {
        insta::assert_snapshot!(said(check("multilabel", &["Edema", "Pneumotorax"])), @r#"
        Label { head: 0, label: 1 }: the data has no label `Pneumotorax`
        did you mean `Pneumothorax`? the findings are: No Finding, Enlarged Cardiomediastinum, Cardiomegaly, Lung Opacity, Lung Lesion, Edema, Consolidation, Pneumonia, Atelectasis, Pneumothorax, Pleural Effusion, Pleural Other, Fracture, Support Devices
        "#);
        insta::assert_snapshot!(said(check("multilabel", &["Edema", "Age"])), @r#"
        Label { head: 0, label: 1 }: `Age` is a number, for a head with `task = "regression"`
        the findings are: No Finding, Enlarged Cardiomediastinum, Cardiomegaly, Lung Opacity, Lung Lesion, Edema, Consolidation, Pneumonia, Atelectasis, Pneumothorax, Pleural Effusion, Pleural Other, Fracture, Support Devices
        "#);
        insta::assert_snapshot!(said(check("multilabel", &["Edema", "Edema"])), @r#"
        Label { head: 0, label: 1 }: `Edema` stands twice
        remove one of the two
        "#);
        insta::assert_snapshot!(said(check("multilabel", &[])), @r#"
        Head { head: 0 }: a head needs a label
        the findings are: No Finding, Enlarged Cardiomediastinum, Cardiomegaly, Lung Opacity, Lung Lesion, Edema, Consolidation, Pneumonia, Atelectasis, Pneumothorax, Pleural Effusion, Pleural Other, Fracture, Support Devices
        "#);
        insta::assert_snapshot!(said(check("binary", &["Edema", "Fracture"])), @r#"
        Head { head: 0 }: a `binary` head has one label, not 2
        use `task = "multilabel"`, or one head per label
        "#);
        insta::assert_snapshot!(said(check("multiclass", &["PA", "Female"])), @r#"
        Head { head: 0 }: `PA`, `Female` are not classes of one kind
        a `multiclass` head takes classes of one kind: "PA", "AP", "Lateral"; or "Frontal", "Lateral"; or "Female", "Male"
        "#);
        insta::assert_snapshot!(said(check("multiclass", &["PA", "Latral"])), @r#"
        Label { head: 0, label: 1 }: the data has no label `Latral`
        did you mean `Lateral`? a `multiclass` head takes classes of one kind: "PA", "AP", "Lateral"; or "Frontal", "Lateral"; or "Female", "Male"
        "#);
        insta::assert_snapshot!(said(check("multiclass", &["PA"])), @r#"
        Head { head: 0 }: a `multiclass` head needs at least two classes
        a `multiclass` head takes classes of one kind: "PA", "AP", "Lateral"; or "Frontal", "Lateral"; or "Female", "Male"
        "#);
        insta::assert_snapshot!(said(check("regression", &["Weight"])), @r#"
        Label { head: 0, label: 0 }: the data has no label `Weight`
        a `regression` head takes "Age"
        "#);
    }

    #[test]
    fn wrong_policies_are_named_by_their_key() {
        let policies = |uncertain| {
            let config = config(uncertain);
            said(check_layouts(&config).and_then(|()| check_labels(&config, &[])))
        };
        insta::assert_snapshot!(policies("{ Edma = 'ones' }"), @r#"
        Setting { source: None, keys: ["chexpert", "uncertain", "Edma"], entry: None }: there is no finding `Edma`
        did you mean `Edema`? write a finding, or `default` for those not named; the findings are: No Finding, Enlarged Cardiomediastinum, Cardiomegaly, Lung Opacity, Lung Lesion, Edema, Consolidation, Pneumonia, Atelectasis, Pneumothorax, Pleural Effusion, Pleural Other, Fracture, Support Devices
        "#);
        insta::assert_snapshot!(policies("{ Edema = { smooth = [0.8, 0.5] } }"), @r#"
        Setting { source: None, keys: ["chexpert", "uncertain", "Edema", "smooth"], entry: None }: a soft label cannot be drawn between 0.8 and 0.5
        write two numbers from 0 to 1, the smaller first: `smooth = [0.55, 0.85]`
        "#);
        insta::assert_snapshot!(policies("{ smooth = [0.5, 1.5] }"), @r#"
        Setting { source: None, keys: ["chexpert", "uncertain", "smooth"], entry: None }: a soft label cannot be drawn between 0.5 and 1.5
        write two numbers from 0 to 1, the smaller first: `smooth = [0.55, 0.85]`
        "#);
        let fine = "{ default = 'zeros', Edema = { smooth = [0.5, 0.8] } }";
        assert_eq!(check_labels(&config(fine), &[]), Ok(()));
    }

    #[test]
    fn labels_without_a_policy_of_their_own_take_the_default() {
        let named = config("{ default = 'zeros', Edema = 'ones' }").chexpert.expect("is given");
        assert_eq!(named.uncertain.policy("Edema"), UncertainPolicy::Ones);
        assert_eq!(named.uncertain.policy("Fracture"), UncertainPolicy::Zeros);
        let bare = config("{ Edema = 'ones' }").chexpert.expect("is given");
        assert_eq!(bare.uncertain.policy("Fracture"), UncertainPolicy::Ignore);
    }
}
