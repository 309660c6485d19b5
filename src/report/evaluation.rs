//! An evaluation as a person reads it in a terminal: tables head by head, and why what has no value
//! has none.

use std::collections::{BTreeMap, BTreeSet};

use super::HeadLabels;
use crate::evaluate::{
    ConfusionMatrix, Estimate, Evaluation, HeadEvaluation, Measure, MetricTable, PointEvaluation,
    SubgroupEvaluation,
};
use crate::model::Task;
use crate::screen::{Column, Frame, Table, counted, wrapped};

/// More classes than these are no matrix on a screen; `--json` has it.
const MOST_CLASSES: usize = 12;

/// What is told of a label's decisions at one threshold.
const POINT_TITLES: [&str; 8] =
    ["threshold", "sensitivity", "specificity", "PPV", "NPV", "F1", "accuracy", "TP/FP/TN/FN"];

/// The tables of `evaluation`, in lines of at most `columns`. `heads` tells the order of heads and
/// labels; those that it does not name come last.
pub fn evaluation_text(
    evaluation: &Evaluation,
    heads: &[HeadLabels],
    frame: Frame,
    columns: usize,
) -> String {
    let mut page = Page { frame, columns, parts: Vec::new(), undefined: BTreeMap::new() };
    for name in ordered(evaluation.heads.keys(), heads.iter().map(|head| &head.name)) {
        let labels = heads.iter().find(|head| head.name == *name);
        let labels = labels.map_or(&[][..], |head| &head.labels);
        page.head(name, &evaluation.heads[name], labels);
        for (by, groups) in &evaluation.subgroups {
            page.subgroups(name, by, groups, labels);
        }
    }
    page.text()
}

/// `value (low to high)`, as far as they are there.
pub fn estimate_text(estimate: &Estimate) -> String {
    match (estimate.value, estimate.low.zip(estimate.high)) {
        (None, _) => "undefined".to_owned(),
        (Some(value), None) => figure(value),
        (Some(value), Some((low, high))) => {
            format!("{} ({} to {})", figure(value), figure(low), figure(high))
        }
    }
}

/// Three decimals; more of a number so small that they would not tell it, fewer of a large one.
pub(super) fn figure(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if size == 0.0 || (0.01..1000.0).contains(&size) => format!("{value:.3}"),
        _ if (1e-5..0.01).contains(&size) => format!("{value:.5}"),
        _ if size < 1e-5 => format!("{value:.1e}"),
        _ => format!("{value:.0}"),
    }
}

/// `names` in the order of `first`, the others after them.
pub(super) fn ordered<'a>(
    names: impl Iterator<Item = &'a String>,
    first: impl Iterator<Item = &'a String>,
) -> Vec<&'a String> {
    let order: Vec<&String> = first.collect();
    let mut names: Vec<&String> = names.collect();
    names.sort_by_key(|name| order.iter().position(|known| known == name).unwrap_or(order.len()));
    names
}

/// What is drawn so far.
struct Page {
    frame: Frame,
    columns: usize,
    parts: Vec<String>,
    /// What has no value or no interval, by that and the reason.
    undefined: BTreeMap<String, Vec<String>>,
}

impl Page {
    /// The heading of what follows.
    fn say(&mut self, text: &str) {
        let text = wrapped(text, self.columns, 2);
        self.parts.push(if self.parts.is_empty() { text } else { format!("\n{text}") });
    }

    fn draw(&mut self, table: &Table) {
        self.parts.push(table.draw(self.frame, self.columns));
    }

    /// The cell of an estimate, whose reason is noted under `name`.
    fn cell(&mut self, name: &str, estimate: &Estimate) -> String {
        if let Some(reason) = estimate.undefined {
            let what = if estimate.value.is_some() { "no interval" } else { "undefined" };
            self.note(format!("{what} ({reason})"), name);
        }
        estimate_text(estimate)
    }

    fn note(&mut self, reason: String, name: &str) {
        self.undefined.entry(reason).or_default().push(name.to_owned());
    }

