//! All losses against PyTorch, and what must hold of each of them.

use burn::tensor::{DType, Device, FloatDType, TensorData};
use proptest::prelude::*;

use super::*;
use crate::choice::names_of;
use crate::optim::{OptimizerConfig, SgdConfig};

#[derive(serde::Deserialize)]
struct Fixture {
    cases: Vec<Case>,
    saddle: Vec<Course>,
}

/// One batch of a head, and what PyTorch makes of it (tests/fixtures/losses.py).
#[derive(serde::Deserialize)]
struct Case {
    name: String,
    task: Task,
    loss: LossConfig,
    /// `[images, outputs]`.
    shape: [usize; 2],
    outputs: Vec<f32>,
    targets: Vec<f32>,
    mask: Vec<f32>,
    sum: f64,
    normalizer: f64,
    /// Of the sum divided by the normalizer.
    gradient: Vec<f64>,
    /// The share of positives of each label, where the loss asks for it.
    #[serde(default)]
    share: Vec<f64>,
    /// What the loss has learned, where it learns.
    #[serde(default)]
    variables: Option<AucVariables>,
    /// The gradient with respect to what it learns, of the sum divided by the normalizer.
    #[serde(default)]
    centres: Vec<f64>,
}

/// Steps of LibAUC's optimizer with logits as weights.
#[derive(serde::Deserialize)]
struct Course {
    margin: f64,
    share: Vec<f64>,
    lr: f64,
    /// Plain descent where it is left out: PESG without decays, momentum and clipping.
    optimizer: Option<OptimizerConfig>,
    start: Vec<f32>,
    targets: Vec<f32>,
    /// The first, the second and the twelfth.
    steps: Vec<CourseStep>,
}

#[derive(serde::Deserialize)]
struct CourseStep {
    loss: f64,
    logits: Vec<f64>,
    a: Vec<f64>,
    b: Vec<f64>,
    alpha: Vec<f64>,
}

fn fixture() -> Fixture {
    let text = include_str!("../../tests/fixtures/losses.json");
    serde_json::from_str(text).expect("the fixture reads")
}

fn cases() -> Vec<Case> {
    fixture().cases
}

/// A training set with these shares of positives.
fn counts(share: &[f64]) -> LabelCounts {
    let negatives = share.iter().map(|share| 1.0 - share).collect();
    LabelCounts { positives: share.to_vec(), negatives }
}

impl Case {
    fn init(&self) -> Box<dyn Loss> {
        let mut loss = self.loss.init(self.task, self.shape[1], &counts(&self.share));
        if let (Some(learning), Some(variables)) = (loss.auc_margin_mut(), &self.variables) {
            assert!(learning.set_variables(variables.clone()), "{}", self.name);
        }
        loss
    }

    fn width(&self) -> usize {
        self.targets.len() / self.shape[0]
    }

    fn targets(&self) -> Targets {
        let (values, mask) = (self.targets.clone(), self.mask.clone());
        Targets { values, mask, width: self.width() }
    }

    /// The case's images from `first` up to `end`.
    fn images(&self, first: usize, end: usize) -> Case {
        let rows = |values: &[f32]| {
            let width = values.len() / self.shape[0];
            values[first * width..end * width].to_vec()
        };
        Case {
            name: self.name.clone(),
            loss: self.loss.clone(),
            shape: [end - first, self.shape[1]],
            outputs: rows(&self.outputs),
            targets: rows(&self.targets),
            mask: rows(&self.mask),
            gradient: vec![],
            share: self.share.clone(),
            variables: self.variables.clone(),
            centres: vec![],
            ..*self
        }
    }

    /// Outputs, targets and mask, `[images, width]` each.
    fn tensors(&self) -> [Tensor<2>; 3] {
        [&self.outputs, &self.targets, &self.mask].map(|values| {
            let shape = [self.shape[0], values.len() / self.shape[0]];
            let data = TensorData::new(values.clone(), shape);
            Tensor::from_data(data, (&Device::flex(), DType::F32))
        })
    }

    /// The sum over known labels, and the gradient of the sum divided by `normalizer`.
    fn run(&self, normalizer: f64) -> (f32, Vec<f32>) {
        let (sum, gradient) = self.run_in(normalizer, FloatDType::F32);
        (sum, gradient.try_to_vec().expect("32-bit gradients"))
    }

