//! What the program knows of a model besides its worth.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::super::page::{Progress, Record, Start};
use super::evaluations::Measured;
use super::tables::{Table, plain};
use crate::evaluate::Fitted;
use crate::report::lines::duration;
use crate::screen::{Bytes, counted, thousands};

/// Images with a label below which figures about it say little.
const FEW: f64 = 50.0;
/// Tables of `[data]` that are no data set.
const NO_LAYOUT: [&str; 5] = ["image", "validation", "augment", "sampler", "cache"];
/// What of the configuration is told, by its keys.
const SETTINGS: [&str; 15] = [
    "data.image",
    "data.validation",
    "data.augment",
    "data.sampler",
    "train.epochs",
    "train.batch_size",
    "train.optimizer",
    "train.schedule",
    "train.clip_norm",
    "train.ema",
    "train.best",
    "train.early_stopping",
    "memory.precision",
    "memory.batch_norm",
    "run.seed",
];

/// The value under `key`, such as `train.optimizer`.
pub fn value<'a>(config: &'a toml::Table, key: &str) -> Option<&'a toml::Value> {
    let (first, rest) = key.split_once('.').unwrap_or((key, ""));
    let value = config.get(first)?;
    match rest {
        "" => Some(value),
        rest => self::value(value.as_table()?, rest),
    }
}

/// What kind of network it is.
pub fn family(config: &toml::Table) -> Option<&String> {
    let model = config.get("model")?.as_table()?;
    model.iter().find(|(_, value)| value.is_table()).map(|(name, _)| name)
}

pub fn tags(config: &toml::Table) -> Vec<String> {
    let tasks = config.get("heads").and_then(toml::Value::as_array).into_iter().flatten();
    let tasks: BTreeSet<String> =
        tasks.filter_map(|head| Some(head.get("task")?.as_str()?.to_owned())).collect();
    family(config).cloned().into_iter().chain(tasks).collect()
}

/// The layouts of the data sets, such as `chexpert`.
pub fn layouts(config: &toml::Table) -> Vec<String> {
    let Some(data) = config.get("data").and_then(toml::Value::as_table) else { return Vec::new() };
    let sources = data.get("sources").and_then(toml::Value::as_array).into_iter().flatten();
    let tables = [data].into_iter().chain(sources.filter_map(toml::Value::as_table));
    let layout = |(name, value): (&String, &toml::Value)| {
        (value.is_table() && !NO_LAYOUT.contains(&name.as_str())).then(|| name.clone())
    };
    tables.flat_map(|table| table.iter().filter_map(layout)).collect()
}

pub fn details(record: &Record, config: &toml::Table) -> String {
    let start = &record.start;
    let mut table = Table::new(&["", ""]);
    let mut model = config.get("model").cloned();
    // The card tells of no folder.
    if let Some(toml::Value::String(init)) = model.as_mut().and_then(|model| model.get_mut("init"))
        && let Some(file) = Path::new(init.as_str()).file_name()
    {
        *init = file.to_string_lossy().into_owned();
    }
    table.add(["network", &model.map(|model| model.to_string()).unwrap_or_default()]);
    table.add(["trained parameters", &thousands(start.parameters)]);
    let input = value(config, "data.image").map(toml::Value::to_string).unwrap_or_default();
    table.add(["input", &input]);
    table.add(["weights", "best/weights.safetensors"]);
    if let Some(best) = record.best() {
        let state = format!("epoch {}, step {}", best.epoch, best.step);
        table.add(["state", &state]);
    }
    if let Some(version) = &start.version {
        table.add(["written by", &format!("trainer {version}")]);
    }
    table.to_string()
}

pub fn heads(config: &toml::Table) -> String {
    let mut table = Table::new(&["head", "task", "labels", "loss"]);
    for head in config.get("heads").and_then(toml::Value::as_array).into_iter().flatten() {
        let text = |key: &str| match head.get(key) {
            Some(toml::Value::String(text)) => text.clone(),
            Some(toml::Value::Array(all)) => {
                let texts = all.iter().filter_map(toml::Value::as_str);
                texts.collect::<Vec<_>>().join(", ")
            }
            Some(other) => other.to_string(),
            None => String::new(),
        };
        table.add(["name", "task", "labels", "loss"].map(text));
    }
    table.to_string()
}

/// A list of `split.csv`.
#[derive(Debug, Clone, Default)]
pub struct List {
    pub images: usize,
    pub patients: BTreeSet<String>,
}

/// The lists of `split.csv` in a run's `folder`, by their names.
pub fn split(folder: &Path) -> BTreeMap<String, List> {
    let mut lists: BTreeMap<String, List> = BTreeMap::new();
    let reader = csv::Reader::from_path(folder.join("split.csv")).ok();
    for record in reader.into_iter().flat_map(csv::Reader::into_records).flatten() {
        let (Some(patient), Some(name)) = (record.get(1), record.get(2)) else { continue };
        let list = lists.entry(name.to_owned()).or_default();
        list.images += 1;
        list.patients.insert(patient.to_owned());
    }
    lists
}

/// Images and patients of each list.
pub fn lists(lists: &BTreeMap<String, List>, config: &toml::Table) -> String {
    let mut table = Table::new(&["list", "images", "patients"]);
    for (name, list) in lists {
        table.add([name.clone(), thousands(list.images), thousands(list.patients.len())]);
    }
    let layouts: Vec<String> =
        layouts(config).iter().map(|layout| format!("`data.{layout}`")).collect();
    format!("Read as {}.\n\n{table}", layouts.join(", "))
}