    fn head(&mut self, name: &str, head: &HeadEvaluation, labels: &[String]) {
        let (images, patients) = (
            counted(head.images, "image", "images"),
            counted(head.patients, "patient", "patients"),
        );
        self.say(&format!("{name}: {images} of {patients}"));
        self.by_label(name, head, labels);
        self.operating_points(name, head, labels);
        if head.task == Task::Multiclass {
            self.classes(name, head);
        }
    }

    fn by_label(&mut self, name: &str, head: &HeadEvaluation, labels: &[String]) {
        let found: Vec<(Measure, &MetricTable)> =
            head.measures().filter(|(_, table)| !table.labels.is_empty()).collect();
        let Some((_, first)) = found.first() else { return };
        let rows = ordered(first.labels.keys(), labels.iter());
        let kind = if head.task == Task::Multiclass { "class" } else { "label" };
        let titles = found.iter().map(|(measure, _)| Column::numbers(measure.column).always());
        let titles = [Column::words(kind).always()].into_iter().chain(titles).collect();
        let mut table = Table::new(titles, 1);
        if rows.len() > 1 {
            let means = found
                .iter()
                .map(|(of, table)| self.cell(&format!("{name}/{}", of.key), &table.mean()));
            let means: Vec<String> = means.collect();
            table.add([vec!["mean".to_owned()], means].concat());
        }
        for label in rows {
            let cells = found.iter().map(|(measure, table)| {
                let estimate = table.labels.get(label);
                let name = format!("{name}/{}/{label}", measure.key);
                estimate.map_or_else(String::new, |estimate| self.cell(&name, estimate))
            });
            let cells: Vec<String> = cells.collect();
            table.add([vec![label.clone()], cells].concat());
        }
        self.draw(&table);
    }

    /// A table for each criterion; the intervals of the last four shares are in `--json`.
    fn operating_points(&mut self, name: &str, head: &HeadEvaluation, labels: &[String]) {
        let points = head.operating_points.values().flat_map(BTreeMap::keys);
        let points: BTreeSet<&String> = points.collect();
        for point in points {
            let words = Column::words("label").always();
            let figures = POINT_TITLES.map(|title| Column::numbers(title).always());
            let mut table = Table::new([words].into_iter().chain(figures).collect(), 1);
            for label in ordered(head.operating_points.keys(), labels.iter()) {
                let Some(found) = head.operating_points[label].get(point) else { continue };
                let figures = self.point(&format!("{name}/{point}/{label}"), found);
                table.add([label.clone()].into_iter().chain(figures).collect());
            }
            self.say(&format!("{name}: decisions at {point}"));
            self.draw(&table);
        }
    }

    /// The figures of a label's decisions, whose reasons are noted under `name`.
    fn point(&mut self, name: &str, found: &PointEvaluation) -> [String; POINT_TITLES.len()] {
        if let Some(reason) = &found.undefined {
            self.note(format!("undefined ({reason})"), name);
        }
        let threshold = found.threshold.map_or("undefined".to_owned(), |cut| format!("{cut:.4}"));
        let (Some(of), Some(counts)) = (found.measures, found.confusion) else {
            let mut figures = [const { String::new() }; POINT_TITLES.len()];
            figures[0] = threshold;
            return figures;
        };
        let [sensitivity, specificity] = [of.sensitivity, of.specificity];
        let [sensitivity, specificity] = [sensitivity, specificity].map(|e| self.cell(name, &e));
        let bare = |estimate: Estimate| Estimate { low: None, high: None, ..estimate };
        let [ppv, npv, f1, accuracy] =
            [of.ppv, of.npv, of.f1, of.accuracy].map(|estimate| self.cell(name, &bare(estimate)));
        let counts = [
            counts.true_positives,
            counts.false_positives,
            counts.true_negatives,
            counts.false_negatives,
        ];
        let counts = counts.map(|count| count.to_string()).join("/");
        [threshold, sensitivity, specificity, ppv, npv, f1, accuracy, counts]
    }

