//! What a head's outputs are worth, in tables and pictures.

use askama::Template;

use super::figure::{Figure, Table};
use super::pictures::SamplePictures;
use super::quality::figures;
use super::samples::{Samples, samples};
use crate::evaluate::{
    Calibration, Estimate, Fitted, HeadEvaluation, Measure, MetricTable, PointEvaluation,
    PredictionTable,
};
use crate::metric::HeadPredictions;
use crate::model::Task;
use crate::report::table::shown;

/// What one head's outputs are worth.
#[derive(Debug, Clone, Template)]
#[template(path = "judged.html")]
pub struct JudgedHead {
    title: String,
    tables: Vec<Table>,
    figures: Vec<Figure>,
    confusion: Option<ConfusionTable>,
    samples: Vec<Samples>,
}

/// How often images of each class are given each class, with the share of the row in percent.
#[derive(Debug, Clone)]
struct ConfusionTable {
    classes: Vec<String>,
    rows: Vec<(String, Vec<(usize, usize)>)>,
}

impl JudgedHead {
    /// Of the head `name`, whose outputs are in `table`, and what was `found` of them. Pictures and samples
    /// show probabilities after the calibration in `fitted`; `pictures` are those of samples. `None` where the table has no such head.
    pub fn new(
        name: &str,
        table: &PredictionTable,
        found: &HeadEvaluation,
        fitted: Option<&Fitted>,
        pictures: Option<&SamplePictures>,
    ) -> Option<Self> {
        let predictions = table.heads.get(name)?;
        let probabilities = probabilities(name, predictions, fitted);
        let labels = &predictions.labels;
        let pictured = |samples: Samples| match pictures {
            Some(pictures) => samples.pictured(pictures),
            None => samples,
        };
        let samples = samples(name, table, predictions, &probabilities).into_iter();
        Some(Self {
            title: format!("Head {name}"),
            tables: tables(name, found, labels),
            figures: figures(name, predictions, found, &probabilities),
            confusion: confusion(found),
            samples: samples.map(pictured).collect(),
        })
    }
}

impl JudgedHead {
    fn has_heatmaps(&self) -> bool {
        let pictures = self.samples.iter().flat_map(|kind| &kind.pictures);
        pictures.into_iter().any(|(picture, ..)| picture.heatmap.is_some())
    }
}

/// `[images, labels]`: probabilities after the calibration in `fitted`, or numbers.
pub(super) fn probabilities(
    name: &str,
    predictions: &HeadPredictions,
    fitted: Option<&Fitted>,
) -> Vec<f64> {
    let calibration = fitted.and_then(|fitted| fitted.heads.get(name)?.calibration.as_ref());
    let HeadPredictions { task, labels, outputs, .. } = predictions;
    Calibration::probabilities(calibration, *task, labels, outputs)
}

/// `0.9412 (0.9213 to 0.9610)`, or why there is no value or no interval.
fn told(value: Option<f64>, low: Option<f64>, high: Option<f64>, why: Option<String>) -> String {
    match (value, low, high) {
        (Some(value), Some(low), Some(high)) => format!("{value:.4} ({low:.4} to {high:.4})"),
        (Some(value), ..) => match why {
            Some(why) => format!("{value:.4} ({why})"),
            None => format!("{value:.4}"),
        },
        (None, ..) => format!("undefined: {}", why.unwrap_or_default()),
    }
}

/// An estimate with its interval, or why it lacks one.
pub(super) fn estimate(estimate: &Estimate) -> String {
    let why = estimate.undefined.map(|why| why.to_string());
    told(estimate.value, estimate.low, estimate.high, why)
}

/// The measures of the head and its labels, then the decisions at each threshold.
fn tables(head: &str, found: &HeadEvaluation, labels: &[String]) -> Vec<Table> {
    let measures: Vec<(Measure, &MetricTable)> = found.measures().collect();
    let caption = format!("{head}: measures with 95% intervals");
    let titles = ["label"].into_iter().chain(measures.iter().map(|(measure, _)| measure.title));
    let mut table = Table::new(caption, titles, 1);
    for label in labels {
        let cell = |(_, of): &(Measure, &MetricTable)| {
            of.labels.get(label).map(estimate).unwrap_or_default()
        };
        table.rows.push([label.clone()].into_iter().chain(measures.iter().map(cell)).collect());
    }
    if labels.len() > 1 {
        let mean = |(_, of): &(Measure, &MetricTable)| estimate(&of.mean());
        let name = if found.task == Task::Multiclass { "all" } else { "mean" }.to_owned();
        table.rows.push([name].into_iter().chain(measures.iter().map(mean)).collect());
    }
    let mut tables = vec![table];
    if let Some(accuracy) = &found.accuracy {
        let mut table = Table::new(format!("{head}: decisions"), ["measure", "value"], 1);
        table.rows.push(vec!["accuracy".to_owned(), estimate(accuracy)]);
        tables.push(table);
    }
    tables.extend(decisions(head, found, labels));
    tables
}

fn decisions(head: &str, found: &HeadEvaluation, labels: &[String]) -> Option<Table> {
    let caption = format!("{head}: decisions at each threshold, in images");
    let titles = [
        "label",
        "operating point",
        "threshold",
        "sensitivity",
        "specificity",
        "PPV",
        "NPV",
        "F1",
        "true +",
        "false +",
        "true −",
        "false −",
    ];
    let mut table = Table::new(caption, titles, 2);
    let short = |estimate: &Estimate| shown(estimate.value);
    for label in labels {
        for (criterion, point) in found.operating_points.get(label).into_iter().flatten() {
            let PointEvaluation { threshold, confusion, measures, .. } = point;
            let mut row = vec![label.clone(), criterion.replace('_', " "), shown(*threshold)];
            if let (Some(counts), Some(of)) = (confusion, measures) {
                row.extend([&of.sensitivity, &of.specificity, &of.ppv, &of.npv, &of.f1].map(short));
                let counts = [
                    counts.true_positives,
                    counts.false_positives,
                    counts.true_negatives,
                    counts.false_negatives,
                ];
                row.extend(counts.map(|count| count.to_string()));
            }
            row.resize(titles.len(), String::new());
            table.rows.push(row);
        }
    }
    (!table.rows.is_empty()).then_some(table)
}

fn confusion(found: &HeadEvaluation) -> Option<ConfusionTable> {
    let matrix = found.confusion_matrix.as_ref()?;
    let row = |(class, counts): (&String, &Vec<usize>)| {
        let all: usize = counts.iter().sum();
        let percent = |count: usize| (100 * count).checked_div(all).unwrap_or(0);
        (class.clone(), counts.iter().map(|&count| (count, percent(count))).collect())
    };
    let rows = matrix.classes.iter().zip(&matrix.counts).map(row).collect();
    Some(ConfusionTable { classes: matrix.classes.clone(), rows })
}
