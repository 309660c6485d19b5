//! What a head's outputs are worth, in pictures: ROC, precision and recall, reliability, and numbers beside
//! their predictions.

use super::curves::{LABELS, id};
use super::figure::{Figure, Table, thinned};
use super::head::estimate;
use crate::evaluate::{CurvePoint, HeadEvaluation, MetricTable, Reliability, curve_points};
use crate::metric::HeadPredictions;
use crate::model::Task;
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

/// The pictures of a head. `probabilities` are `[images, labels]`; of numbers the numbers themselves.
pub fn figures(
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
        names: Vec::new(),
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
        names: Vec::new(),
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
        names: Vec::new(),
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
            names: Vec::new(),
            curves: vec![guide([(low, low), (high, high)]), dots],
        };
        let note = "On the grey line predictions are right.";
        Some(Figure::new(&id(&title), &chart, note, Table::default()))
    };
    predictions.labels.iter().enumerate().filter_map(scatter).collect()
}
