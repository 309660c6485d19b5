//! Several models as one: the mean of what they say.

use super::{Calibration, Fitted, PredictionTable, in_common, part};
use crate::model::Task;

/// The outputs of an ensemble of `members`, each calibrated by what was fitted for it, for the images
/// that all of them have, as [`mean_outputs`] takes them together. Truth and patients are those of the
/// first member.
///
/// `None` where members have other heads, tasks or labels than the first.
pub fn ensemble(members: &[(&PredictionTable, Option<&Fitted>)]) -> Option<PredictionTable> {
    let (first, _) = members.first()?;
    let paths: Vec<&[String]> = members.iter().map(|(table, _)| &table.paths[..]).collect();
    let common = in_common(&paths);
    let mut heads = first.heads.clone();
    for (name, head) in &mut heads {
        let mut outputs = Vec::with_capacity(members.len());
        for ((table, fitted), images) in members.iter().zip(&common) {
            let own = table
                .heads
                .get(name)
                .filter(|own| own.task == head.task && own.labels == head.labels)?;
            let fitted = fitted.and_then(|fitted| fitted.heads.get(name));
            let calibration = fitted.and_then(|fitted| fitted.calibration.as_ref());
            outputs.push((calibration, part(own, images).outputs));
        }
        *head = part(head, &common[0]);
        let outputs: Vec<_> = outputs.iter().map(|(of, outputs)| (*of, &outputs[..])).collect();
        head.outputs = mean_outputs(head.task, &head.labels, &outputs);
    }
    if members.iter().any(|(table, _)| table.heads.len() != heads.len()) {
        return None;
    }
    let names = |all: &[String]| common[0].iter().map(|&image| all[image].clone()).collect();
    Some(PredictionTable { paths: names(&first.paths), patients: names(&first.patients), heads })
}

/// A head's outputs of several members as one: for `regression` the mean of the numbers, else logits of
/// the mean of the calibrated probabilities (Lakshminarayanan, Pritzel and Blundell 2017), so that
/// sigmoid and softmax give that mean. Each of the `members` has its outputs, `[images, labels]` as the
/// result, and what calibrates them.
pub fn mean_outputs(
    task: Task,
    labels: &[String],
    members: &[(Option<&Calibration>, &[f32])],
) -> Vec<f32> {
    let members = members.iter();
    let outputs: Vec<Vec<f64>> =
        members.map(|&(calibration, outputs)| logits(calibration, task, labels, outputs)).collect();
    match task {
        Task::Regression => each(&outputs, |all| all.iter().sum::<f64>() / all.len() as f64),
        Task::Multiclass => mean_of_classes(&outputs, labels.len()),
        Task::Multilabel | Task::Binary => each(&outputs, mean_logit),
    }
}

/// `[images, labels]`: outputs whose sigmoid or softmax are the calibrated probabilities.
fn logits(
    calibration: Option<&Calibration>,
    task: Task,
    labels: &[String],
    outputs: &[f32],
) -> Vec<f64> {
    let outputs = outputs.iter().map(|&output| f64::from(output));
    match calibration {
        _ if task == Task::Regression => outputs.collect(),
        None => outputs.collect(),
        Some(Calibration::Temperature(temperature)) => {
            outputs.map(|output| temperature.apply(output)).collect()
        }
        Some(Calibration::Platt(platt)) => {
            let scaled = outputs.zip(labels.iter().cycle());
            let scaled = scaled.map(|(output, label)| match platt.get(label) {
                Some(platt) => platt.slope * output + platt.intercept,
                None => output,
            });
            scaled.collect()
        }
    }
}

/// What `of` makes of the members' values, value by value.
fn each(members: &[Vec<f64>], of: impl Fn(&[f64]) -> f64) -> Vec<f32> {
    let values = members.first().map_or(0, Vec::len);
    let of_place = |place: usize| {
        let values: Vec<f64> = members.iter().map(|member| member[place]).collect();
        of(&values) as f32
    };
    (0..values).map(of_place).collect()
}

/// The logit of the mean of the sigmoids of `logits`: ln Σ sigmoid(z) − ln Σ sigmoid(−z), which is exact
/// where a sigmoid would round to 1.
fn mean_logit(logits: &[f64]) -> f64 {
    let ln_sigmoid = |z: f64| z.min(0.0) - (-z.abs()).exp().ln_1p();
    let of = |sign: f64| ln_sum_exp(logits.iter().map(|z| ln_sigmoid(sign * z)));
    of(1.0) - of(-1.0)
}

