//! What a head may name, in words.

use crate::data::layout::{Column, Kind, Vocabulary};
use crate::model::Task;

/// What a name stands for, where it stands for something.
pub(super) fn known_as(name: &str, vocabularies: &[&Vocabulary]) -> Option<&'static str> {
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
pub(super) fn offered(task: Task, vocabularies: &[&Vocabulary], head: &str) -> String {
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
        true => format!("the data have nothing for a `{task}` head"),
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
pub(in crate::data) fn findings_offered(vocabularies: &[&Vocabulary]) -> String {
    let mut findings: Vec<&str> = Vec::new();
    for column in vocabularies.iter().flat_map(|vocabulary| &vocabulary.columns) {
        if column.kind == Kind::Finding && !findings.contains(&column.label.as_str()) {
            findings.push(&column.label);
        }
    }
    match findings.len() {
        0 => "the data have no findings".to_owned(),
        count if count > MANY => {
            let few = findings[..MANY / 2].join(", ");
            let more = count - MANY / 2;
            format!("the findings are: {few} and {more} more (see datasets/README.md)")
        }
        _ => format!("the findings are: {}", findings.join(", ")),
    }
}

pub(super) fn classes<'a>(vocabularies: &[&'a Vocabulary]) -> impl Iterator<Item = &'a str> {
    let columns = vocabularies.iter().flat_map(|vocabulary| &vocabulary.columns);
    let classes = columns.filter_map(|column| match &column.kind {
        Kind::Classes(classes) => Some(classes),
        _ => None,
    });
    classes.flatten().map(String::as_str)
}

/// Everything that a head may name.
pub(super) fn names<'a>(vocabularies: &[&'a Vocabulary]) -> Vec<&'a str> {
    let columns = vocabularies.iter().flat_map(|vocabulary| &vocabulary.columns);
    let single = columns.filter(|column| !matches!(column.kind, Kind::Classes(_)));
    let mut names: Vec<&str> = single.map(|column| column.label.as_str()).collect();
    names.extend(classes(vocabularies));
    names
}

/// The columns of tables that no head reads.
pub(super) fn unread<'a>(vocabularies: &[&'a Vocabulary]) -> Vec<&'a str> {
    let mut columns: Vec<&str> = Vec::new();
    for column in vocabularies.iter().flat_map(|vocabulary| &vocabulary.unread) {
        if !columns.contains(&column.as_str()) {
            columns.push(column);
        }
    }
    columns
}

/// The known name most like `name`, if one is like it at all.
pub(in crate::data) fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let likeness = |other: &str| strsim::jaro_winkler(&name.to_lowercase(), &other.to_lowercase());
    let best = known.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (likeness(best) > 0.8).then_some(*best)
}
