//! A head's metrics against scikit-learn, and what must hold of them.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::data::Targets;
use crate::model::{HeadConfig, Task};

#[derive(serde::Deserialize)]
struct Fixture {
    cases: Vec<Case>,
}

/// A head's predictions, and what scikit-learn makes of them (tests/fixtures/metrics.py).
#[derive(serde::Deserialize)]
struct Case {
    name: String,
    task: Task,
    labels: Vec<String>,
    outputs: Vec<f32>,
    targets: Vec<f32>,
    mask: Vec<f32>,
    metrics: BTreeMap<String, Option<f64>>,
}

fn cases() -> Vec<Case> {
    let text = include_str!("../../tests/fixtures/metrics.json");
    serde_json::from_str::<Fixture>(text).expect("the fixture reads").cases
}

fn case(name: &str) -> Case {
    cases().into_iter().find(|case| case.name == name).expect("the fixture has the case")
}

fn head(task: Task, labels: &[String]) -> HeadConfig {
    HeadConfig {
        name: "head".to_owned(),
        task,
        labels: labels.to_vec(),
        weight: 1.0,
        hidden: vec![],
        dropout: 0.0,
        direct: false,
        standardize: false,
        loss: None,
    }
}

impl Case {
    /// The case as a loader and a model hand it over, in batches of up to `size` images.
    fn predictions(&self, size: usize) -> HeadPredictions {
        let mut predictions = HeadPredictions::new(&head(self.task, &self.labels));
        let (outputs, width) = (self.labels.len(), predictions.targets.width);
        let images = self.mask.len() / width;
        for first in (0..images).step_by(size) {
            let end = (first + size).min(images);
            let labels = first * width..end * width;
            let targets = Targets {
                values: self.targets[labels.clone()].to_vec(),
                mask: self.mask[labels].to_vec(),
                width,
            };
            predictions.extend(&self.outputs[first * outputs..end * outputs], &targets);
        }
        assert_eq!(predictions.images(), images);
        predictions
    }
}

#[test]
fn metrics_are_those_of_scikit_learn() {
    let cases = cases();
    assert_eq!(cases.len(), 7);
    for case in cases {
        let ours = case.predictions(7).metrics();
        assert!(ours.keys().eq(case.metrics.keys()), "{}: {:?}", case.name, ours.keys());
        for (name, theirs) in &case.metrics {
            let close = match (ours[name], theirs) {
                (Some(ours), Some(theirs)) => (ours - theirs).abs() < 1e-9,
                (ours, theirs) => ours == *theirs,
            };
            assert!(close, "{}, {name}: {:?} for {theirs:?}", case.name, ours[name]);
        }
    }
}

#[test]
fn metrics_have_the_names_announced_and_no_others() {
    for case in cases() {
        let mut announced = metric_names(case.task, &case.labels);
        announced.sort_unstable();
        let yielded: Vec<String> = case.predictions(100).metrics().into_keys().collect();
        assert_eq!(announced, yielded, "{}", case.name);
        let nothing = HeadPredictions::new(&head(case.task, &case.labels)).metrics();
        assert!(nothing.keys().eq(yielded.iter()), "{}", case.name);
        assert!(nothing.values().all(Option::is_none), "{}: {nothing:?}", case.name);
    }
}

#[test]
fn an_output_that_is_no_number_undoes_its_label_and_the_head_but_no_other_label() {
    let case = case("multilabel");
    let whole = case.predictions(100).metrics();
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut predictions = case.predictions(100);
        let known = (0..predictions.images()).find(|image| case.mask[image * 5] == 1.0);
        predictions.outputs[known.expect("a known label") * 5] = bad;
        for (name, value) in predictions.metrics() {
            let of_other = name.contains('/') && !name.ends_with("/Edema");
            assert_eq!(value, whole[&name].filter(|_| of_other), "{name}");
        }
        let intervals = predictions.intervals(1, 20, None);
        assert_eq!(intervals["auroc"], None);
        assert_eq!(intervals["auroc/Edema"], None);
        assert!(intervals["auroc/Nodule"].is_some());
    }
}

#[test]
fn an_output_that_is_no_number_undoes_all_classes_and_every_mean_error() {
    for case in [case("multiclass"), case("regression of 3")] {
        let mut predictions = case.predictions(100);
        predictions.outputs.fill(f32::NAN);
        let metrics = predictions.metrics();
        assert!(metrics.values().all(Option::is_none), "{}: {metrics:?}", case.name);
    }
}

#[test]
fn what_stands_at_a_missing_label_is_never_read() {
    for case in cases() {
        let mut predictions = case.predictions(100);
        let whole = predictions.metrics();
        let outputs = case.labels.len() / predictions.targets.width;
        for place in (0..case.mask.len()).filter(|&place| case.mask[place] == 0.0) {
            predictions.outputs[place * outputs..(place + 1) * outputs].fill(f32::NAN);
            predictions.targets.values[place] = f32::NAN;
        }
        assert_eq!(predictions.metrics(), whole, "{}", case.name);
    }
}

#[test]
fn every_undefined_metric_has_its_reason_and_no_other() {
    for case in cases() {
        let nothing = HeadPredictions::new(&head(case.task, &case.labels));
        for predictions in [case.predictions(100), nothing] {
            let metrics = predictions.metrics();
            let undefined = metrics.iter().filter(|(_, value)| value.is_none());
            let undefined: Vec<&String> = undefined.map(|(name, _)| name).collect();
            let reasons = predictions.reasons(&metrics);
            assert_eq!(reasons.keys().collect::<Vec<_>>(), undefined, "{}", case.name);
            let none = "no known label";
            let empty = predictions.images() == 0;
            assert!(!empty || reasons.values().all(|reason| reason == none), "{reasons:?}");
        }
    }
}