/// `[images, classes]`: the logarithms of the mean of the members' softmaxes.
fn mean_of_classes(members: &[Vec<f64>], classes: usize) -> Vec<f32> {
    let ln_softmax = |logits: &Vec<f64>| -> Vec<f64> {
        let rows = logits.chunks_exact(classes.max(1));
        let row = |row: &[f64]| {
            let all = ln_sum_exp(row.iter().copied());
            row.iter().map(move |logit| logit - all).collect::<Vec<_>>()
        };
        rows.flat_map(row).collect()
    };
    let members: Vec<Vec<f64>> = members.iter().map(ln_softmax).collect();
    let count = (members.len() as f64).ln();
    each(&members, |values| ln_sum_exp(values.iter().copied()) - count)
}

/// ln Σ exp, without leaving the range of numbers.
fn ln_sum_exp(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let greatest = values.clone().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = values.map(|value| (value - greatest).exp()).sum();
    greatest + sum.ln()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::data::Targets;
    use crate::evaluate::{FittedHead, Platt, Temperature};
    use crate::metric::HeadPredictions;

    fn table(task: Task, outputs: &[f32], paths: &[&str]) -> PredictionTable {
        let labels = vec!["a".to_owned(), "b".to_owned()];
        let width = if task == Task::Multiclass { 1 } else { 2 };
        let values = vec![0.0; paths.len() * width];
        let mask = vec![1.0; values.len()];
        let targets = Targets { values, mask, width };
        let head = HeadPredictions { task, labels, outputs: outputs.to_vec(), targets };
        PredictionTable {
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
            patients: paths.iter().map(|path| format!("patient {path}")).collect(),
            heads: BTreeMap::from([("h".to_owned(), head)]),
        }
    }

    fn fitted(calibration: Calibration) -> Fitted {
        let head = FittedHead { calibration: Some(calibration), ..FittedHead::default() };
        Fitted::new(BTreeMap::from([("h".to_owned(), head)]))
    }

    /// What the members' probabilities are, in the order of the first member's images.
    fn means(members: &[(&PredictionTable, Option<&Fitted>)], orders: &[&[usize]]) -> Vec<f64> {
        let values = members.iter().zip(orders).map(|((table, fitted), order)| {
            table.measured(*fitted).part(order).heads["h"].values.clone()
        });
        let values: Vec<Vec<f64>> = values.collect();
        let mean = |place| values.iter().map(|v| v[place]).sum::<f64>() / values.len() as f64;
        (0..values[0].len()).map(mean).collect()
    }

    #[test]
    fn the_probabilities_are_the_mean_of_the_calibrated_ones_of_the_images_in_common() {
        let platt = BTreeMap::from([("b".to_owned(), Platt { slope: 0.7, intercept: 0.2 })]);
        let warm = fitted(Calibration::Temperature(Temperature(2.5)));
        let scaled = fitted(Calibration::Platt(platt));
        for task in [Task::Multilabel, Task::Multiclass, Task::Regression] {
            let one = table(task, &[0.5, -2.0, 3.0, 1.0, 9.0, 9.0], &["x", "y", "z"]);
            let other = table(task, &[40.0, 0.0, -1.0, 0.5], &["y", "x"]);
            let third = table(task, &[0.1, 0.2, 0.3, 0.4], &["x", "y"]);
            let fit = |fitted| (task != Task::Regression).then_some(fitted);
            let platt = (task == Task::Multilabel).then_some(&scaled);
            let members = [(&one, fit(&warm)), (&other, None), (&third, platt)];
            let found = ensemble(&members).expect("the same heads");
            assert_eq!((&found.paths[..], found.images()), (&one.paths[..2], 2));
            assert_eq!(found.patients, one.patients[..2]);
            let expected = means(&members, &[&[0, 1], &[1, 0], &[0, 1]]);
            for (ours, expected) in found.measured(None).heads["h"].values.iter().zip(expected) {
                // The outputs are kept in 32 bits.
                assert!((ours - expected).abs() < 1e-6, "{ours} and {expected}");
            }
        }
    }

    #[test]
    fn a_model_with_itself_is_itself_however_sure_it_is() {
        let sure = table(Task::Multilabel, &[80.0, -80.0, 500.0, 0.25], &["x", "y"]);
        let found = ensemble(&[(&sure, None), (&sure, None)]).expect("the same heads");
        assert_eq!(found, sure);
    }

    #[test]
    fn models_that_predict_other_labels_are_no_ensemble() {
        let one = table(Task::Multilabel, &[1.0, 2.0], &["x"]);
        let mut other = one.clone();
        let head = other.heads.get_mut("h").expect("is there");
        head.labels.swap(0, 1);
        assert!(ensemble(&[(&one, None), (&other, None)]).is_none());
        assert!(ensemble(&[]).is_none());
    }
}
