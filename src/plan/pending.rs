//! What the families will say about themselves, until they do: stand-ins for `loss::check`,
//! `loss::default_loss`, `metric::metric_names`, `metric::higher_is_better`, the checks of `optim`
//! and `data::check_labels`. To be replaced by them.

use crate::choice::NoSettings;
use crate::data::DataConfig;
use crate::loss::{BceConfig, ClassWeights, CrossEntropyConfig, LossConfig};
use crate::model::{HeadConfig, Task};
use crate::optim::OptimizerConfig;

/// A fault below a table: key, message, help.
pub(super) struct Fault {
    pub(super) key: String,
    pub(super) message: String,
    pub(super) help: String,
}

pub(super) fn default_loss(task: Task) -> LossConfig {
    match task {
        Task::Multilabel | Task::Binary => LossConfig::Bce(BceConfig::default()),
        Task::Multiclass => LossConfig::CrossEntropy(CrossEntropyConfig::default()),
        Task::Regression => LossConfig::Mse(NoSettings {}),
    }
}

pub(super) fn metric_names(task: Task, labels: &[String]) -> Vec<String> {
    let metrics: &[&str] = match task {
        Task::Regression => &["mae", "rmse"],
        Task::Multilabel | Task::Binary | Task::Multiclass => &["auroc", "auprc", "accuracy", "f1"],
    };
    let per_label = labels
        .iter()
        .flat_map(|label| metrics.iter().map(move |metric| format!("{metric}/{label}")));
    metrics.iter().map(|metric| (*metric).to_owned()).chain(per_label).collect()
}

pub(super) fn higher_is_better(metric_name: &str) -> Option<bool> {
    let path = metric_name.strip_prefix("val/")?;
    let metric = path.split('/').nth(1).unwrap_or(path);
    match metric {
        "loss" | "mae" | "rmse" => Some(false),
        "auroc" | "auprc" | "accuracy" | "f1" => Some(true),
        _ => None,
    }
}

/// Keys are below `heads[…].loss`.
pub(super) fn check_loss(loss: &LossConfig, task: Task, labels: &[String]) -> Result<(), Fault> {
    let (name, fits, weights) = match loss {
        LossConfig::Bce(bce) => ("bce", binary(task), Some(("pos_weight", &bce.pos_weight))),
        LossConfig::Focal(_) => ("focal", binary(task), None),
        LossConfig::CrossEntropy(entropy) => {
            let weights = Some(("class_weights", &entropy.class_weights));
            ("cross_entropy", task == Task::Multiclass, weights)
        }
        LossConfig::Mse(_) => ("mse", task == Task::Regression, None),
        LossConfig::L1(_) => ("l1", task == Task::Regression, None),
        LossConfig::Huber(_) => ("huber", task == Task::Regression, None),
    };
    if !fits {
        let fitting = match task {
            Task::Multilabel | Task::Binary => "`bce` or `focal`",
            Task::Multiclass => "`cross_entropy`",
            Task::Regression => "`mse`, `l1` or `huber`",
        };
        let task = format!("{task:?}").to_lowercase();
        return Err(Fault {
            key: name.to_owned(),
            message: format!("the loss `{name}` does not fit a {task} head"),
            help: format!("a {task} head takes {fitting}"),
        });
    }
    let Some((key, Some(ClassWeights::Numbers(numbers)))) = weights else { return Ok(()) };
    if numbers.len() == labels.len() {
        return Ok(());
    }
    let (given, wanted) = (numbers.len(), labels.len());
    Err(Fault {
        key: format!("{name}.{key}"),
        message: format!("`{key}` has {given} numbers, but the head has {wanted} labels"),
        help: "write one number per label, in the order of `labels`, or \"balanced\"".to_owned(),
    })
}

fn binary(task: Task) -> bool {
    matches!(task, Task::Multilabel | Task::Binary)
}

/// Keys are below `train.optimizer`.
pub(super) fn check_optimizer(optimizer: &OptimizerConfig) -> Result<(), Fault> {
    let (name, lr) = match optimizer {
        OptimizerConfig::Sgd(sgd) => ("sgd", sgd.lr),
        OptimizerConfig::Adam(adam) => ("adam", adam.lr),
        OptimizerConfig::AdamW(adamw) => ("adamw", adamw.lr),
        OptimizerConfig::Rmsprop(rmsprop) => ("rmsprop", rmsprop.lr),
        OptimizerConfig::Adagrad(adagrad) => ("adagrad", adagrad.lr),
        OptimizerConfig::Lion(lion) => ("lion", lion.lr),
    };
    if lr > 0.0 {
        return Ok(());
    }
    Err(Fault {
        key: format!("{name}.lr"),
        message: format!("`lr` is {lr}, so nothing would be learnt"),
        help: "write a number above 0, such as 1e-3".to_owned(),
    })
}

/// The layout knows its labels; it will refuse the ones it lacks.
pub(super) fn check_labels(_data: &DataConfig, _heads: &[HeadConfig]) -> Result<(), Fault> {
    Ok(())
}
