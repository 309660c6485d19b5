//! What a loss's settings must not say, found before anything is opened.

use super::{AsymmetricConfig, AucMarginConfig, ClassWeights, LossConfig};
use crate::choice::name_of;
use crate::fault::{Fault, fault, require};
use crate::model::Task;

/// Refuses a loss that does not fit the head's task or labels, or is out of range.
///
/// # Errors
///
/// The first [`Fault`] found.
pub fn check(config: &LossConfig, task: Task, labels: &[String]) -> Result<(), Fault> {
    if !fits(config, task) {
        return Err(unfit(config, task));
    }
    match config {
        LossConfig::Bce(bce) => {
            smoothing("bce.label_smoothing", bce.label_smoothing)?;
            one_per("label", "bce.pos_weight", bce.pos_weight.as_ref(), labels)
        }
        LossConfig::CrossEntropy(entropy) => {
            smoothing("cross_entropy.label_smoothing", entropy.label_smoothing)?;
            let weights = entropy.class_weights.as_ref();
            one_per("class", "cross_entropy.class_weights", weights, labels)
        }
        LossConfig::Focal(focal) => {
            not_negative("focal.gamma", focal.gamma)?;
            let holds = focal.alpha <= 1.0 && finite(focal.alpha);
            let help = "a number from 0 to 1, such as 0.25, or -1 to switch it off";
            in_range(holds, "focal.alpha", focal.alpha, help)
        }
        LossConfig::Asymmetric(AsymmetricConfig { gamma_neg, gamma_pos, clip }) => {
            not_negative("asymmetric.gamma_neg", *gamma_neg)?;
            not_negative("asymmetric.gamma_pos", *gamma_pos)?;
            let holds = (0.0..1.0).contains(&(*clip as f32));
            let help = "a number from 0 to below 1, such as 0.05";
            in_range(holds, "asymmetric.clip", *clip, help)
        }
        LossConfig::AucMargin(AucMarginConfig { margin }) => in_range(
            positive(*margin) && *margin <= 1.0,
            "auc_margin.margin",
            *margin,
            "a number above 0 and at most 1, such as 1.0",
        ),
        LossConfig::Huber(huber) => in_range(
            positive(huber.delta),
            "huber.delta",
            huber.delta,
            "a number above 0, such as 1.0",
        ),
        LossConfig::Mse(_) | LossConfig::L1(_) => Ok(()),
    }
}

/// Whether the loss compares what the task's outputs mean.
pub(super) fn fits(config: &LossConfig, task: Task) -> bool {
    match config {
        LossConfig::Bce(_)
        | LossConfig::Focal(_)
        | LossConfig::Asymmetric(_)
        | LossConfig::AucMargin(_) => {
            matches!(task, Task::Multilabel | Task::Binary)
        }
        LossConfig::CrossEntropy(_) => task == Task::Multiclass,
        LossConfig::Mse(_) | LossConfig::L1(_) | LossConfig::Huber(_) => task == Task::Regression,
    }
}

fn unfit(config: &LossConfig, task: Task) -> Fault {
    let fitting = match task {
        Task::Multilabel | Task::Binary => "`bce`, `focal`, `asymmetric` or `auc_margin`",
        Task::Multiclass => "`cross_entropy`",
        Task::Regression => "`mse`, `l1` or `huber`",
    };
    let task = name_of(&task);
    fault(
        config.name(),
        format!("the loss `{}` does not fit a {task} head", config.name()),
        format!("a {task} head takes {fitting}; the first is its default"),
    )
}

fn not_negative(key: &str, value: f64) -> Result<(), Fault> {
    in_range(value >= 0.0 && finite(value), key, value, "a number from 0 up, such as 2.0")
}

fn smoothing(key: &str, value: f64) -> Result<(), Fault> {
    in_range((0.0..1.0).contains(&value), key, value, "a number from 0 to below 1, such as 0.1")
}

fn in_range(holds: bool, key: &str, value: f64, help: &str) -> Result<(), Fault> {
    let message = format!("`{}` is out of range: {value}", last(key));
    require(holds, key, message, format!("write {help}"))
}

