//! What the metrics are called, and which way is better.

use crate::model::Task;

/// The metrics of a decision per label or class.
pub(super) const CLASSIFICATION: [&str; 4] = ["auroc", "auprc", "accuracy", "f1"];
/// The metrics of a number per label.
pub(super) const REGRESSION: [&str; 2] = ["mae", "rmse"];

/// The ends of the interval of `auroc`: values beside the metrics, which cannot be watched.
pub const INTERVAL: [&str; 2] = ["auroc_low", "auroc_high"];

/// Numbers of a head beyond which nobody reads the error of each.
const MOST_NUMBERS: usize = 100;

/// What [`super::HeadPredictions::metrics`] yields for a head: its metrics, and `<metric>/<label>`
/// for each label or class where there are several (for `multiclass` all but `accuracy`; for
/// `regression` up to 100).
pub fn metric_names(task: Task, labels: &[String]) -> Vec<String> {
    let metrics: &[&str] = match task {
        Task::Regression => &REGRESSION,
        Task::Multilabel | Task::Binary | Task::Multiclass => &CLASSIFICATION,
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
    match metric {
        "loss" | "mae" | "rmse" => Some(false),
        _ => CLASSIFICATION.contains(&metric).then_some(true),
    }
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
        let names = ["loss"].into_iter().chain(CLASSIFICATION).chain(REGRESSION).chain(INTERVAL);
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
