//! A metric that is watched, and which way is better.

use crate::choice::name_of;
use crate::config::{Mode, TrainConfig};
use crate::fault::{Fault, fault};
use crate::metric::{higher_is_better, metric_names};
use crate::model::HeadConfig;
use crate::optim::ScheduleConfig;

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

    /// Whether `value` is better than `best` by more than `min_delta`.
    pub fn improves(&self, value: f64, best: f64, min_delta: f64) -> bool {
        match self.mode {
            Mode::Min => value < best - min_delta,
            Mode::Max => value > best + min_delta,
        }
    }

    /// Finds `metric`, the value of `key`, among what the heads yield.
    pub(super) fn new(key: &str, metric: &str, heads: &[HeadConfig]) -> Result<Self, Fault> {
        let known = metrics(heads);
        let direction = higher_is_better(metric);
        match direction.filter(|_| known.iter().any(|name| name == metric)) {
            Some(higher) => {
                let mode = if higher { Mode::Max } else { Mode::Min };
                Ok(Self { metric: metric.to_owned(), mode })
            }
            None => {
                let message = format!("no head yields the metric {metric:?}");
                Err(fault(key, message, advice(metric, &known)))
            }
        }
    }

    /// Refuses a direction that is not the metric's.
    pub(super) fn agrees_with(&self, mode: Option<Mode>) -> Result<(), Fault> {
        let Some(wrong) = mode.filter(|mode| *mode != self.mode) else { return Ok(()) };
        let better = if self.mode == Mode::Min { "less" } else { "more" };
        let message = format!(
            "`mode = \"{}\"` contradicts the metric: of {:?} {better} is better",
            name_of(&wrong),
            self.metric
        );
        let help = format!("write `mode = \"{}\"` or leave it out", name_of(&self.mode));
        Err(fault("train.early_stopping.mode", message, help).also("train.early_stopping.metric"))
    }
}

/// The metrics that a training watches.
#[derive(Debug, Clone, PartialEq)]
pub struct Monitors {
    /// That of a `plateau` schedule; none for other schedules.
    pub plateau: Option<Monitor>,
    /// That of early stopping; none where training never ends before its last epoch.
    pub early_stopping: Option<Monitor>,
    /// What `best` is saved by.
    pub best: Monitor,
}

impl Monitors {
    /// Finds those of `train` among what the heads yield, and writes out there what it leaves to default.
    pub(super) fn written_out(
        train: &mut TrainConfig,
        heads: &[HeadConfig],
    ) -> Result<Self, Fault> {
        let plateau = match &train.schedule.0 {
            ScheduleConfig::Plateau(plateau) => {
                Some(Monitor::new("train.schedule.plateau.metric", &plateau.metric, heads)?)
            }
            _ => None,
        };
        let early_stopping = match &mut train.early_stopping {
            Some(stop) => {
                let monitor = Monitor::new("train.early_stopping.metric", &stop.metric, heads)?;
                monitor.agrees_with(stop.mode)?;
                stop.mode = Some(monitor.mode);
                Some(monitor)
            }
            None => None,
        };
        let best = match (&train.best_metric, &early_stopping) {
            (Some(metric), _) => Monitor::new("train.best_metric", metric, heads)?,
            (None, Some(monitor)) => monitor.clone(),
            (None, None) => Monitor::loss(),
        };
        train.best_metric = Some(best.metric.clone());
        Ok(Self { plateau, early_stopping, best })
    }
}

/// Everything that may be watched.
fn metrics(heads: &[HeadConfig]) -> Vec<String> {
    let mut names = vec!["val/loss".to_owned()];
    for head in heads {
        names.push(format!("val/{}/loss", head.name));
        let metrics = metric_names(head.task, &head.labels);
        names.extend(metrics.iter().map(|metric| format!("val/{}/{metric}", head.name)));
    }
    names
}

fn advice(metric: &str, known: &[String]) -> String {
    let validation = format!("val/{}", metric.strip_prefix("train/").unwrap_or(metric));
    if known.contains(&validation) {
        return format!("did you mean `{validation}`? Only validation metrics are watched");
    }
    if let Some(near) = nearest(metric, known).or(nearest(&validation, known)) {
        return format!("did you mean `{near}`?");
    }
    // Names per label would fill the screen.
    let short = known.iter().filter(|name| name.matches('/').count() < 3);
    let head = metric.split('/').nth(1).map(|head| format!("val/{head}/"));
    let own: Vec<_> = match head {
        Some(head) => short.clone().filter(|name| name.starts_with(&head)).collect(),
        None => Vec::new(),
    };
    let names = if own.is_empty() { short.collect() } else { own };
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    format!("there are {}, some also per label", names.join(", "))
}

/// The name that is like `metric` in each of its parts.
fn nearest<'a>(metric: &str, known: &'a [String]) -> Option<&'a String> {
    let part = |given: &str, known: &str| {
        let distance = strsim::damerau_levenshtein(given, known);
        let longest = given.chars().count().max(known.chars().count());
        (known.starts_with(given) && !given.is_empty() || distance <= longest / 2)
            .then_some(distance)
    };
    let distance = |name: &&String| {
        let parts = metric.split('/').count() == name.split('/').count();
        let pairs = metric.split('/').zip(name.split('/'));
        let distances = pairs.map(|(given, known)| part(given, known));
        distances.sum::<Option<usize>>().filter(|_| parts)
    };
    let near = known.iter().filter_map(|name| Some((distance(&name)?, name)));
    near.min_by_key(|(distance, _)| *distance).map(|(_, name)| name)
}
