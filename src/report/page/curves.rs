//! Learning curves: every loss and metric over the epochs.

use std::collections::BTreeSet;

use super::figure::{Figure, Table, chosen};
use super::record::{Epoch, Record, interval};
use crate::metric::INTERVAL;
use crate::report::table::{rows, shown};
use crate::report::{Chart, Curve, EpochValues, HeadLabels, Shape, Values};

/// Curves of labels in one picture: as many as there are colours.
pub const LABELS: usize = 7;

/// The curves of one head, or of the whole model.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// The head's name.
    pub title: String,
    /// One for each metric, or more where there are many labels.
    pub figures: Vec<Figure>,
}

/// One value of every epoch.
struct Series {
    name: String,
    train: bool,
    key: String,
}

impl Series {
    fn new(name: &str, train: bool, key: &str) -> Self {
        Self { name: name.to_owned(), train, key: key.to_owned() }
    }

    fn of(&self, epoch: &Epoch) -> Option<f64> {
        let values = if self.train { &epoch.train } else { &epoch.val };
        values.get(&self.key).copied().flatten()
    }

    fn curve(&self, epochs: &[Epoch]) -> Curve {
        let points = epochs.iter().map(|epoch| (epoch.epoch as f64, self.of(epoch)));
        let points = points.map(|(x, y)| (x, y.unwrap_or(f64::NAN))).collect();
        let figure = epochs.last().map(|epoch| shown(self.of(epoch))).unwrap_or_default();
        Curve { name: self.name.clone(), figure, shape: Shape::Line, points }
    }
}

/// The loss of the whole model, then the curves of each head in the order of the configuration.
pub fn groups(record: &Record) -> Vec<Group> {
    let whole = losses(record, "loss", "Loss").into_iter().collect();
    let mut groups = vec![Group { title: "The whole model".to_owned(), figures: whole }];
    for (head, metrics) in heads(&record.epochs, &record.start.heads) {
        let mut figures = Vec::new();
        figures.extend(losses(record, &format!("{head}/loss"), &format!("{head}: loss")));
        for (metric, labels) in metrics.iter().filter(|(metric, _)| metric != "loss") {
            figures.extend(of_metric(record, &head, metric, labels));
        }
        groups.push(Group { title: format!("Head {head}"), figures });
    }
    groups.retain(|group| !group.figures.is_empty());
    groups
}

/// A head's name and its metrics, each with the labels that it is told of.
pub type Metrics = (String, Vec<(String, Vec<String>)>);

/// The heads with their metrics, in the order of the closing table.
pub fn heads(epochs: &[Epoch], heads: &[HeadLabels]) -> Vec<Metrics> {
    let (mut val, mut found) = (Values::new(), Vec::<Metrics>::new());
    for epoch in epochs {
        val.extend(epoch.val.iter().map(|(name, value)| (name.clone(), *value)));
    }
    let values = EpochValues { epoch: 0, train: Values::new(), val };
    for row in rows(&[(String::new(), &values)], heads) {
        if row.head.is_empty() || INTERVAL.contains(&row.metric) {
            continue;
        }
        if found.last().is_none_or(|(head, _)| head != row.head) {
            found.push((row.head.to_owned(), Vec::new()));
        }
        let Some((_, metrics)) = found.last_mut() else { continue };
        if metrics.last().is_none_or(|(metric, _)| metric != row.metric) {
            metrics.push((row.metric.to_owned(), Vec::new()));
        }
        let labels = metrics.last_mut().map(|(_, labels)| labels);
        labels
            .into_iter()
            .filter(|_| !row.label.is_empty())
            .for_each(|l| l.push(row.label.to_owned()));
    }
    found
}

fn losses(record: &Record, key: &str, title: &str) -> Option<Figure> {
    let both = [Series::new("training", true, key), Series::new("validation", false, key)];
    let told = |series: &Series| record.epochs.iter().any(|epoch| series.of(epoch).is_some());
    let told: Vec<Series> = both.into_iter().filter(told).collect();
    (!told.is_empty()).then(|| figure(record, title.to_owned(), "loss", told, |_| None))
}