/// How often each label is known and positive.
pub fn counts(start: &Start) -> String {
    let mut table = Table::new(&[
        "head",
        "label",
        "positive of known, training",
        "positive of known, validation",
    ]);
    for head in &start.heads {
        for label in &head.labels {
            let of = |list: &str| {
                let counts = start.labels.get(list)?.get(&head.name)?.get(label)?;
                let [positives, known] = [counts.positives, counts.known].map(round);
                Some(format!("{positives} of {known}"))
            };
            if let Some((train, validation)) = of("train").zip(of("validation")) {
                table.add([head.name.clone(), label.clone(), train, validation]);
            }
        }
    }
    table.to_string()
}

/// A count, which soft labels make a fraction.
fn round(count: f64) -> String {
    if count.fract() == 0.0 { thousands(count as usize) } else { format!("{count:.1}") }
}

pub fn procedure(record: &Record, config: &toml::Table) -> String {
    let start = &record.start;
    let done = record.epochs.last().map_or(0, |epoch| epoch.epoch);
    let mut table = Table::new(&["", ""]);
    let mut add = |name: &str, text: String| table.add([name.to_owned(), text]);
    let ended = match &record.progress {
        Progress::Ended { early: true, seconds } => {
            format!("{done} of {}, ended early, {}", start.epochs, duration(*seconds))
        }
        Progress::Ended { early: false, seconds } => format!("{done}, {}", duration(*seconds)),
        Progress::Stopped(signal) => format!("{done} of {}, stopped by {signal}", start.epochs),
        Progress::UnderWay => format!("{done} of {} so far", start.epochs),
    };
    add("epochs", ended);
    if let Some(watched) = record.best().and_then(|epoch| epoch.watched.as_ref()) {
        add("best epoch chosen by", watched.metric.clone());
    }
    add("hardware", start.device.clone());
    let peak = record.epochs.iter().filter_map(|epoch| epoch.memory.peak).max();
    if let Some(peak) = peak {
        add("peak memory", Bytes(peak).to_string());
    }
    for key in SETTINGS {
        if let Some(value) = value(config, key) {
            add(key, value.to_string());
        }
    }
    table.to_string()
}

/// What speaks against trusting the figures, as far as it can be known.
pub fn limitations(
    record: &Record,
    fitted: Option<&Fitted>,
    evaluations: &[Measured],
) -> Vec<String> {
    let mut told = Vec::new();
    if !evaluations.iter().any(|one| one.data.is_some()) {
        told.push(
            "There is no external validation: `trainer eval --data` measures the model on other data.".to_owned(),
        );
    }
    if !evaluations.iter().any(|one| one.split == "test" && one.data.is_none()) {
        told.push("It was not measured on a test list.".to_owned());
    }
    if !evaluations.iter().any(|one| one.has_groups) {
        told.push(
            "It was not measured in groups of patients (`trainer eval --by sex,age:40,60`)."
                .to_owned(),
        );
    }
    told.extend(few(&record.start));
    let mut undefined: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, reason) in &record.undefined {
        undefined.entry(reason).or_default().push(name);
    }
    for (reason, names) in undefined {
        told.push(format!("Undefined on the validation images ({reason}): {}.", names.join(", ")));
    }
    for (head, of) in fitted.iter().flat_map(|fitted| &fitted.heads) {
        for (label, reason) in &of.uncalibrated {
            told.push(format!("The probabilities of {head}/{label} are not calibrated: {reason}."));
        }
    }
    let left_out = [
        (
            record.skipped_images.len(),
            "image could not be read and was",
            "images could not be read and were",
        ),
        (record.skipped_steps.len(), "step was", "steps were"),
    ];
    for (count, one, many) in left_out.into_iter().filter(|(count, ..)| *count > 0) {
        told.push(format!("{} left out in training.", counted(count, one, many)));
    }
    if !record.warnings.is_empty() {
        let warnings = counted(record.warnings.len(), "warning, which", "warnings, which");
        told.push(format!("The run gave {warnings} report.html tells."));
    }
    told.iter().map(|sentence| plain(sentence)).collect()
}

/// Labels that few images have.
fn few(start: &Start) -> Vec<String> {
    let mut told = Vec::new();
    for (list, name) in [("train", "training"), ("validation", "validation")] {
        let Some(heads) = start.labels.get(list) else { continue };
        let labels = start.heads.iter().flat_map(|head| {
            let of = heads.get(&head.name);
            head.labels.iter().filter_map(move |label| Some((head, label, of?.get(label)?)))
        });
        let rare: Vec<String> = labels
            .filter(|(.., counts)| counts.positives < FEW)
            .map(|(head, label, counts)| {
                format!("{}/{label} ({})", head.name, round(counts.positives))
            })
            .collect();
        if !rare.is_empty() {
            told.push(format!(
                "Fewer than {FEW} {name} images have these labels: {}.",
                rare.join(", ")
            ));
        }
    }
    told
}

pub fn reproduce(record: &Record) -> String {
    let start = &record.start;
    let mut table = Table::new(&["", ""]);
    if let Some(version) = &start.version {
        table.add(["program", &format!("trainer {version}")]);
    }
    if let Some(data) = &start.data {
        table.add(["images, patients and lists (BLAKE3)", &data.split]);
        table.add(["labels (BLAKE3)", &data.labels]);
    }
    table.to_string()
}
