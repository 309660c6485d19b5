//! What the best epoch's outputs for the validation images are worth, in pictures.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use askama::Template;
use serde::Deserialize;

use super::curves::{LABELS, id};
use super::figure::{Figure, Table, thinned};
use super::samples::samples;
use crate::evaluate::{
    Calibration, CurvePoint, Estimate, EvaluateConfig, Fitted, HeadEvaluation, MetricTable,
    PointEvaluation, PredictionTable, Reliability, curve_points, evaluate,
};
use crate::metric::HeadPredictions;
use crate::model::{HeadConfig, Task};
use crate::report::table::shown;
use crate::report::{Chart, Curve, Shape};

/// Where a table reads a curve.
const PLACES: [f64; 9] = [0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0];
/// Parts of an axis that a curve is drawn at: more are not seen.
const GRID: f64 = 400.0;
/// Images of a bin of which the share that is positive says little.
const FEW: usize = 5;
/// Points of a picture of numbers beside their predictions.
const DOTS: usize = 1000;

/// The best epoch's outputs, judged head by head.
#[derive(Debug, Clone, Default)]
pub struct Judged {
    /// In the order of the configuration.
    pub heads: Vec<JudgedHead>,
    /// The figures, by the head's name.
    pub found: BTreeMap<String, HeadEvaluation>,
}

/// What one head's outputs are worth.
#[derive(Debug, Clone, Template)]
#[template(path = "judged.html")]
pub struct JudgedHead {
    title: String,
    tables: Vec<Table>,
    figures: Vec<Figure>,
    confusion: Option<ConfusionTable>,
    samples: Vec<Table>,
}

/// How often images of each class are given each class, with the share of the row in percent.
#[derive(Debug, Clone)]
struct ConfusionTable {
    classes: Vec<String>,
    rows: Vec<(String, Vec<(usize, usize)>)>,
}

/// What of a configuration the outputs need.
#[derive(Deserialize)]
struct Settings {
    heads: Vec<HeadConfig>,
    #[serde(default)]
    evaluate: EvaluateConfig,
    run: RunSettings,
}

#[derive(Deserialize)]
struct RunSettings {
    seed: u64,
}

impl Judged {
    /// Judges the outputs in the best state of the run in `folder`, whose resolved configuration is
    /// `config`; `None` where the state holds none.
    ///
    /// # Errors
    /// When a file cannot be read or used, in words.
    pub fn read(folder: &Path, config: &str) -> Result<Option<Self>, String> {
        let state = folder.join("best");
        let (outputs, fitted) = (state.join(PredictionTable::FILE), state.join(Fitted::FILE));
        if !outputs.exists() {
            return Ok(None);
        }
        let settings: Settings =
            toml::from_str(config).map_err(|error| format!("config.toml: {error}"))?;
        let read = |file: &Path| {
            fs::read(file).map_err(|error| format!("cannot read {}: {error}", file.display()))
        };
        let table = PredictionTable::from_csv(&read(&outputs)?, &settings.heads, &outputs);
        let table = table.map_err(|error| error.to_string())?;
        let fitted = match fitted.exists() {
            true => {
                let text = String::from_utf8_lossy(&read(&fitted)?).into_owned();
                Some(Fitted::from_json(&text, &fitted).map_err(|error| error.to_string())?)
            }
            false => None,
        };
        Ok(Some(Self::new(&table, fitted.as_ref(), &settings)))
    }