/// Whether the 32-bit number that the loss computes with is finite.
fn finite(value: f64) -> bool {
    (value as f32).is_finite()
}

/// Whether the 32-bit number that the loss computes with is finite and above 0.
fn positive(value: f64) -> bool {
    value as f32 > 0.0 && finite(value)
}

fn one_per(
    each: &str,
    key: &str,
    weights: Option<&ClassWeights>,
    labels: &[String],
) -> Result<(), Fault> {
    let Some(ClassWeights::Numbers(numbers)) = weights else {
        return Ok(());
    };
    let unusable = numbers.iter().zip(labels).find(|(number, _)| !positive(**number));
    let message = if numbers.len() != labels.len() {
        let (given, wanted) = (numbers.len(), labels.len());
        format!("`{}` has a length of {given}, but the head's `labels` of {wanted}", last(key))
    } else if let Some((number, label)) = unusable {
        format!("`{}` gives the {each} \"{label}\" the weight {number}", last(key))
    } else {
        return Ok(());
    };
    let order = labels.join(", ");
    let help = format!(
        "write one number above 0 per {each}, in the order of `labels` ({order}), or \"balanced\""
    );
    Err(fault(key, message, help))
}

/// The key without the name of the loss.
fn last(key: &str) -> &str {
    key.rsplit_once('.').map_or(key, |(_, last)| last)
}

#[cfg(test)]
mod tests {
    use super::super::{BceConfig, CrossEntropyConfig, FocalConfig, HuberConfig, WeightRule};
    use super::*;
    use crate::choice::{NoSettings, names_of};

    fn refused(config: LossConfig, task: Task) -> Fault {
        check(&config, task, &labels()).expect_err("is refused")
    }

    fn labels() -> Vec<String> {
        vec!["Edema".to_owned(), "Nodule".to_owned()]
    }

    fn bce(pos_weight: Option<ClassWeights>, label_smoothing: f64) -> LossConfig {
        LossConfig::Bce(BceConfig { pos_weight, label_smoothing })
    }

    #[test]
    fn every_loss_fits_exactly_the_tasks_whose_outputs_it_compares() {
        let tasks = [Task::Multilabel, Task::Binary, Task::Multiclass, Task::Regression];
        let table = [
            (bce(None, 0.0), [true, true, false, false]),
            (LossConfig::Focal(FocalConfig::default()), [true, true, false, false]),
            (LossConfig::Asymmetric(AsymmetricConfig::default()), [true, true, false, false]),
            (LossConfig::AucMargin(AucMarginConfig::default()), [true, true, false, false]),
            (LossConfig::CrossEntropy(CrossEntropyConfig::default()), [false, false, true, false]),
            (LossConfig::Mse(NoSettings {}), [false, false, false, true]),
            (LossConfig::L1(NoSettings {}), [false, false, false, true]),
            (LossConfig::Huber(HuberConfig::default()), [false, false, false, true]),
        ];
        assert_eq!(table.each_ref().map(|(config, _)| config.name()), *names_of::<LossConfig>());
        for (config, fitting) in table {
            for (task, fits) in tasks.into_iter().zip(fitting) {
                assert_eq!(check(&config, task, &labels()).is_ok(), fits, "{config:?}, {task:?}");
                let other = match task {
                    Task::Multiclass | Task::Regression => bce(None, 0.0),
                    Task::Multilabel | Task::Binary => LossConfig::Mse(NoSettings {}),
                };
                let help = refused(other, task).help;
                let named =
                    help.as_deref().unwrap_or_default().contains(&format!("`{}`", config.name()));
                assert_eq!(named, fits, "{task:?}: {help:?}");
            }
        }
    }

    #[test]
    fn the_default_loss_of_every_task_is_accepted() {
        for task in [Task::Multilabel, Task::Binary, Task::Multiclass, Task::Regression] {
            check(&super::super::default_loss(task), task, &labels()).expect("is accepted");
        }
    }

    #[test]
    fn a_loss_of_another_task_is_named_with_those_that_fit() {
        let fault = refused(LossConfig::Mse(NoSettings {}), Task::Multiclass);
        assert_eq!(fault.key, "mse");
        assert_eq!(fault.message, "the loss `mse` does not fit a multiclass head");
        assert!(fault.help.is_some_and(|help| help.contains("`cross_entropy`")));
    }

