//! The metrics: what each is called, which way is better, and the function that computes it.

use super::Example;
use super::accuracy::accuracy;
use super::auprc::auprc;
use super::auroc::auroc;
use super::f1::f1;
use super::regression::{mae, rmse};
use crate::model::Task;

/// A metric of one label or class, computed from what is known of it.
pub(super) struct Metric<T> {
    pub name: &'static str,
    higher_is_better: bool,
    pub compute: fn(&[T]) -> Option<f64>,
}

const fn metric<T>(
    name: &'static str,
    higher_is_better: bool,
    compute: fn(&[T]) -> Option<f64>,
) -> Metric<T> {
    Metric { name, higher_is_better, compute }
}

/// The metrics of a decision per label or class.
pub(super) const CLASSIFICATION: [Metric<Example>; 4] = [
    metric("auroc", true, auroc),
    metric("auprc", true, auprc),
    metric("accuracy", true, accuracy),
    metric("f1", true, f1),
];

/// The metrics of a number per label, computed from its errors.
pub(super) const REGRESSION: [Metric<f64>; 2] =
    [metric("mae", false, mae), metric("rmse", false, rmse)];

/// Every metric and whether more of it is better.
fn directions() -> impl Iterator<Item = (&'static str, bool)> {
    let classification = CLASSIFICATION.map(|metric| (metric.name, metric.higher_is_better));
    let regression = REGRESSION.map(|metric| (metric.name, metric.higher_is_better));
    classification.into_iter().chain(regression)
}

/// The ends of the interval of `auroc`: values beside the metrics, which cannot be watched.
pub const INTERVAL: [&str; 2] = ["auroc_low", "auroc_high"];

/// Numbers of a head beyond which nobody reads the error of each.
const MOST_NUMBERS: usize = 100;

/// What [`super::HeadPredictions::metrics`] yields for a head: its metrics, and `<metric>/<label>`
/// for each label or class where there are several (for `multiclass` all but `accuracy`; for
/// `regression` up to 100).
pub fn metric_names(task: Task, labels: &[String]) -> Vec<String> {
    let metrics = match task {
        Task::Regression => REGRESSION.map(|metric| metric.name).to_vec(),
        Task::Multilabel | Task::Binary | Task::Multiclass => {
            CLASSIFICATION.map(|metric| metric.name).to_vec()
        }
    };
    let mut names: Vec<String> = metrics.iter().map(|&metric| metric.to_owned()).collect();
    for metric in metrics.iter().filter(|metric| is_per_label(task, labels.len(), metric)) {
        names.extend(labels.iter().map(|label| format!("{metric}/{label}")));
    }
    names
}

/// Whether a head reports `metric` for each label too.
pub(super) fn is_per_label(task: Task, labels: usize, metric: &str) -> bool {
    match task {
        Task::Multilabel => true,
        Task::Binary => false,
        Task::Multiclass => metric != "accuracy",
        Task::Regression => (2..=MOST_NUMBERS).contains(&labels),
    }
}

/// Whether more is better of the metric at a path such as `val/findings/auroc/Edema`,
/// `train/loss` or `findings/mae`; `None` for a metric that nothing here computes.
///
/// The metric stands after the head, or alone; what follows it is a label, which may be called
/// anything.
pub fn higher_is_better(metric_name: &str) -> Option<bool> {
    let split = metric_name.split_once('/').filter(|(split, _)| matches!(*split, "train" | "val"));
    let path = split.map_or(metric_name, |(_, path)| path);
    let mut segments = path.split('/');
    let first = segments.next()?;
    match (segments.next(), split) {
        (None, _) => direction(first),
        // After the split stands a head, though it were called `loss`.
        (Some(second), Some(_)) => direction(second),
        (Some(second), None) => direction(first).or_else(|| direction(second)),
    }
}

fn direction(metric: &str) -> Option<bool> {
    let mut all = directions().chain([("loss", false)]);
    all.find(|(name, _)| *name == metric).map(|(_, higher)| higher)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn the_direction_is_that_of_the_metric_in_the_path() {
        for name in ["auroc", "findings/f1", "val/view/accuracy", "val/findings/auprc/Edema"] {
            assert_eq!(higher_is_better(name), Some(true), "{name}");
        }
        for name in ["loss", "train/loss", "val/loss", "val/age/mae", "mae/Age", "val/age/loss"] {
            assert_eq!(higher_is_better(name), Some(false), "{name}");
        }
        for name in ["", "val", "speed", "val/findings", "val/findings/speed", "val/findings/Edema"]
        {
            assert_eq!(higher_is_better(name), None, "{name}");
        }
    }

    #[test]
    fn heads_and_labels_may_be_called_as_metrics_are() {
        assert_eq!(higher_is_better("val/loss/auroc"), Some(true));
        assert_eq!(higher_is_better("val/accuracy/mae"), Some(false));
        assert_eq!(higher_is_better("val/findings/auroc/loss"), Some(true));
        assert_eq!(higher_is_better("val/findings/auroc/CHF/mae"), Some(true));
    }

    /// The page has a section for each metric, which tells the direction that is computed with.
    #[test]
    fn the_page_of_metrics_has_every_metric_with_its_direction() {
        let page = include_str!("../../docs/metrics.md");
        let sections = page.split("\n### ").skip(1);
        let found: BTreeMap<&str, &str> = sections
            .map(|section| {
                let (title, text) = section.split_once('\n').expect("a section has text");
                (title.trim_matches('`'), text.split("\n## ").next().unwrap_or_default())
            })
            .collect();
        let names = directions().map(|(name, _)| name).chain(["loss"]).chain(INTERVAL);
        let mut names: Vec<&str> = names.collect();
        names.sort_unstable();
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), names);
        for (name, text) in found {
            let direction = match higher_is_better(name) {
                Some(true) => "Higher is better",
                Some(false) => "Lower is better",
                None => "Not watched",
            };
            assert!(text.contains(direction), "{name} does not say: {direction}");
        }
        let resamples = format!("{} resamples", super::super::RESAMPLES);
        assert!(page.contains(&resamples), "the page does not say: {resamples}");
    }

    #[test]
    fn every_name_has_a_direction() {
        let labels = ["a".to_owned(), "b/c".to_owned()];
        for task in [Task::Multilabel, Task::Binary, Task::Multiclass, Task::Regression] {
            for name in metric_names(task, &labels) {
                assert!(higher_is_better(&name).is_some(), "{name}");
                assert_eq!(higher_is_better(&format!("val/h/{name}")), higher_is_better(&name));
            }
        }
    }
}