    /// What a head of classes has as a whole, and which class was taken for which.
    fn classes(&mut self, name: &str, head: &HeadEvaluation) {
        let alone = |table: &Option<MetricTable>| table.as_ref().map(MetricTable::mean);
        let figures =
            [("accuracy", head.accuracy), ("Brier", alone(&head.brier)), ("ECE", alone(&head.ece))];
        let told = figures.into_iter().filter_map(|(title, estimate)| {
            let cell = self.cell(&format!("{name}/{}", title.to_lowercase()), &estimate?);
            Some(format!("{title} {cell}"))
        });
        let told: Vec<String> = told.collect();
        self.parts.push(wrapped(&told.join(", "), self.columns, 2));
        if let Some(matrix) = head.confusion_matrix.as_ref().filter(|m| fits(m)) {
            self.matrix(name, matrix);
        }
    }

    fn matrix(&mut self, name: &str, matrix: &ConfusionMatrix) {
        let decided = matrix.classes.iter().map(|class| Column::numbers(class).always());
        let titles = [Column::words("true class").always()].into_iter().chain(decided);
        let mut table = Table::new(titles.collect(), 1);
        for (class, counts) in matrix.classes.iter().zip(&matrix.counts) {
            let counts = counts.iter().map(usize::to_string);
            table.add([class.clone()].into_iter().chain(counts).collect());
        }
        self.say(&format!("{name}: images by true class and by the class decided on"));
        self.draw(&table);
    }

    /// The first metric of a head, label by label, beside itself for each group.
    fn subgroups(
        &mut self,
        name: &str,
        by: &str,
        groups: &[SubgroupEvaluation],
        labels: &[String],
    ) {
        let found = groups.iter().filter_map(|group| {
            let head = group.heads.get(name)?;
            let (measure, table) = head.measures().next()?;
            Some((group, measure.key, table))
        });
        let found: Vec<(&SubgroupEvaluation, &str, &MetricTable)> = found.collect();
        let Some((_, key, first)) = found.first() else { return };
        let rows = ordered(first.labels.keys(), labels.iter());
        let titles = found.iter().map(|(group, _, _)| {
            Column::numbers(format!("{} (n={})", group.group, group.images)).always()
        });
        let titles = [Column::words("label").always()].into_iter().chain(titles).collect();
        let mut table = Table::new(titles, 1);
        if rows.len() > 1 {
            let means: Vec<String> = found
                .iter()
                .map(|(group, key, table)| {
                    self.cell(&format!("{name}/{key} of {}", group.group), &table.mean())
                })
                .collect();
            table.add([vec!["mean".to_owned()], means].concat());
        }
        for label in rows {
            let cells: Vec<String> = found
                .iter()
                .map(|(group, key, table)| {
                    let name = format!("{name}/{key}/{label} of {}", group.group);
                    let estimate = table.labels.get(label);
                    estimate.map_or_else(String::new, |estimate| self.cell(&name, estimate))
                })
                .collect();
            table.add([vec![label.clone()], cells].concat());
        }
        let metric = if *key == "mae" { "MAE" } else { "AUROC" };
        self.say(&format!("{name}: {metric} (95%) by {by}"));
        self.draw(&table);
    }

    /// All of it, then the reasons.
    fn text(self) -> String {
        let Self { columns, parts, undefined, .. } = self;
        let mut text = parts.join("\n") + "\n";
        if !undefined.is_empty() {
            text.push('\n');
        }
        for (reason, mut names) in undefined {
            names.dedup();
            let line = format!("{reason}: {}", names.join(", "));
            text.push_str(&format!("{}\n", wrapped(&line, columns, 2)));
        }
        text
    }
}