/// Four images of which the labels are: all negative, known nowhere, all positive, and both.
fn four_labels() -> HeadPredictions {
    let labels = ["negative", "unknown", "positive", "both/and"].map(str::to_owned).to_vec();
    let (yes, no) = (1.0, 0.0);
    HeadPredictions {
        task: Task::Multilabel,
        outputs: (0..16).map(|place| place as f32 - 8.0).collect(),
        targets: Targets {
            values: [[no, no, yes, yes], [no, no, yes, no], [no, no, yes, no], [no, no, yes, yes]]
                .concat(),
            mask: [yes, no, yes, yes].repeat(4),
            width: 4,
        },
        labels,
    }
}

#[test]
fn the_reason_says_what_the_labels_lack() {
    let reasons = |predictions: &HeadPredictions| {
        let reasons = predictions.reasons(&predictions.metrics());
        let lines = reasons.iter().map(|(name, reason)| format!("{name}: {reason}"));
        lines.collect::<Vec<_>>().join("\n")
    };
    let mut predictions = four_labels();
    insta::assert_snapshot!(reasons(&predictions), @r"
    accuracy/unknown: no known label
    auprc/negative: one class only: 0 positives of 4
    auprc/positive: one class only: 4 positives of 4
    auprc/unknown: no known label
    auroc/negative: one class only: 0 positives of 4
    auroc/positive: one class only: 4 positives of 4
    auroc/unknown: no known label
    f1/negative: one class only: 0 positives of 4
    f1/unknown: no known label
    ");
    predictions.outputs[3] = f32::NAN;
    insta::assert_snapshot!(reasons(&predictions), @r"
    accuracy: an output is NaN or infinite
    accuracy/both/and: an output is NaN or infinite
    accuracy/unknown: no known label
    auprc: an output is NaN or infinite
    auprc/both/and: an output is NaN or infinite
    auprc/negative: one class only: 0 positives of 4
    auprc/positive: one class only: 4 positives of 4
    auprc/unknown: no known label
    auroc: an output is NaN or infinite
    auroc/both/and: an output is NaN or infinite
    auroc/negative: one class only: 0 positives of 4
    auroc/positive: one class only: 4 positives of 4
    auroc/unknown: no known label
    f1: an output is NaN or infinite
    f1/both/and: an output is NaN or infinite
    f1/negative: one class only: 0 positives of 4
    f1/unknown: no known label
    ");
}

#[test]
fn confident_images_keep_their_order() {
    // In 64-bit, softmax gives the first class exactly 1 in all three images.
    let predictions = HeadPredictions {
        task: Task::Multiclass,
        labels: vec!["a".to_owned(), "b".to_owned()],
        outputs: vec![60.0, 0.0, 50.0, 0.0, 40.0, 0.0],
        targets: Targets { values: vec![0.0, 1.0, 1.0], mask: vec![1.0; 3], width: 1 },
    };
    assert_eq!(predictions.metrics()["auroc/a"], Some(1.0));
    assert_eq!(predictions.metrics()["auroc/b"], Some(1.0));
}

#[test]
fn intervals_are_given_for_auroc_and_hold_it() {
    for case in cases() {
        let predictions = case.predictions(100);
        let (metrics, intervals) = (predictions.metrics(), predictions.intervals(3, 300, None));
        let of_auroc = |name: &&String| name.starts_with("auroc");
        assert!(intervals.keys().eq(metrics.keys().filter(of_auroc)), "{}", case.name);
        assert_eq!(predictions.intervals(3, 300, None), intervals);
        for (name, interval) in intervals {
            match (metrics[&name], interval) {
                (Some(value), Some(Interval { low, high })) => {
                    assert!(low < value && value < high, "{}, {name}", case.name);
                }
                // All outputs are the same, or every positive is above every negative.
                (Some(value), None) => assert!(value == 0.5 || value == 1.0, "{name}: {value}"),
                (None, interval) => assert_eq!(interval, None, "{name}"),
            }
        }
    }
}

proptest! {
    /// Turning a binary problem round: what ranks positives above negatives ranks it the other way.
    #[test]
    fn a_softmax_of_two_is_a_sigmoid_seen_from_both_sides(
        logits in prop::collection::vec(-6..7_i8, 1..30), seed: u64,
    ) {
        let truth = |image: usize| f32::from((seed >> (image % 64)) as u8 & 1);
        let images = logits.len();
        let targets = Targets {
            values: (0..images).map(truth).collect(),
            mask: vec![1.0; images],
            width: 1,
        };
        let logits: Vec<f32> = logits.into_iter().map(f32::from).collect();
        let two = HeadPredictions {
            task: Task::Multiclass,
            labels: vec!["no".to_owned(), "yes".to_owned()],
            outputs: logits.iter().flat_map(|&logit| [1.0, 1.0 + logit]).collect(),
            targets: targets.clone(),
        };
        let one = HeadPredictions {
            task: Task::Binary,
            labels: vec!["yes".to_owned()],
            outputs: logits,
            targets,
        };
        let (one, two) = (one.metrics(), two.metrics());
        prop_assert_eq!(one["auroc"], two["auroc/yes"]);
        prop_assert_eq!(one["auroc"], two["auroc/no"]);
        prop_assert_eq!(one["auprc"], two["auprc/yes"]);
    }
}
