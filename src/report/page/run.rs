//! The page of one run.

use std::collections::BTreeMap;

use askama::Template;

use super::curves::{Group, Metrics, groups, heads, id};
use super::figure::{Figure, Table, chosen, thinned};
use super::judged::Judged;
use super::listed::{Listed, skipped_images, skipped_steps};
use super::record::{Epoch, Progress, Record, Start, interval};
use super::step::TracedStep;
use crate::report::lines::{duration, number};
use crate::report::table::shown;
use crate::report::{Chart, Curve, Shape, Values};
use crate::screen::{Bytes, counted, thousands};

/// Points of the curve of the learning rate: it is told of more steps than can be seen.
const RATES: usize = 500;

/// What the template shows.
#[derive(Template)]
#[template(path = "run.html")]
struct RunTemplate<'a> {
    name: &'a str,
    state: String,
    best: Option<Best<'a>>,
    facts: Vec<(&'static str, String)>,
    /// Of the best epoch, and of the last where that is another.
    values: Vec<(String, Vec<Table>)>,
    judged: Result<Option<&'a Judged>, &'a String>,
    curves: Vec<Group>,
    pace: Vec<Figure>,
    memory: Vec<Figure>,
    /// Whether memory over a step is among them.
    has_step: bool,
    skipped_steps: Option<Listed>,
    skipped_images: Option<Listed>,
    warnings: &'a [String],
    undefined: Vec<(&'a str, String)>,
    config: &'a str,
    reproduce: Vec<(&'static str, String)>,
}

/// The best value of the metric watched.
struct Best<'a> {
    metric: &'a str,
    value: String,
    interval: Option<String>,
    epoch: usize,
}

/// The page of the run that `record` tells of, as an HTML file; `judged` is what its outputs for the
/// validation images are worth, or why that is unknown; `step` is a traced step of it.
pub fn page(
    record: &Record,
    judged: &Result<Option<Judged>, String>,
    step: Option<&TracedStep>,
) -> String {
    let estimated = record.epochs.last().and_then(|epoch| epoch.memory.predicted_peak);
    let step = step.and_then(|step| step.figure(estimated));
    let template = RunTemplate {
        name: &record.start.name,
        state: state(record),
        best: best(record),
        facts: facts(record),
        values: shown_epochs(record),
        judged: judged.as_ref().map(|of| of.as_ref().filter(|of| !of.heads.is_empty())),
        curves: groups(record),
        pace: pace(record),
        has_step: step.is_some(),
        memory: memory(record).into_iter().chain(step).collect(),
        skipped_steps: skipped_steps(&record.skipped_steps),
        skipped_images: skipped_images(&record.skipped_images),
        warnings: &record.warnings,
        undefined: undefined(record),
        config: record.config.trim_end(),
        reproduce: reproduce(&record.start),
    };
    template.render().expect("memory takes what is written")
}

/// How far the run has come, in a sentence.
pub fn state(record: &Record) -> String {
    let (done, all) = (record.epochs.last().map_or(0, |epoch| epoch.epoch), record.start.epochs);
    match &record.progress {
        Progress::Ended { early, seconds } => {
            let how = if *early { "Ended by early stopping after" } else { "Ended after" };
            format!("{how} {done} of {all} epochs and {}.", duration(*seconds))
        }
        Progress::Stopped(signal) => {
            format!(
                "Stopped by {signal} after {done} of {all} epochs; --resume goes on from there."
            )
        }
        Progress::UnderWay => format!("{done} of {all} epochs are done."),
    }
}

fn best(record: &Record) -> Option<Best<'_>> {
    let epoch = record.best()?;
    let watched = epoch.watched.as_ref()?;
    let interval = watched.interval(epoch).map(|[low, high]| format!("{low:.4} to {high:.4}"));
    let value = shown(watched.value);
    Some(Best { metric: &watched.metric, value, interval, epoch: epoch.epoch })
}

fn facts(record: &Record) -> Vec<(&'static str, String)> {
    let start = &record.start;
    let mut facts = vec![
        ("Device", start.device.clone()),
        ("Parameters", thousands(start.parameters)),
        ("Training images", thousands(start.train_images)),
        ("Validation images", thousands(start.validation_images)),
        ("Steps an epoch", thousands(start.steps_per_epoch)),
    ];
    if let Some(memory) = &start.memory {
        let micro = counted(memory.micro_batch, "image", "images");
        facts.push(("At once", format!("{micro} through the network")));
        facts.push(("Checkpointing", memory.checkpointing.clone()));
        facts.push(("Offload", memory.offload.clone()));
        facts.push(("Memory budget", Bytes(memory.budget).to_string()));
    }
    facts
}