    fn run_in(&self, normalizer: f64, dtype: FloatDType) -> (f32, TensorData) {
        let [outputs, targets, mask] = self.tensors();
        let factor = 1.0 / normalizer;
        let (sum, gradient) =
            self.init().sum_and_gradient(outputs.cast(dtype), targets, mask, factor);
        assert_eq!(sum.dtype(), DType::F32);
        (sum.into_scalar(), gradient.into_data())
    }
}

fn assert_close(ours: f32, theirs: f64, what: &str) {
    let allowed = 1e-6 + 1e-5 * theirs.abs();
    assert!((f64::from(ours) - theirs).abs() <= allowed, "{what}: {ours} for {theirs}");
}

#[test]
fn every_loss_has_cases_from_its_oracle() {
    let cases = cases();
    for name in names_of::<LossConfig>() {
        assert!(
            cases.iter().any(|case| case.loss.name() == name),
            "tests/fixtures/losses.py has no `{name}`"
        );
    }
}

#[test]
fn values_normalizers_and_gradients_are_those_of_pytorch() {
    for case in cases() {
        let normalizer = case.init().normalizer(&case.targets());
        assert!((normalizer - case.normalizer).abs() < 1e-12 * normalizer, "{}", case.name);
        let (sum, gradient) = case.run(normalizer);
        assert_close(sum, case.sum, &case.name);
        assert_eq!(gradient.len(), case.gradient.len());
        for (index, (&ours, &theirs)) in gradient.iter().zip(&case.gradient).enumerate() {
            assert_close(ours, theirs, &format!("{}, gradient {index}", case.name));
        }
    }
}

#[test]
fn micro_batches_add_up_to_the_gradient_of_the_batch() {
    for case in cases() {
        let loss = case.init();
        let whole = loss.normalizer(&case.targets());
        let (_, expected) = case.run(whole);
        for size in 1..case.shape[0] {
            let mut gradient = Vec::new();
            let mut normalizer = 0.0;
            for first in (0..case.shape[0]).step_by(size) {
                let micro = case.images(first, (first + size).min(case.shape[0]));
                normalizer += loss.normalizer(&micro.targets());
                gradient.extend(micro.run(whole).1);
            }
            assert!((normalizer - whole).abs() < 1e-12 * whole, "{}", case.name);
            assert_eq!(gradient, expected, "{}, {size} images a micro-batch", case.name);
        }
    }
}

#[test]
fn missing_labels_add_exactly_nothing_whatever_stands_there() {
    for case in cases() {
        let (sum, gradient) = case.run(1.0);
        let columns = case.shape[1] / case.width();
        for anything in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30, -3.0] {
            let mut changed = case.images(0, case.shape[0]);
            for (label, _) in case.mask.iter().enumerate().filter(|(_, known)| **known == 0.0) {
                changed.targets[label] = anything;
                changed.outputs[label * columns..(label + 1) * columns].fill(anything);
            }
            let (changed_sum, changed_gradient) = changed.run(1.0);
            assert_eq!(changed_sum, sum, "{}", case.name);
            assert_eq!(changed_gradient, gradient, "{}", case.name);
        }
        for (output, gradient) in gradient.iter().enumerate() {
            if case.mask[output / columns] == 0.0 {
                assert_eq!(*gradient, 0.0, "{}", case.name);
            }
        }
    }
}

#[test]
fn a_batch_without_labels_costs_nothing_and_changes_nothing() {
    for mut case in cases() {
        case.mask.fill(0.0);
        case.targets.fill(0.0);
        assert_eq!(case.init().normalizer(&case.targets()), 0.0);
        let (sum, gradient) = case.run(1.0);
        assert_eq!(sum, 0.0, "{}", case.name);
        assert!(gradient.iter().all(|&gradient| gradient == 0.0), "{}", case.name);
    }
}

#[test]
fn half_precision_outputs_are_summed_in_32_bit() {
    for (dtype, name) in [(FloatDType::F16, DType::F16), (FloatDType::BF16, DType::BF16)] {
        for mut case in cases() {
            case.outputs.iter_mut().for_each(|output| *output = output.round());
            let (expected, in_32_bit) = case.run(1.0);
            // Whole numbers up to 1e4 are exact in f16, and up to 256 in bf16.
            if name == DType::BF16 && case.outputs.iter().any(|output| output.abs() > 256.0) {
                continue;
            }
            let (sum, gradient) = case.run_in(1.0, dtype);
            assert_eq!(sum, expected, "{}", case.name);
            assert_eq!(gradient.dtype(), name, "the gradient is of the type of the outputs");
            for (half, full) in gradient.iter::<f32>().zip(in_32_bit) {
                assert!((half - full).abs() <= 1e-6 + full.abs() / 128.0, "{}", case.name);
            }
        }
    }
}

