//! What a person is told when a metric that is monitored has no value.

use std::collections::{BTreeMap, BTreeSet};

use crate::data::{Dataset, Targets};
use crate::metric::HeadPredictions;
use crate::model::{HeadConfig, Task};
use crate::plan::{Monitor, Monitors};

/// A metric that is monitored, what for, and what is not without its value.
pub(super) type Monitored<'a> = (&'a Monitor, &'static str, &'static str);

/// Every metric that is monitored.
pub(super) fn monitors(of: &Monitors) -> Vec<Monitored<'_>> {
    let all = [
        (of.early_stopping.as_ref(), "early stopping", "training is not stopped early"),
        (Some(&of.best), "the choice of the best epoch", "no epoch is saved as `best`"),
        (of.plateau.as_ref(), "the learning-rate schedule", "the learning rate stays as it is"),
    ];
    all.into_iter().filter_map(|(monitor, who, without)| Some((monitor?, who, without))).collect()
}

/// A warning for each monitored metric that cannot have a value in any epoch, since the validation
/// images lack the labels for it: the metric, and what is said.
pub fn undefined_for_good(
    monitors: &Monitors,
    heads: &[HeadConfig],
    validation: &Dataset,
) -> BTreeMap<String, String> {
    let monitors = self::monitors(monitors);
    let all: Vec<usize> = (0..validation.len()).collect();
    let targets = validation.targets(&all);
    let mut found = BTreeMap::new();
    for (monitor, ..) in &monitors {
        let metric = &monitor.metric;
        let Some(reason) = never_defined(metric, heads, &targets) else { continue };
        let uses = monitors.iter().filter(|(monitor, ..)| monitor.metric == *metric);
        let without: Vec<&str> = uses.map(|(.., without)| *without).collect();
        let instead = if metric == "val/loss" { "" } else { "watch `val/loss`, or " };
        let message = format!(
            "{metric} is undefined in every epoch ({reason} among the validation images), so {}: \
             {instead}validate on other images (where a share of the patients is set aside, with \
             another `run.seed` or a larger `validation.fraction`)",
            and(&without)
        );
        found.insert(metric.clone(), message);
    }
    found
}

/// Why a validation metric has no value, whatever the model says.
fn never_defined(metric: &str, heads: &[HeadConfig], targets: &[Targets]) -> Option<String> {
    let path = metric.strip_prefix("val/")?;
    let known = |targets: &Targets| targets.mask.iter().any(|mask| *mask != 0.0);
    let unknown = || Some("no known label".to_owned());
    if path == "loss" {
        return if targets.iter().any(known) { None } else { unknown() };
    }
    let of =
        |head: &HeadConfig| path.strip_prefix(&head.name)?.strip_prefix('/').map(str::to_owned);
    let (head, targets, metric) =
        heads.iter().zip(targets).find_map(|(head, targets)| Some((head, targets, of(head)?)))?;
    if !known(targets) {
        return unknown();
    }
    // Losses and errors need a known label and no more.
    if metric == "loss" || head.task == Task::Regression && !metric.contains('/') {
        return None;
    }
    let mut predictions = HeadPredictions::new(head);
    let images = targets.mask.len() / targets.width.max(1);
    predictions.extend(&vec![0.0; images * head.labels.len()], targets);
    predictions.reasons(&predictions.metrics()).remove(&metric)
}

/// `a`, `a and b`, `a, b and c`.
fn and(words: &[&str]) -> String {
    match words.split_last() {
        Some((last, before)) if !before.is_empty() => format!("{} and {last}", before.join(", ")),
        _ => words.concat(),
    }
}

/// A warning for each monitored metric that is undefined in `epoch`, the first time that it is.
///
/// `is_defined` says whether a metric has a value, `reason` why it has none.
pub(super) fn warnings<'r>(
    monitors: &[Monitored],
    epoch: usize,
    told: &mut BTreeSet<String>,
    is_defined: impl Fn(&str) -> bool,
    reason: impl for<'m> Fn(&'m str) -> Option<&'r str>,
) -> Vec<String> {
    let metrics: BTreeSet<&str> =
        monitors.iter().map(|(monitor, ..)| monitor.metric.as_str()).collect();
    let new = metrics.into_iter().filter(|metric| !is_defined(metric));
    let new: Vec<&str> = new.filter(|metric| told.insert((*metric).to_owned())).collect();
    let warning = |metric: &&str| {
        let uses = monitors.iter().filter(|(monitor, ..)| monitor.metric == **metric);
        let who = and(&uses.map(|(_, who, _)| *who).collect::<Vec<_>>());
        let reason = reason(metric).unwrap_or("no known label");
        format!(
            "{metric} is undefined in epoch {epoch} ({reason}); epochs in which it is undefined are \
             passed over by {who}"
        )
    };
    new.iter().map(warning).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Mode;

    #[test]
    fn each_metric_is_warned_of_once_with_the_reason_and_those_who_watch_it() {
        let monitor = |metric: &str| Monitor { metric: metric.to_owned(), mode: Mode::Max };
        let (auroc, f1) = (monitor("val/findings/auroc"), monitor("val/findings/f1"));
        let loss = monitor("val/loss");
        let monitors = [
            (&auroc, "early stopping", "x"),
            (&auroc, "`best`", "y"),
            (&f1, "a", "z"),
            (&loss, "b", ""),
        ];
        let mut told = BTreeSet::new();
        let mut tell = |epoch, defined: &[&str]| {
            let is_defined = |metric: &str| defined.contains(&metric);
            let reason = |metric: &str| metric.ends_with("auroc").then_some("one class only");
            warnings(&monitors, epoch, &mut told, is_defined, reason).join("\n")
        };
        insta::assert_snapshot!(tell(1, &["val/loss", "val/findings/f1"]));
        assert_eq!(tell(2, &["val/loss", "val/findings/f1"]), "");
        insta::assert_snapshot!(tell(3, &["val/loss"]));
    }
}
