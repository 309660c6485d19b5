//! What a person is told when a metric that is watched has no value.

use std::collections::BTreeSet;

use crate::plan::{Monitor, TrainPlan};

/// Who watches a metric.
pub(super) type Watcher<'a> = (&'a Monitor, &'static str);

/// Everyone who watches a metric in `train`.
pub(super) fn watchers(train: &TrainPlan) -> Vec<Watcher<'_>> {
    let stopping = train.early_stopping.as_ref().map(|stop| &stop.monitor);
    let all = [
        (stopping, "early stopping"),
        (Some(&train.best), "the choice of the best epoch"),
        (train.plateau.as_ref(), "the learning-rate schedule"),
    ];
    all.into_iter().filter_map(|(monitor, who)| Some((monitor?, who))).collect()
}

/// A warning for each watched metric that is undefined in `epoch`, the first time that it is.
///
/// `is_defined` says whether a metric has a value, `reason` why it has none.
pub(super) fn warnings<'r>(
    watchers: &[Watcher],
    epoch: usize,
    told: &mut BTreeSet<String>,
    is_defined: impl Fn(&str) -> bool,
    reason: impl for<'m> Fn(&'m str) -> Option<&'r str>,
) -> Vec<String> {
    let metrics: BTreeSet<&str> =
        watchers.iter().map(|(monitor, _)| monitor.metric.as_str()).collect();
    let new = metrics.into_iter().filter(|metric| !is_defined(metric));
    let new: Vec<&str> = new.filter(|metric| told.insert((*metric).to_owned())).collect();
    let warning = |metric: &&str| {
        let watching = watchers.iter().filter(|(monitor, _)| monitor.metric == **metric);
        let who = watching.map(|(_, who)| *who).collect::<Vec<_>>().join(", ");
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
        let watchers = [(&auroc, "early stopping"), (&auroc, "`best`"), (&f1, "a"), (&loss, "b")];
        let mut told = BTreeSet::new();
        let mut tell = |epoch, defined: &[&str]| {
            let is_defined = |metric: &str| defined.contains(&metric);
            let reason = |metric: &str| metric.ends_with("auroc").then_some("one class only");
            warnings(&watchers, epoch, &mut told, is_defined, reason).join("\n")
        };
        insta::assert_snapshot!(tell(1, &["val/loss", "val/findings/f1"]));
        assert_eq!(tell(2, &["val/loss", "val/findings/f1"]), "");
        insta::assert_snapshot!(tell(3, &["val/loss"]));
    }
}