#[test]
fn it_is_all_the_same_whether_targets_or_outputs_are_on_an_autodiff_device() {
    let tensor = |values: &[f32], shape: [usize; 2], device: &Device| {
        let width = values.len() / shape[0];
        let data = TensorData::new(values.to_vec(), [shape[0], width]);
        Tensor::<2>::from_data(data, (device, DType::F32))
    };
    let (plain, autodiff) = (Device::flex(), Device::flex().autodiff());
    for case in cases() {
        let (expected, _) = case.run(1.0);
        for of_outputs in [&plain, &autodiff] {
            for of_targets in [&plain, &autodiff] {
                let outputs = tensor(&case.outputs, case.shape, of_outputs);
                let targets = tensor(&case.targets, case.shape, of_targets);
                let mask = tensor(&case.mask, case.shape, of_targets);
                let sum: f32 = case.init().sum(outputs, targets, mask).into_scalar();
                assert_eq!(sum, expected, "{}", case.name);
            }
        }
    }
}

/// One known label of one image.
fn one_label(loss: LossConfig, output: f32, target: f32) -> Case {
    Case {
        name: format!("{loss:?} at {output} for {target}"),
        task: Task::Binary,
        loss,
        shape: [1, 1],
        outputs: vec![output],
        targets: vec![target],
        mask: vec![1.0],
        sum: 0.0,
        normalizer: 1.0,
        gradient: vec![],
        share: vec![],
        variables: None,
        centres: vec![],
    }
}

#[test]
fn what_a_loss_learns_has_the_gradient_of_libauc_whatever_the_micro_batch() {
    let learning: Vec<Case> = cases().into_iter().filter(|case| case.variables.is_some()).collect();
    assert_eq!(learning.len(), 2);
    for case in learning {
        let loss = case.init();
        let loss = loss.auc_margin().expect("learns");
        for size in 1..=case.shape[0] {
            let mut sum = vec![0.0; case.centres.len()];
            for first in (0..case.shape[0]).step_by(size) {
                let part = case.images(first, (first + size).min(case.shape[0]));
                let [outputs, targets, mask] = part.tensors();
                let part: Vec<f32> =
                    loss.gradient(outputs, targets, mask).into_data().iter().collect();
                sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
            }
            for (ours, theirs) in sum.iter().zip(&case.centres) {
                assert_close(ours / case.normalizer as f32, *theirs, &case.name);
            }
        }
    }
}