/// The best and the last epoch, with their values.
fn shown_epochs(record: &Record) -> Vec<(String, Vec<Table>)> {
    let last = record.epochs.last();
    let best = record.best().filter(|best| last.is_none_or(|last| last.epoch != best.epoch));
    let name = if best.is_none() && record.best().is_some() { "Best and last" } else { "Last" };
    let shown = |(name, epoch): (&str, &Epoch)| {
        (format!("{name} epoch, {}", epoch.epoch), values(record, epoch))
    };
    let best = best.map(|epoch| ("Best", epoch)).into_iter();
    best.chain(last.map(|epoch| (name, epoch))).map(shown).collect()
}

/// The losses and metrics of an epoch, a table for the losses and one for each head.
fn values(record: &Record, epoch: &Epoch) -> Vec<Table> {
    let heads = heads(&record.epochs, &record.start.heads);
    let mut losses = Table::new("Losses", ["of", "training", "validation"], 1);
    let of_heads = heads.iter().map(|(head, _)| (head.clone(), format!("{head}/loss")));
    for (name, key) in [("whole model".to_owned(), "loss".to_owned())].into_iter().chain(of_heads) {
        let value = |values: &Values| values.get(&key).map(|value| shown(*value));
        let cells = [&epoch.train, &epoch.val].map(|values| value(values).unwrap_or_default());
        losses.rows.push([name].into_iter().chain(cells).collect());
    }
    let of_head = |(head, metrics): &Metrics| {
        let metrics: Vec<_> = metrics.iter().filter(|(metric, _)| metric != "loss").collect();
        let mut labels: Vec<&String> = Vec::new();
        for label in metrics.iter().flat_map(|(_, labels)| labels) {
            labels.extend((!labels.contains(&label)).then_some(label));
        }
        let titles = ["label"].into_iter().chain(metrics.iter().map(|(metric, _)| metric.as_str()));
        let mut table = Table::new(format!("{head}: validation metrics"), titles, 1);
        for label in [None].into_iter().chain(labels.into_iter().map(Some)) {
            let cell = |(metric, _): &&(String, Vec<String>)| match label {
                None => of_head(epoch, head, metric),
                Some(label) => of(epoch, &format!("{head}/{metric}/{label}")),
            };
            let name = label.cloned().unwrap_or("all".to_owned());
            table.rows.push([name].into_iter().chain(metrics.iter().map(cell)).collect());
        }
        table
    };
    [losses].into_iter().chain(heads.iter().map(of_head)).collect()
}

/// A validation value; nothing where the epoch has none of this name.
fn of(epoch: &Epoch, name: &str) -> String {
    epoch.val.get(name).map(|value| shown(*value)).unwrap_or_default()
}

/// The value of a head, with its interval where it has one.
fn of_head(epoch: &Epoch, head: &str, metric: &str) -> String {
    let ends = interval(epoch, head, metric);
    let ends = ends.map(|[low, high]| format!(" ({low:.4} to {high:.4})"));
    of(epoch, &format!("{head}/{metric}")) + &ends.unwrap_or_default()
}

/// A name, and its value in an epoch, where that is known.
type Quantity<'a> = (&'a str, &'a dyn Fn(&Epoch) -> Option<f64>);