/// The metric of a head and of its labels, in as many pictures as its labels need.
fn of_metric(record: &Record, head: &str, metric: &str, labels: &[String]) -> Vec<Figure> {
    let of_head = || Series::new(&format!("{head} (all)"), false, &format!("{head}/{metric}"));
    let of_label = |label: &String| Series::new(label, false, &format!("{head}/{metric}/{label}"));
    let title = format!("{head}: {metric}");
    let alone = vec![of_head()];
    let of_head = |epoch: &Epoch| interval(epoch, head, metric);
    let mut figures = vec![figure(record, title.clone(), metric, alone, of_head)];
    let parts = labels.len().div_ceil(LABELS);
    // Parts of about the same size.
    let most = labels.len().div_ceil(parts.max(1)).max(1);
    for (number, part) in labels.chunks(most).enumerate() {
        let title = match parts {
            1 => format!("{title} by label"),
            _ => format!("{title} by label, {} of {parts}", number + 1),
        };
        figures.push(figure(record, title, metric, part.iter().map(of_label).collect(), |_| None));
    }
    figures
}

/// `title` becomes the name of the picture within the page too.
fn figure(
    record: &Record,
    title: String,
    y: &str,
    series: Vec<Series>,
    interval: impl Fn(&Epoch) -> Option<[f64; 2]>,
) -> Figure {
    let epochs = &record.epochs;
    let band = area(epochs, &interval);
    let note = match band.points.is_empty() {
        true => "",
        false => "The pale area is the 95% interval (bootstrap over patients).",
    };
    let ends: &[&str] = if band.points.is_empty() { &[] } else { &["95% from", "to"] };
    let curves = [band].into_iter().chain(series.iter().map(|one| one.curve(epochs)));
    let chart = Chart {
        title: title.clone(),
        x: "epoch".to_owned(),
        y: y.to_owned(),
        from_zero: false,
        names: Vec::new(),
        curves: curves.collect(),
    };
    let names = series.iter().map(|one| one.name.as_str());
    let heads = ["epoch"].into_iter().chain(names).chain(ends.iter().copied());
    let mut table = Table::new(title.clone(), heads, 1);
    for row in chosen(epochs.len(), |row| epochs[row].best) {
        let epoch = &epochs[row];
        let best = if epoch.best { " (best so far)" } else { "" };
        let found = interval(epoch);
        let ends = (0..ends.len()).map(|end| found.map(|found| found[end]));
        let values = series.iter().map(|one| one.of(epoch)).chain(ends).map(shown);
        table.rows.push([format!("{}{best}", epoch.epoch)].into_iter().chain(values).collect());
    }
    Figure::new(&id(&title), &chart, note, table)
}

/// Where an interval lies, once around.
fn area(epochs: &[Epoch], interval: impl Fn(&Epoch) -> Option<[f64; 2]>) -> Curve {
    let ends = |epoch: &Epoch| Some((epoch.epoch as f64, interval(epoch)?));
    let ends: Vec<(f64, [f64; 2])> = epochs.iter().filter_map(ends).collect();
    let there = ends.iter().map(|(x, [low, _])| (*x, *low));
    let points = there.chain(ends.iter().rev().map(|(x, [_, high])| (*x, *high))).collect();
    Curve { name: String::new(), figure: String::new(), shape: Shape::Area, points }
}

/// A name within the page, the same for the same text and for no other.
pub fn id(text: &str) -> String {
    let kept = |sign: char| match sign {
        'a'..='z' | 'A'..='Z' | '0'..='9' => sign.to_string(),
        _ => format!("-{:x}-", u32::from(sign)),
    };
    format!("f-{}", text.chars().map(kept).collect::<String>())
}

/// The names of all validation metrics of `records`, in the order of the first.
pub fn validation_names(records: &[&Record]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let mut names = Vec::new();
    for record in records {
        for (head, metrics) in heads(&record.epochs, &record.start.heads) {
            for (metric, labels) in metrics {
                let name = format!("{head}/{metric}");
                let of_labels = labels.iter().map(|label| format!("{name}/{label}"));
                let all = [name.clone()].into_iter().chain(of_labels);
                names.extend(all.filter(|name| seen.insert(name.clone())));
            }
        }
    }
    names
}
