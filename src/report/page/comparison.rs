//! Several runs side by side.

use std::collections::{BTreeMap, BTreeSet};

use askama::Template;

use super::curves::{id, validation_names};
use super::figure::{Figure, Table, chosen};
use super::record::{Epoch, Record};
use super::run::state;
use crate::evaluate::HeadComparison;
use crate::report::comparison::{WORDS, rows, titles};
use crate::report::table::shown;
use crate::report::{Chart, Curve, HeadLabels, Shape};

#[derive(Template)]
#[template(path = "comparison.html")]
struct ComparisonTemplate {
    runs: Table,
    values: Table,
    differences: Table,
    /// Nothing where runs are not tested against each other.
    tests: Option<Tests>,
    curves: Vec<Figure>,
    metrics: Vec<Figure>,
}

/// What `trainer compare` has found of runs.
#[derive(Debug)]
pub struct Tested {
    /// Of what images it is, in a few words.
    pub images: String,
    /// The heads and labels in their order.
    pub heads: Vec<HeadLabels>,
    /// The names of two runs, and how they compare.
    pub pairs: Vec<([String; 2], BTreeMap<String, HeadComparison>)>,
}

/// The section on it.
struct Tests {
    /// Of what images it is, or why there is nothing.
    told: String,
    tables: Vec<(Table, Vec<String>)>,
}

impl Tests {
    fn of(tested: &Result<Tested, String>) -> Self {
        let tested = match tested {
            Ok(tested) => tested,
            Err(reason) => {
                let told = format!("The runs are not tested: {reason}");
                return Self { told, tables: Vec::new() };
            }
        };
        let table = |([first, second], found): &([String; 2], _)| {
            let caption = format!("{second} less {first}");
            let mut table = Table::new(caption, titles([first, second]), WORDS);
            let reasons;
            (table.rows, reasons) = rows(found, &tested.heads);
            // A row of a page is not named by nothing.
            let labels = table.rows.iter_mut().map(|row| &mut row[WORDS - 1]);
            labels.filter(|label| label.is_empty()).for_each(|label| "mean".clone_into(label));
            (table, reasons)
        };
        let told = format!(
            "On {}, each predicted as its run saved it: AUROC by DeLong's paired test, other metrics by the \
             paired bootstrap over patients. p is how likely so great a difference is between models that \
             are equally good.",
            tested.images
        );
        Self { told, tables: tested.pairs.iter().map(table).collect() }
    }
}

/// The page that compares `runs`, each with the name that it is called by there, as an HTML file; with what was
/// `tested` of them, or why nothing was.
pub fn comparison(runs: &[(String, Record)], tested: Option<&Result<Tested, String>>) -> String {
    let losses = [("Training loss", true, "loss"), ("Validation loss", false, "loss")];
    let losses =
        losses.into_iter().filter_map(|(title, train, key)| figure(runs, title, train, key));
    let records: Vec<&Record> = runs.iter().map(|(_, record)| record).collect();
    let names = validation_names(&records);
    // Of heads; the labels' stand in the table.
    let of_heads = names.iter().filter(|name| name.matches('/').count() == 1);
    let metrics =
        of_heads.filter_map(|name| figure(runs, &format!("Validation {name}"), false, name));
    let template = ComparisonTemplate {
        runs: overview(runs),
        values: values(runs, &names),
        differences: differences(runs),
        tests: tested.map(Tests::of),
        curves: losses.collect(),
        metrics: metrics.collect(),
    };
    template.render().expect("memory takes what is written")
}

fn overview(runs: &[(String, Record)]) -> Table {
    let heads = ["run", "state", "watched", "best", "95% interval", "epoch"];
    let mut table = Table::new("The runs", heads, 1);
    for (name, record) in runs {
        let best = record.best().and_then(|epoch| Some((epoch, epoch.watched.as_ref()?)));
        let cells = match best {
            None => [const { String::new() }; 4],
            Some((epoch, watched)) => {
                let range = watched.interval(epoch);
                let range = range.map(|[low, high]| format!("{low:.4} to {high:.4}"));
                let (metric, value) = (watched.metric.clone(), shown(watched.value));
                [metric, value, range.unwrap_or_default(), epoch.epoch.to_string()]
            }
        };
        table.rows.push([name.clone(), state(record)].into_iter().chain(cells).collect());
    }
    table
}