fn fits(matrix: &ConfusionMatrix) -> bool {
    matrix.classes.len() <= MOST_CLASSES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Targets;
    use crate::evaluate::{
        CalibrationMethod, Criterion, Fitted, FittedHead, Settings, evaluate, evaluate_subgroups,
        groups,
    };
    use crate::metric::HeadPredictions;
    use crate::screen::columns_of;

    const IMAGES: usize = 60;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    /// Numbers without a pattern, from −2 to 2.
    fn noise(place: usize) -> f32 {
        (place * 7919 % 401) as f32 / 100.0 - 2.0
    }

    fn predictions(
        task: Task,
        labels: &[&str],
        truth: impl Fn(usize, usize) -> (f32, f32),
    ) -> HeadPredictions {
        let width = if task == Task::Multiclass { 1 } else { labels.len() };
        let targets: Vec<(f32, f32)> =
            (0..IMAGES * width).map(|place| truth(place / width, place % width)).collect();
        let (values, mask): (Vec<f32>, Vec<f32>) = targets.into_iter().unzip();
        let outputs = (0..IMAGES * labels.len()).map(|place| {
            let (image, label) = (place / labels.len(), place % labels.len());
            let signal = match task {
                Task::Multiclass => f32::from(u8::from(values[image] as usize == label)),
                _ => values[image * width + label],
            };
            signal + noise(place)
        });
        let outputs = outputs.collect();
        let targets = Targets { values, mask, width };
        HeadPredictions { task, labels: names(labels), outputs, targets }
    }

    fn evaluation() -> (Evaluation, Vec<HeadLabels>) {
        let sick = |image: usize, label: usize| match label {
            2 => (1.0, f32::from(u8::from(image < 4))),
            label => (f32::from(u8::from((image / 2 + label).is_multiple_of(3))), 1.0),
        };
        let findings = ["Pleural Effusion", "Edema", "Rare"];
        let heads = BTreeMap::from([
            ("findings".to_owned(), predictions(Task::Multilabel, &findings, sick)),
            (
                "view".to_owned(),
                predictions(Task::Multiclass, &["PA", "AP"], |image, _| ((image % 2) as f32, 1.0)),
            ),
            (
                "age".to_owned(),
                predictions(Task::Regression, &["Age"], |image, _| (image as f32 / 6.0, 1.0)),
            ),
        ]);
        let patients: Vec<usize> = (0..IMAGES).map(|image| image / 2).collect();
        let criteria = [Criterion::Youden, Criterion::Sensitivity(0.9)];
        let fit = |head| FittedHead::fit(head, Some(CalibrationMethod::Platt), &criteria);
        let fitted = heads.iter().map(|(name, head)| (name.clone(), fit(head))).collect();
        let fitted = Fitted::new(fitted);
        let settings = Settings { resamples: 50, bins: 5, ..Settings::default() };
        let by_sex = groups((0..IMAGES).map(|image| if image / 2 % 2 == 0 { "F" } else { "M" }));
        let by_sex = evaluate_subgroups(&heads, &patients, &by_sex, Some(&fitted), &settings);
        let all = evaluate(&heads, &patients, Some(&fitted), &settings);
        let order = [("view", &["PA", "AP"][..]), ("findings", &findings), ("age", &["Age"])];
        let order =
            order.map(|(name, labels)| HeadLabels { name: name.to_owned(), labels: names(labels) });
        let subgroups = BTreeMap::from([("sex".to_owned(), by_sex)]);
        (Evaluation { heads: all, subgroups }, order.to_vec())
    }

    #[test]
    fn the_tables_fit_every_width() {
        let (evaluation, order) = evaluation();
        for columns in [40, 60, 80, 120] {
            let text = evaluation_text(&evaluation, &order, Frame::Utf8, columns);
            assert!(text.lines().all(|line| columns_of(line) <= columns), "{columns}\n{text}");
            if columns == 60 || columns == 120 {
                insta::assert_snapshot!(format!("evaluation_{columns}"), text);
            }
        }
        assert!(evaluation_text(&evaluation, &order, Frame::Ascii, 80).is_ascii());
    }

    #[test]
    fn every_value_that_is_undefined_has_its_reason_below() {
        let (evaluation, order) = evaluation();
        let text = evaluation_text(&evaluation, &order, Frame::Ascii, 400);
        assert!(text.contains("| Rare "), "{text}");
        let reason = "undefined (one class only: 4 positives of 4): findings/auroc/Rare";
        assert!(text.contains(reason), "{text}");
    }

    #[test]
    fn figures_keep_what_tells_them_apart() {
        let shown = [0.0, 0.5, 12.34567, 0.001234, 0.000000123, 41_234.5].map(figure);
        assert_eq!(shown, ["0.000", "0.500", "12.346", "0.00123", "1.2e-7", "41234"]);
    }
}