    #[test]
    fn weights_must_be_one_positive_number_per_label() {
        let numbers = |numbers: &[f64]| Some(ClassWeights::Numbers(numbers.to_vec()));
        let fault = refused(bce(numbers(&[1.0]), 0.0), Task::Multilabel);
        assert_eq!(fault.key, "bce.pos_weight");
        assert_eq!(fault.message, "`pos_weight` has a length of 1, but the head's `labels` of 2");
        assert!(fault.help.is_some_and(|help| help.contains("(Edema, Nodule)")));
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e39, 1e-50] {
            let fault = refused(bce(numbers(&[1.0, wrong]), 0.0), Task::Multilabel);
            assert!(fault.message.contains("\"Nodule\""), "{}", fault.message);
        }
        let weights =
            CrossEntropyConfig { class_weights: numbers(&[0.0, 1.0]), ..Default::default() };
        let fault = refused(LossConfig::CrossEntropy(weights), Task::Multiclass);
        assert_eq!(fault.key, "cross_entropy.class_weights");
        for right in [numbers(&[0.5, 2.0]), Some(ClassWeights::Rule(WeightRule::Balanced)), None] {
            check(&bce(right, 0.0), Task::Multilabel, &labels()).expect("is accepted");
        }
    }

    #[test]
    fn numbers_out_of_range_are_refused_at_their_key() {
        let focal = |gamma, alpha| LossConfig::Focal(FocalConfig { gamma, alpha });
        let huber = |delta| LossConfig::Huber(HuberConfig { delta });
        let entropy = |label_smoothing| {
            LossConfig::CrossEntropy(CrossEntropyConfig { class_weights: None, label_smoothing })
        };
        for wrong in [-0.1, 1.0, f64::NAN] {
            let fault = refused(bce(None, wrong), Task::Binary);
            assert_eq!(fault.key, "bce.label_smoothing");
            let fault = refused(entropy(wrong), Task::Multiclass);
            assert_eq!(fault.key, "cross_entropy.label_smoothing");
        }
        for wrong in [-1.0, f64::INFINITY, f64::NAN] {
            assert_eq!(refused(focal(wrong, 0.5), Task::Binary).key, "focal.gamma");
            assert_eq!(refused(huber(wrong), Task::Regression).key, "huber.delta");
        }
        let asymmetric = |gamma_neg, gamma_pos, clip| {
            LossConfig::Asymmetric(AsymmetricConfig { gamma_neg, gamma_pos, clip })
        };
        for wrong in [-0.5, f64::INFINITY, f64::NAN] {
            for (config, key) in [
                (asymmetric(wrong, 1.0, 0.05), "asymmetric.gamma_neg"),
                (asymmetric(4.0, wrong, 0.05), "asymmetric.gamma_pos"),
                (asymmetric(4.0, 1.0, wrong), "asymmetric.clip"),
            ] {
                assert_eq!(refused(config, Task::Binary).key, key);
            }
        }
        assert_eq!(refused(asymmetric(4.0, 1.0, 1.0), Task::Binary).key, "asymmetric.clip");
        for wrong in [0.0, -0.5, 1.5, f64::NAN] {
            let margin = LossConfig::AucMargin(AucMarginConfig { margin: wrong });
            assert_eq!(refused(margin, Task::Binary).key, "auc_margin.margin");
        }
        for wrong in [1.5, f64::NEG_INFINITY, f64::NAN] {
            assert_eq!(refused(focal(2.0, wrong), Task::Binary).key, "focal.alpha");
        }
        assert_eq!(refused(huber(0.0), Task::Regression).key, "huber.delta");
        for right in [
            focal(0.0, -1.0),
            focal(0.0, 1.0),
            bce(None, 0.999),
            asymmetric(0.0, 0.0, 0.0),
            asymmetric(0.5, 3.0, 0.9),
        ] {
            check(&right, Task::Binary, &labels()).expect("is accepted");
        }
    }
}
