//! A metric that is watched, and which way is better.

use super::{HeadPlan, pending};
use crate::config::{Fault, Mode, nearest};

/// A metric that is watched.
#[derive(Debug, Clone, PartialEq)]
pub struct Monitor {
    /// Its name, such as `val/loss` or `val/findings/auroc`; a head computes it.
    pub metric: String,
    /// Which way is better.
    pub mode: Mode,
}

impl Monitor {
    /// The validation loss.
    pub fn loss() -> Self {
        Self { metric: "val/loss".to_owned(), mode: Mode::Min }
    }

    /// Whether more is better.
    pub fn is_higher_better(&self) -> bool {
        self.mode == Mode::Max
    }

    /// Whether `value` is better than `best` by more than `min_delta`.
    pub fn improves(&self, value: f64, best: f64, min_delta: f64) -> bool {
        match self.mode {
            Mode::Min => value < best - min_delta,
            Mode::Max => value > best + min_delta,
        }
    }

    /// Finds `metric`, the value of `key`, among what the heads yield.
    pub(super) fn new(key: &str, metric: &str, heads: &[HeadPlan]) -> Result<Self, Fault> {
        let known = metrics(heads);
        let direction = pending::higher_is_better(metric);
        match direction.filter(|_| known.iter().any(|name| name == metric)) {
            Some(higher) => {
                let mode = if higher { Mode::Max } else { Mode::Min };
                Ok(Self { metric: metric.to_owned(), mode })
            }
            None => Err(Fault::new(key, format!("no head yields the metric {metric:?}"))
                .help(advice(metric, &known))),
        }
    }

    /// Refuses a direction that is not the metric's.
    pub(super) fn agrees_with(&self, mode: Option<Mode>) -> Result<(), Fault> {
        let (wrong, right) = match self.mode {
            Mode::Min => ("max", "min"),
            Mode::Max => ("min", "max"),
        };
        if mode.is_none_or(|mode| mode == self.mode) {
            return Ok(());
        }
        let better = if self.mode == Mode::Min { "less" } else { "more" };
        let message = format!(
            "`mode = \"{wrong}\"` contradicts the metric: of {:?} {better} is better",
            self.metric
        );
        Err(Fault::new("train.early_stopping.mode", message)
            .help(format!("write `mode = \"{right}\"` or leave it out"))
            .also("train.early_stopping.metric"))
    }
}

/// Everything that may be watched.
fn metrics(heads: &[HeadPlan]) -> Vec<String> {
    let mut names = vec!["val/loss".to_owned()];
    for head in heads {
        names.push(format!("val/{}/loss", head.name));
        let metrics = pending::metric_names(head.task, &head.labels);
        names.extend(metrics.iter().map(|metric| format!("val/{}/{metric}", head.name)));
    }
    names
}

fn advice(metric: &str, known: &[String]) -> String {
    let validation = format!("val/{}", metric.strip_prefix("train/").unwrap_or(metric));
    if known.contains(&validation) {
        return format!("did you mean `{validation}`? Only validation metrics are watched");
    }
    let known_names = || known.iter().map(String::as_str);
    if let Some(near) = nearest(metric, known_names()).or(nearest(&validation, known_names())) {
        return format!("did you mean `{near}`?");
    }
    // Names per label would fill the screen.
    let short: Vec<String> = known
        .iter()
        .filter(|name| name.matches('/').count() < 3)
        .map(|name| format!("`{name}`"))
        .collect();
    format!("the metrics are {}, some also per label", short.join(", "))
}