/// LibAUC divides by the images of each label and by the labels, which is the same where all labels are
/// known.
#[test]
fn logits_and_variables_go_the_course_of_libauc_s_optimizer() {
    #[derive(serde::Deserialize)]
    struct Pesg {
        saddle: Vec<Course>,
    }
    let text = include_str!("../../tests/fixtures/pesg.json");
    let pesg: Pesg = serde_json::from_str(text).expect("the fixture reads");
    assert_eq!(pesg.saddle.len(), 2);
    let courses = fixture().saddle.into_iter().chain(pesg.saddle);
    for Course { margin, share, lr, optimizer, start, targets, steps } in courses {
        let labels = share.len();
        let shape = [start.len() / labels, labels];
        let config = LossConfig::AucMargin(AucMarginConfig { margin });
        let mut case = Case {
            task: Task::Multilabel,
            shape,
            outputs: start.clone(),
            mask: vec![1.0; targets.len()],
            targets,
            share: share.clone(),
            ..one_label(config.clone(), 0.0, 0.0)
        };
        let sgd = SgdConfig { lr, momentum: 0.0, ..SgdConfig::default() };
        let optimizer = optimizer.unwrap_or(OptimizerConfig::Sgd(sgd));
        let parameters = [("centres".to_owned(), 2 * labels), ("logits".to_owned(), start.len())];
        let mut optimizer = optimizer.init(parameters);
        let mut loss = config.init(case.task, labels, &counts(&share));
        let flat = |values: Vec<f32>| {
            let data = TensorData::new(values.clone(), [values.len()]);
            Tensor::<1>::from_data(data, (&Device::flex(), DType::F32))
        };
        for number in 1..=12 {
            let learning = loss.auc_margin_mut().expect("learns");
            case.variables = Some(learning.variables().clone());
            let normalizer = case.init().normalizer(&case.targets());
            let (sum, gradient) = case.run(normalizer);
            let [outputs, targets, mask] = case.tensors();
            let of_centres = learning.gradient(outputs, targets, mask).div_scalar(normalizer);
            let centres =
                optimizer.step("centres", lr, false, flat(learning.centres()), of_centres);
            learning.learn(&centres.into_data().iter::<f32>().collect::<Vec<_>>(), lr);
            let logits = flat(case.outputs.clone());
            let logits = optimizer.step("logits", lr, true, logits, flat(gradient));
            case.outputs = logits.into_data().iter::<f32>().collect();
            let Some(place) = [1, 2, 12].iter().position(|known| *known == number) else {
                continue;
            };
            let (theirs, ours) = (&steps[place], learning.variables());
            assert_close(sum / normalizer as f32, theirs.loss, &format!("the loss {number}"));
            for (ours, theirs, what) in [
                (&case.outputs, &theirs.logits, "logits"),
                (&ours.a, &theirs.a, "a"),
                (&ours.b, &theirs.b, "b"),
                (&ours.alpha, &theirs.alpha, "alpha"),
            ] {
                assert_eq!(ours.len(), theirs.len());
                for (ours, theirs) in ours.iter().zip(theirs) {
                    assert_close(*ours, *theirs, &format!("{what} after step {number}"));
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn focal_loss_is_finite_and_pulls_towards_the_label(
        size in -3.0..38.0f32, negative: bool, target in 0..=1u8, gamma in 0.0..5.0f64,
    ) {
        let output = 10f32.powf(size) * if negative { -1.0 } else { 1.0 };
        let target = f32::from(target);
        let loss = LossConfig::Focal(FocalConfig { gamma, alpha: 0.25 });
        let (sum, gradient) = one_label(loss, output, target).run(1.0);
        prop_assert!(sum.is_finite() && sum >= 0.0, "{sum}");
        prop_assert!(gradient[0].is_finite(), "{}", gradient[0]);
        prop_assert!(gradient[0] * (target - 0.5) <= 0.0, "{}", gradient[0]);
    }

    #[test]
    fn asymmetric_loss_is_finite_and_pulls_towards_the_label(
        size in -3.0..36.0f32, negative: bool, target in 0..=1u8,
        gamma_neg in 0.0..5.0f64, gamma_pos in 0.0..5.0f64, clip in 0.0..0.9f64, clips: bool,
    ) {
        let output = 10f32.powf(size) * if negative { -1.0 } else { 1.0 };
        let target = f32::from(target);
        let clip = if clips { clip } else { 0.0 };
        let loss = LossConfig::Asymmetric(AsymmetricConfig { gamma_neg, gamma_pos, clip });
        let (sum, gradient) = one_label(loss, output, target).run(1.0);
        prop_assert!(sum.is_finite() && sum >= 0.0, "{sum}");
        prop_assert!(gradient[0].is_finite(), "{}", gradient[0]);
        prop_assert!(gradient[0] * (target - 0.5) <= 0.0, "{}", gradient[0]);
    }

    #[test]
    fn cross_entropy_is_finite_at_any_logit(size in -3.0..37.0f32, negative: bool, target in 0..=1u8) {
        let output = 10f32.powf(size) * if negative { -1.0 } else { 1.0 };
        let bce = one_label(default_loss(Task::Binary), output, f32::from(target));
        let softmax = Case {
            task: Task::Multiclass,
            loss: default_loss(Task::Multiclass),
            shape: [1, 2],
            outputs: vec![0.0, output],
            ..bce.images(0, 1)
        };
        let (of_one, gradient_of_one) = bce.run(1.0);
        let (of_two, gradient_of_two) = softmax.run(1.0);
        prop_assert!(of_one.is_finite() && gradient_of_one[0].is_finite());
        // The logistic function is the softmax of (0, x).
        prop_assert!((of_one - of_two).abs() <= 1e-6 + 1e-6 * of_one, "{of_one} {of_two}");
        prop_assert!((gradient_of_one[0] - gradient_of_two[1]).abs() <= 1e-6);
    }
}