    fn new(table: &PredictionTable, fitted: Option<&Fitted>, settings: &Settings) -> Self {
        let patients = table.patient_numbers();
        let how = settings.evaluate.settings(settings.run.seed);
        let found = evaluate(&table.heads, &patients, fitted, &how);
        let head = |config: &HeadConfig| {
            let name = &config.name;
            let (predictions, evaluation) = (table.heads.get(name)?, found.get(name)?);
            let calibration =
                fitted.and_then(|fitted| fitted.heads.get(name)?.calibration.as_ref());
            let HeadPredictions { task, labels, outputs, .. } = predictions;
            let probabilities = Calibration::probabilities(calibration, *task, labels, outputs);
            Some(JudgedHead {
                title: format!("Head {name}"),
                tables: tables(name, evaluation, labels),
                figures: figures(name, predictions, evaluation, &probabilities),
                confusion: confusion(evaluation),
                samples: samples(name, table, predictions, &probabilities),
            })
        };
        let heads = settings.heads.iter().filter_map(head).collect();
        Self { heads, found }
    }
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

fn estimate(estimate: &Estimate) -> String {
    let why = estimate.undefined.map(|why| why.to_string());
    told(estimate.value, estimate.low, estimate.high, why)
}

/// The measures of the head and its labels, then the decisions at each threshold.
fn tables(head: &str, found: &HeadEvaluation, labels: &[String]) -> Vec<Table> {
    let measures: Vec<(&str, &MetricTable)> = [
        ("AUROC", &found.auroc),
        ("AUPRC", &found.auprc),
        ("calibration error (ECE)", &found.ece),
        ("Brier score", &found.brier),
        ("MAE", &found.mae),
        ("RMSE", &found.rmse),
        ("R²", &found.r2),
    ]
    .into_iter()
    .filter_map(|(name, table)| Some((name, table.as_ref()?)))
    .collect();
    let caption = format!("{head}: measures with 95% intervals");
    let titles = ["label"].into_iter().chain(measures.iter().map(|(name, _)| *name));
    let mut table = Table::new(caption, titles, 1);
    for label in labels {
        let cell =
            |(_, of): &(&str, &MetricTable)| of.labels.get(label).map(estimate).unwrap_or_default();
        table.rows.push([label.clone()].into_iter().chain(measures.iter().map(cell)).collect());
    }
    if labels.len() > 1 {
        let why = |of: &MetricTable| of.undefined.map(|why| why.to_string());
        let mean = |(_, of): &(&str, &MetricTable)| told(of.mean, of.low, of.high, why(of));
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
        "threshold",
        "from",
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

fn figures(
    head: &str,
    predictions: &HeadPredictions,
    found: &HeadEvaluation,
    probabilities: &[f64],
) -> Vec<Figure> {
    if predictions.task == Task::Regression {
        return scatters(head, predictions, probabilities);
    }
    let examples = predictions.examples();
    let points = |label: usize| {
        let scores: Vec<f64> = examples[label].iter().map(|one| one.score).collect();
        let positive: Vec<bool> = examples[label].iter().map(|one| one.positive).collect();
        curve_points(&scores, &positive).ok()
    };
    let curves: Vec<(&str, Vec<CurvePoint>)> = predictions
        .labels
        .iter()
        .enumerate()
        .filter_map(|(place, label)| Some((label.as_str(), points(place)?)))
        .collect();
    let mut figures = Vec::new();
    let parts = curves.len().div_ceil(LABELS).max(1);
    for (number, part) in curves.chunks(curves.len().div_ceil(parts).max(1)).enumerate() {
        let of = if parts > 1 { format!(", {} of {parts}", number + 1) } else { String::new() };
        figures.push(roc(&format!("{head}: ROC{of}"), part, found));
        figures.push(precision_recall(&format!("{head}: precision and recall{of}"), part, found));
    }
    // That of the decided class has another name than the labels.
    let place = |label: &String| predictions.labels.iter().position(|other| other == label);
    let mut curves: Vec<(&String, &Reliability)> = found.reliability.iter().collect();
    curves.sort_by_key(|(label, _)| place(label));
    let parts = curves.len().div_ceil(LABELS).max(1);
    for (number, part) in curves.chunks(curves.len().div_ceil(parts).max(1)).enumerate() {
        let of = if parts > 1 { format!(", {} of {parts}", number + 1) } else { String::new() };
        figures.push(reliability(&format!("{head}: reliability{of}"), part));
    }
    figures
}

/// The figure of a label, for the legend.
fn of_label(table: &Option<MetricTable>, label: &str) -> String {
    table.as_ref().and_then(|table| table.labels.get(label)).map(estimate).unwrap_or_default()
}

/// The points of a curve that are far enough apart to be seen, the ends among them.
fn visible(points: impl IntoIterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let place = |(x, y): (f64, f64)| ((x * GRID).round() as i64, (y * GRID).round() as i64);
    let mut kept: Vec<(f64, f64)> = Vec::new();
    let mut last = None;
    for point in points {
        if kept.last().is_none_or(|&before| place(before) != place(point)) {
            kept.push(point);
        }
        last = Some(point);
    }
    kept.pop();
    kept.extend(last);
    kept
}

fn guide(points: [(f64, f64); 2]) -> Curve {
    let (name, figure) = (String::new(), String::new());
    Curve { name, figure, shape: Shape::Guide, points: points.to_vec() }
}

fn roc(title: &str, curves: &[(&str, Vec<CurvePoint>)], found: &HeadEvaluation) -> Figure {
    let curve = |(label, points): &(&str, Vec<CurvePoint>)| {
        let points = points.iter().map(|point| (point.false_positive_rate(), point.recall()));
        let (name, figure) = ((*label).to_owned(), of_label(&found.auroc, label));
        Curve { name, figure, shape: Shape::Line, points: visible(points) }
    };
    let chart = Chart {
        title: title.to_owned(),
        x: "false positive rate".to_owned(),
        y: "true positive rate".to_owned(),
        from_zero: true,
        curves: [guide([(0.0, 0.0), (1.0, 1.0)])]
            .into_iter()
            .chain(curves.iter().map(curve))
            .collect(),
    };
    let titles = ["false positive rate up to"].into_iter().chain(curves.iter().map(|(l, _)| *l));
    let mut table = Table::new(format!("{title}: true positive rate"), titles, 1);
    for most in PLACES {
        let best = |(_, points): &(&str, Vec<CurvePoint>)| {
            let reached = points.iter().rfind(|point| point.false_positive_rate() <= most);
            shown(reached.map(CurvePoint::recall))
        };
        table.rows.push([most.to_string()].into_iter().chain(curves.iter().map(best)).collect());
    }
    let note = "The legend tells the area under each curve (AUROC) with its 95% interval; the grey \
                line is chance.";
    Figure::new(&id(title), &chart, note, table)
}

fn precision_recall(
    title: &str,
    curves: &[(&str, Vec<CurvePoint>)],
    found: &HeadEvaluation,
) -> Figure {
    let curve = |(label, points): &(&str, Vec<CurvePoint>)| {
        // The precision of a recall is that of the threshold that reaches it, as average precision has
        // it.
        let steps = points.windows(2).flat_map(|two| {
            let precision = two[1].precision();
            [(two[0].recall(), precision), (two[1].recall(), precision)]
        });
        let (name, figure) = ((*label).to_owned(), of_label(&found.auprc, label));
        Curve { name, figure, shape: Shape::Line, points: visible(steps) }
    };
    let chart = Chart {
        title: title.to_owned(),
        x: "recall (sensitivity)".to_owned(),
        y: "precision".to_owned(),
        from_zero: true,
        curves: curves.iter().map(curve).collect(),
    };
    let titles = ["recall of at least"].into_iter().chain(curves.iter().map(|(label, _)| *label));
    let mut table = Table::new(format!("{title}: precision"), titles, 1);
    for least in PLACES {
        let first = |(_, points): &(&str, Vec<CurvePoint>)| {
            let reached = points.iter().find(|point| point.recall() >= least);
            shown(reached.map(CurvePoint::precision))
        };
        table.rows.push([least.to_string()].into_iter().chain(curves.iter().map(first)).collect());
    }
    let note = "The legend tells the area under each curve (AUPRC, average precision) with its 95% \
                interval.";
    Figure::new(&id(title), &chart, note, table)
}

fn reliability(title: &str, curves: &[(&String, &Reliability)]) -> Figure {
    let curve = |(label, of): &(&String, &Reliability)| {
        let bins = of.bins.iter().filter(|bin| bin.images >= FEW);
        let points = bins.filter_map(|bin| Some((bin.mean_probability?, bin.positive_share?)));
        let (name, figure) = ((*label).clone(), format!("ECE {:.4}", of.ece()));
        Curve { name, figure, shape: Shape::Line, points: points.collect() }
    };
    let guide = guide([(0.0, 0.0), (1.0, 1.0)]);
    let chart = Chart {
        title: title.to_owned(),
        x: "mean probability".to_owned(),
        y: "share that is positive".to_owned(),
        from_zero: true,
        curves: [guide].into_iter().chain(curves.iter().map(curve)).collect(),
    };
    let titles = ["label", "probability", "images", "mean probability", "share positive"];
    let mut table = Table::new(title, titles, 2);
    for (label, of) in curves {
        for bin in of.bins.iter().filter(|bin| bin.images > 0) {
            table.rows.push(vec![
                (*label).clone(),
                format!("{:.2} to {:.2}", bin.low, bin.high),
                bin.images.to_string(),
                shown(bin.mean_probability),
                shown(bin.positive_share),
            ]);
        }
    }
    let note = format!(
        "On the grey line probabilities mean what they say: of the images with 0.8, 80% are positive. \
         Bins of fewer than {FEW} images are left out here."
    );
    Figure::new(&id(title), &chart, note, table)
}

/// Truth and prediction of each label of a `regression` head.
fn scatters(head: &str, predictions: &HeadPredictions, values: &[f64]) -> Vec<Figure> {
    let (targets, width) = (&predictions.targets, predictions.targets.width);
    let scatter = |(place, label): (usize, &String)| {
        let title = format!("{head}: {label}");
        let known = (0..predictions.images()).map(|image| image * width + place);
        let known = known.filter(|&at| targets.mask[at] != 0.0);
        let points = known.map(|at| (f64::from(targets.values[at]), values[at]));
        let points: Vec<(f64, f64)> = points.collect();
        let ends = points.iter().fold(None, |ends: Option<(f64, f64)>, &(truth, _)| {
            Some(ends.map_or((truth, truth), |(low, high)| (low.min(truth), high.max(truth))))
        });
        let (low, high) = ends?;
        let shape = Shape::Dots;
        let dots = Curve {
            name: String::new(),
            figure: String::new(),
            shape,
            points: thinned(&points, DOTS),
        };
        let chart = Chart {
            title: title.clone(),
            x: format!("{label}, truth"),
            y: "prediction".to_owned(),
            from_zero: false,
            curves: vec![guide([(low, low), (high, high)]), dots],
        };
        let note = "On the grey line predictions are right.";
        Some(Figure::new(&id(&title), &chart, note, Table::default()))
    };
    predictions.labels.iter().enumerate().filter_map(scatter).collect()
}