/// The metrics of each run's best epoch.
fn values(runs: &[(String, Record)], names: &[String]) -> Table {
    let heads = ["metric"].into_iter().chain(runs.iter().map(|(name, _)| name.as_str()));
    let mut table = Table::new("Validation metrics of each run's best epoch", heads, 1);
    let bests: Vec<Option<&Epoch>> = runs.iter().map(|(_, record)| record.best()).collect();
    for name in names {
        let value = |best: &Option<&Epoch>| best.and_then(|best| best.val.get(name).copied());
        let cells = bests.iter().map(|best| value(best).map(shown).unwrap_or_default());
        table.rows.push([name.clone()].into_iter().chain(cells).collect());
    }
    table
}

/// The keys of the configurations that are not the same in all runs.
fn differences(runs: &[(String, Record)]) -> Table {
    let heads = ["key"].into_iter().chain(runs.iter().map(|(name, _)| name.as_str()));
    let mut table = Table::new("Where the configurations differ", heads, 1);
    let settings: Vec<BTreeMap<String, String>> =
        runs.iter().map(|(_, record)| settings(&record.config)).collect();
    let keys: BTreeSet<&String> = settings.iter().flat_map(BTreeMap::keys).collect();
    for key in keys {
        let values: Vec<Option<&String>> = settings.iter().map(|all| all.get(key)).collect();
        if values.iter().any(|value| *value != values[0]) {
            let cell = |value: &Option<&String>| value.map_or("not set".to_owned(), Clone::clone);
            table.rows.push([key.clone()].into_iter().chain(values.iter().map(cell)).collect());
        }
    }
    table
}

/// Every key of a TOML text with its value as text.
fn settings(config: &str) -> BTreeMap<String, String> {
    fn walk(key: String, value: &toml::Value, into: &mut BTreeMap<String, String>) {
        match value {
            toml::Value::Table(table) if !table.is_empty() => {
                let dot = if key.is_empty() { "" } else { "." };
                table
                    .iter()
                    .for_each(|(name, value)| walk(format!("{key}{dot}{name}"), value, into));
            }
            toml::Value::Array(items) if items.iter().any(toml::Value::is_table) => {
                let items = items.iter().enumerate();
                items.for_each(|(index, value)| walk(format!("{key}[{index}]"), value, into));
            }
            other => {
                into.insert(key, other.to_string());
            }
        }
    }
    let mut found = BTreeMap::new();
    let table: toml::Table = toml::from_str(config).unwrap_or_default();
    walk(String::new(), &toml::Value::Table(table), &mut found);
    found
}

/// A value of every run over the epochs; nothing where no run has it.
pub(super) fn figure(
    runs: &[(String, Record)],
    title: &str,
    train: bool,
    key: &str,
) -> Option<Figure> {
    let of = |epoch: &Epoch| {
        let values = if train { &epoch.train } else { &epoch.val };
        values.get(key).copied().flatten()
    };
    let told = |record: &Record| record.epochs.iter().any(|epoch| of(epoch).is_some());
    let curve = |(name, record): &(String, Record)| {
        let points = record.epochs.iter();
        let points = points.map(|epoch| (epoch.epoch as f64, of(epoch).unwrap_or(f64::NAN)));
        let figure = record.best().map(|best| shown(of(best))).unwrap_or_default();
        Curve { name: name.clone(), figure, shape: Shape::Line, points: points.collect() }
    };
    if !runs.iter().any(|(_, record)| told(record)) {
        return None;
    }
    let names = Vec::new();
    let y = key.rsplit('/').next().unwrap_or(key).to_owned();
    let (x, curves) = ("epoch".to_owned(), runs.iter().map(curve).collect());
    let chart = Chart { title: title.to_owned(), x, y, from_zero: false, names, curves };
    let heads = ["epoch"].into_iter().chain(runs.iter().map(|(name, _)| name.as_str()));
    let mut table = Table::new(title, heads, 1);
    let epochs = runs.iter().flat_map(|(_, record)| &record.epochs).map(|epoch| epoch.epoch);
    let epochs: Vec<usize> = epochs.collect::<BTreeSet<_>>().into_iter().collect();
    for row in chosen(epochs.len(), |_| false) {
        let value = |(_, record): &(String, Record)| {
            let epoch = record.epochs.iter().find(|epoch| epoch.epoch == epochs[row]);
            epoch.map(|epoch| shown(of(epoch))).unwrap_or_default()
        };
        table
            .rows
            .push([epochs[row].to_string()].into_iter().chain(runs.iter().map(value)).collect());
    }
    let note = "The legend tells the value of each run's best epoch.";
    Some(Figure::new(&id(title), &chart, note, table))
}