/// A quantity of every epoch as a picture; nothing where it is never known.
fn over_epochs(
    record: &Record,
    title: &str,
    y: &str,
    note: &str,
    quantities: &[Quantity],
    told: impl Fn(f64) -> String,
) -> Option<Figure> {
    let epochs = &record.epochs;
    let known = quantities.iter().filter(|(_, of)| epochs.iter().any(|epoch| of(epoch).is_some()));
    let known: Vec<_> = known.collect();
    let curve = |(name, of): &&Quantity| {
        let points = epochs.iter().map(|one| (one.epoch as f64, of(one).unwrap_or(f64::NAN)));
        let figure = epochs.iter().rev().find_map(of).map(&told).unwrap_or_default();
        let name = if known.len() > 1 { *name } else { "" };
        Curve { name: name.to_owned(), figure, shape: Shape::Line, points: points.collect() }
    };
    if known.is_empty() {
        return None;
    }
    let (x, curves) = ("epoch".to_owned(), known.iter().map(curve).collect());
    let chart = Chart {
        title: title.to_owned(),
        x,
        y: y.to_owned(),
        from_zero: true,
        names: Vec::new(),
        curves,
    };
    let heads = ["epoch"].into_iter().chain(known.iter().map(|(name, _)| *name));
    let mut table = Table::new(title, heads, 1);
    for row in chosen(epochs.len(), |row| epochs[row].best) {
        let cells = known.iter().map(|(_, of)| of(&epochs[row]).map(&told).unwrap_or_default());
        table.rows.push([epochs[row].epoch.to_string()].into_iter().chain(cells).collect());
    }
    Some(Figure::new(&id(title), &chart, note, table))
}

fn pace(record: &Record) -> Vec<Figure> {
    let speed = over_epochs(
        record,
        "Training speed",
        "images per second",
        "Of the training pass of each epoch; the first often takes longer.",
        &[("images per second", &|epoch| epoch.images_per_second)],
        |speed| format!("{speed:.1}"),
    );
    learning_rate(record).into_iter().chain(speed).collect()
}

/// The learning rate of the steps that were told, or of the last step of each epoch.
fn learning_rate(record: &Record) -> Option<Figure> {
    let title = "Learning rate";
    let steps = &record.learning_rates;
    let of_epochs = record.epochs.iter().filter_map(|one| Some((one.step, one.learning_rate?)));
    let of_epochs: Vec<(usize, f64)> = of_epochs.collect();
    let (all, note) = match steps.len() > of_epochs.len() {
        true => (steps, ""),
        false => (&of_epochs, "Of the last step of each epoch."),
    };
    if all.is_empty() {
        return None;
    }
    let points = thinned(all, RATES).into_iter().map(|(step, rate)| (step as f64, rate)).collect();
    let curve = Curve { name: String::new(), figure: String::new(), shape: Shape::Line, points };
    let (x, y) = ("optimizer step".to_owned(), "learning rate".to_owned());
    let chart = Chart {
        title: title.to_owned(),
        x,
        y,
        from_zero: true,
        names: Vec::new(),
        curves: vec![curve],
    };
    let mut table = Table::new(title, ["step", "learning rate"], 1);
    for row in chosen(all.len(), |_| false) {
        let (step, rate) = all[row];
        table.rows.push(vec![step.to_string(), number(Some(rate))]);
    }
    Some(Figure::new(&id(title), &chart, note, table))
}

/// The measured peak of each epoch beside the one estimated before.
fn memory(record: &Record) -> Option<Figure> {
    let mebibytes = |bytes: Option<u64>| bytes.map(|bytes| Bytes(bytes).mebibytes());
    over_epochs(
        record,
        "Peak memory of each epoch",
        "MiB",
        "The estimate is what the command trainer plan says before anything is allocated. Reserved is what the \
         device has given to the process, in use or not.",
        &[
            ("measured peak", &|epoch| mebibytes(epoch.memory.peak)),
            ("estimated peak", &|epoch| mebibytes(epoch.memory.predicted_peak)),
            ("reserved", &|epoch| mebibytes(epoch.memory.reserved)),
        ],
        |mebibytes| Bytes((mebibytes * f64::from(1 << 20)) as u64).to_string(),
    )
}

/// Reasons with the metrics that are undefined for them: labels lack one under many metrics.
fn undefined(record: &Record) -> Vec<(&str, String)> {
    let mut names: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, reason) in &record.undefined {
        names.entry(reason).or_default().push(name);
    }
    names.into_iter().map(|(reason, names)| (reason, names.join(", "))).collect()
}

fn reproduce(start: &Start) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    lines.extend(start.version.as_ref().map(|version| ("Version", format!("trainer {version}"))));
    lines.push(("Device", start.device.clone()));
    if let Some(data) = &start.data {
        lines.push(("Images, patients and lists (BLAKE3)", data.split.clone()));
        lines.push(("Labels (BLAKE3)", data.labels.clone()));
    }
    lines
}
