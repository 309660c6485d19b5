//! Against scikit-learn, statsmodels, torchmetrics and SciPy (tests/fixtures/evaluate.py), and what
//! must hold of whole evaluations.

use std::path::Path;

use super::super::{
    Bands, Calibration, CalibrationMethod, Evaluation, Platt, Scale, Temperature, groups, r2,
    wilson,
};
use super::*;
use crate::data::Targets;

#[derive(serde::Deserialize)]
struct Fixture {
    binary: Vec<Binary>,
    multiclass: Vec<Multiclass>,
    regression: Vec<Numbers>,
    wilson: Vec<(usize, usize, f64, f64)>,
}

#[derive(serde::Deserialize)]
struct Binary {
    logits: Vec<f64>,
    truth: Vec<bool>,
    auroc: f64,
    auprc: f64,
    bins: usize,
    curve_share: Vec<f64>,
    curve_mean: Vec<f64>,
    ece: f64,
    brier: f64,
    platt: [f64; 2],
    temperature: f64,
    points: BTreeMap<String, Point>,
}

#[derive(serde::Deserialize)]
struct Point {
    threshold: f64,
    counts: [usize; 4],
    sensitivity: [f64; 3],
    specificity: [f64; 3],
    ppv: [f64; 3],
    npv: [f64; 3],
    accuracy: [f64; 3],
    f1: [f64; 3],
}

#[derive(serde::Deserialize)]
struct Multiclass {
    logits: Vec<f32>,
    truth: Vec<usize>,
    classes: usize,
    auroc: f64,
    accuracy: [f64; 3],
    confusion: Vec<Vec<usize>>,
    brier: f64,
    ece: f64,
    temperature: f64,
}

#[derive(serde::Deserialize)]
struct Numbers {
    target: Vec<f32>,
    output: Vec<f32>,
    mae: f64,
    rmse: f64,
    r2: f64,
}

fn fixture() -> Fixture {
    let text = include_str!("../../tests/fixtures/evaluate.json");
    serde_json::from_str(text).expect("the fixture reads")
}

fn close(ours: f64, theirs: f64, what: &str) {
    assert!((ours - theirs).abs() < 1e-9, "{what}: {ours} for {theirs}");
}

fn close_estimate(ours: Estimate, theirs: [f64; 3], what: &str) {
    for (ours, theirs) in [ours.value, ours.low, ours.high].into_iter().zip(theirs) {
        close(ours.expect("defined"), theirs, what);
    }
}

const SETTINGS: Settings = Settings {
    auroc: AurocMethod::ClusteredDelong,
    scale: Scale::Score,
    resamples: 50,
    seed: 1,
    bins: 15,
};

fn sigmoid(z: f64) -> f64 {
    1.0 / (1.0 + (-z).exp())
}

#[test]
fn labels_are_measured_as_by_scikit_learn_statsmodels_and_torchmetrics() {
    for case in fixture().binary {
        let probabilities: Vec<f64> = case.logits.iter().map(|&z| sigmoid(z)).collect();
        let delong = Delong::new(&case.logits, &case.truth, None).expect("defined");
        close(delong.auroc(), case.auroc, "auroc");
        let found = only(&multilabel(&case), &(0..case.truth.len()).collect::<Vec<_>>());
        let auprc = found.auprc.expect("has it").labels["Whole"].value.expect("defined");
        close(auprc, case.auprc, "auprc");
        close(brier(&probabilities, &case.truth).expect("defined"), case.brier, "brier");
        let curve = Reliability::new(&probabilities, &case.truth, case.bins).expect("defined");
        close(curve.ece(), case.ece, "ece");
        let shares = curve.bins.iter().filter_map(|bin| bin.positive_share);
        let means = curve.bins.iter().filter_map(|bin| bin.mean_probability);
        assert_eq!(shares.clone().count(), case.curve_share.len());
        shares.zip(&case.curve_share).for_each(|(ours, theirs)| close(ours, *theirs, "curve"));
        means.zip(&case.curve_mean).for_each(|(ours, theirs)| close(ours, *theirs, "curve"));
        for (name, point) in &case.points {
            let criterion = match name.split_once(' ') {
                Some(("sensitivity", share)) => Criterion::Sensitivity(share.parse().expect("0.9")),
                Some((_, share)) => Criterion::Specificity(share.parse().expect("0.8")),
                None => Criterion::Youden,
            };
            let threshold = criterion.fit(&probabilities, &case.truth).expect("defined");
            close(threshold, point.threshold, name);
            let counts = Confusion::at(threshold, &probabilities, &case.truth).expect("defined");
            let Confusion { true_positives, false_positives, true_negatives, false_negatives } =
                counts;
            let ours = [true_positives, false_positives, true_negatives, false_negatives];
            assert_eq!(ours, point.counts, "{name}");
            let measures = counts.measures();
            close_estimate(measures.sensitivity, point.sensitivity, name);
            close_estimate(measures.specificity, point.specificity, name);
            close_estimate(measures.ppv, point.ppv, name);
            close_estimate(measures.npv, point.npv, name);
            close_estimate(measures.accuracy, point.accuracy, name);
            close_estimate(measures.f1, point.f1, name);
        }
    }
}

#[test]
fn proportions_have_the_intervals_of_statsmodels() {
    for (successes, of, low, high) in fixture().wilson {
        let range = wilson(successes, of).expect("defined");
        close(range.low, low, "low");
        close(range.high, high, "high");
    }
    assert_eq!(wilson(0, 0), None);
}

#[test]
fn scales_are_fitted_as_by_statsmodels() {
    for case in fixture().binary {
        let platt = Platt::fit(&case.logits, &case.truth).expect("defined");
        close(platt.slope, case.platt[0], "slope");
        close(platt.intercept, case.platt[1], "intercept");
        let two: Vec<f64> = case.logits.iter().flat_map(|&z| [0.0, z]).collect();
        let truth: Vec<usize> = case.truth.iter().map(|&one| usize::from(one)).collect();
        let Temperature(temperature) = Temperature::fit(&two, &truth).expect("defined");
        close(temperature, case.temperature, "temperature");
    }
}

/// The one label of a fixture's case three times: whole, partly known, and known to be negative only.
fn multilabel(case: &Binary) -> HeadPredictions {
    let logits = case.logits.iter().map(|&logit| logit as f32);
    let mask = |image: usize, truth: bool| {
        [1.0, f32::from(u8::from(!image.is_multiple_of(3))), f32::from(u8::from(!truth))]
    };
    let truth = case.truth.iter().enumerate();
    HeadPredictions {
        task: Task::Multilabel,
        labels: ["Whole", "Partly", "Negative"].map(str::to_owned).to_vec(),
        outputs: logits.flat_map(|logit| [logit; 3]).collect(),
        targets: Targets {
            values: case.truth.iter().flat_map(|&one| [f32::from(u8::from(one)); 3]).collect(),
            mask: truth.flat_map(|(image, &truth)| mask(image, truth)).collect(),
            width: 3,
        },
    }
}

fn multiclass(case: &Multiclass) -> HeadPredictions {
    HeadPredictions {
        task: Task::Multiclass,
        labels: (0..case.classes).map(|class| format!("c{class}")).collect(),
        outputs: case.logits.clone(),
        targets: Targets {
            values: case.truth.iter().map(|&class| class as f32).collect(),
            mask: vec![1.0; case.truth.len()],
            width: 1,
        },
    }
}

fn regression(case: &Numbers) -> HeadPredictions {
    HeadPredictions {
        task: Task::Regression,
        labels: vec!["Age".to_owned()],
        outputs: case.output.clone(),
        targets: Targets {
            values: case.target.clone(),
            mask: vec![1.0; case.target.len()],
            width: 1,
        },
    }
}

fn only(predictions: &HeadPredictions, patients: &[usize]) -> HeadEvaluation {
    Head::new(predictions, patients, None, &SETTINGS).evaluate()
}

/// What tests/fixtures/metrics.py makes of labels that are known for some images each, with many ties.
#[derive(serde::Deserialize)]
struct Masked {
    calibrated: BTreeMap<String, BTreeMap<String, f64>>,
    cases: Vec<MaskedHead>,
}

#[derive(serde::Deserialize)]
struct MaskedHead {
    labels: Vec<String>,
    outputs: Vec<f32>,
    targets: Vec<f32>,
    mask: Vec<f32>,
    metrics: BTreeMap<String, Option<f64>>,
}

#[test]
fn labels_that_are_known_for_some_images_are_measured_as_by_scikit_learn_on_these() {
    let text = include_str!("../../tests/fixtures/metrics.json");
    let Masked { calibrated, cases } = serde_json::from_str(text).expect("the fixture reads");
    let case = cases.into_iter().next().expect("the fixture has it");
    assert!(case.mask.contains(&0.0) && calibrated.len() == 4);
    let head = HeadPredictions {
        task: Task::Multilabel,
        labels: case.labels.clone(),
        outputs: case.outputs,
        targets: Targets { values: case.targets, mask: case.mask, width: case.labels.len() },
    };
    let patients: Vec<usize> = (0..head.images()).map(|image| image / 2).collect();
    let found = only(&head, &patients);
    let table = |table: Option<MetricTable>| table.expect("has it").labels;
    let (brier, ece) = (table(found.brier), table(found.ece));
    let (auroc, auprc) = (table(found.auroc), table(found.auprc));
    for label in &case.labels {
        for (name, values) in [("brier", &brier), ("ece", &ece)] {
            match calibrated.get(label) {
                Some(theirs) => close(values[label].value.expect("defined"), theirs[name], name),
                None => assert_eq!(values[label].value, None, "{name}, {label}"),
            }
        }
        for (name, values) in [("auroc", &auroc), ("auprc", &auprc)] {
            match case.metrics[&format!("{name}/{label}")] {
                Some(theirs) => close(values[label].value.expect("defined"), theirs, name),
                None => assert_eq!(values[label].value, None, "{name}, {label}"),
            }
        }
    }
}

#[test]
fn classes_are_measured_as_by_scikit_learn_and_torchmetrics() {
    for case in fixture().multiclass {
        let patients: Vec<usize> = (0..case.truth.len()).collect();
        let head = multiclass(&case);
        let found = only(&head, &patients);
        close(found.auroc.and_then(|table| table.mean).expect("defined"), case.auroc, "auroc");
        close(found.ece.and_then(|table| table.mean).expect("defined"), case.ece, "ece");
        close(found.brier.and_then(|table| table.mean).expect("defined"), case.brier, "brier");
        close_estimate(found.accuracy.expect("has it"), case.accuracy, "accuracy");
        assert_eq!(found.confusion_matrix.expect("has it").counts, case.confusion);
        let (fitted, undefined) = Calibration::fit(CalibrationMethod::Temperature, &head);
        let Some(Calibration::Temperature(Temperature(temperature))) = fitted else {
            panic!("{undefined:?}");
        };
        close(temperature, case.temperature, "temperature");
        let platt = FittedHead::fit(&head, Some(CalibrationMethod::Platt), &[Criterion::Youden]);
        assert_eq!(platt.uncalibrated["c0"], "Platt scaling is not defined for a multiclass head");
        assert_eq!(platt.operating_points, BTreeMap::new());
    }
}

#[test]
fn numbers_are_measured_as_by_scikit_learn() {
    for case in fixture().regression {
        let patients: Vec<usize> = (0..case.target.len()).map(|image| image / 2).collect();
        let found = only(&regression(&case), &patients);
        for (table, theirs) in [(found.mae, case.mae), (found.rmse, case.rmse), (found.r2, case.r2)]
        {
            let table = table.expect("has it");
            let Estimate { value, low, high, .. } = table.labels["Age"];
            close(value.expect("defined"), theirs, "error");
            assert!(low < value && value < high, "{table:?}");
            assert_eq!((table.mean, table.low, table.high), (value, low, high));
        }
        assert_eq!(found.auroc, None);
    }
    assert_eq!(r2(&[1.0, 2.0], &[3.0, 3.0]), Err(Undefined::ConstantTargets));
    assert_eq!(r2(&[], &[]), Err(Undefined::NoKnownLabel));
    assert_eq!(r2(&[f64::NAN], &[3.0]), Err(Undefined::NotFinite));
}

#[test]
fn an_evaluation_agrees_with_the_metrics_of_training() {
    let fixture = fixture();
    let heads =
        fixture.binary.iter().map(multilabel).chain(fixture.multiclass.iter().map(multiclass));
    for head in heads {
        let patients: Vec<usize> = (0..head.images()).map(|image| image / 3).collect();
        let (found, metrics) = (only(&head, &patients), head.metrics());
        let (auroc, auprc) = (found.auroc.expect("has it"), found.auprc.expect("has it"));
        for (name, table) in [("auroc", &auroc), ("auprc", &auprc)] {
            assert_eq!(table.mean, metrics[name], "{name}");
            for (label, estimate) in &table.labels {
                assert_eq!(estimate.value, metrics[&format!("{name}/{label}")], "{name}, {label}");
            }
        }
        let trained = head.intervals(SETTINGS.seed, SETTINGS.resamples, Some(&patients));
        let trained = trained["auroc"].expect("defined");
        assert_eq!((auroc.low, auroc.high), (Some(trained.low), Some(trained.high)));
    }
}

#[test]
fn the_interval_of_an_auroc_is_of_the_method_that_is_asked_for() {
    let head = multilabel(&fixture().binary[0]);
    let patients: Vec<usize> = (0..head.images()).map(|image| image / 3).collect();
    let of = |auroc| {
        let settings = Settings { auroc, ..SETTINGS };
        let found = Head::new(&head, &patients, None, &settings).evaluate();
        found.auroc.expect("has it").labels["Partly"]
    };
    let examples = &head.examples()[1];
    let scores: Vec<f64> = examples.iter().map(|example| example.score).collect();
    let positive: Vec<bool> = examples.iter().map(|example| example.positive).collect();
    let clusters: Vec<usize> = examples.iter().map(|example| patients[example.image]).collect();
    for (method, clusters) in
        [(AurocMethod::ClusteredDelong, Some(&clusters[..])), (AurocMethod::Delong, None)]
    {
        let delong = Delong::new(&scores, &positive, clusters).expect("defined");
        let range = delong.range(Scale::Score).expect("defined");
        assert_eq!((of(method).low, of(method).high), (Some(range.low), Some(range.high)));
    }
    let trained = head.intervals(SETTINGS.seed, SETTINGS.resamples, Some(&patients));
    let trained = trained["auroc/Partly"].expect("defined");
    let boot = of(AurocMethod::Bootstrap);
    assert_eq!((boot.low, boot.high), (Some(trained.low), Some(trained.high)));
}

#[test]
fn what_is_fitted_on_one_set_is_applied_to_another() {
    let fixture = fixture();
    let [validation, test] = [&fixture.binary[0], &fixture.binary[1]].map(multilabel);
    let patients: Vec<usize> = (0..test.images()).collect();
    let criteria = [Criterion::Youden, Criterion::Sensitivity(0.9)];
    for method in [CalibrationMethod::Platt, CalibrationMethod::Temperature] {
        let fitted = FittedHead::fit(&validation, Some(method), &criteria);
        let found = Head::new(&test, &patients, Some(&fitted), &SETTINGS).evaluate();
        let whole = &found.operating_points["Whole"]["youden"];
        assert_eq!(whole.threshold, fitted.operating_points["Whole"][0].threshold);
        let counts = whole.confusion.expect("defined");
        let all = counts.true_positives + counts.false_negatives;
        assert_eq!(all, fixture.binary[1].truth.iter().filter(|&&one| one).count());
        // What validation cannot fit, test tells with the reason.
        let negative = &found.operating_points["Negative"]["sensitivity_0.9"];
        assert_eq!((negative.threshold, negative.confusion), (None, None));
        let reason = negative.undefined.as_deref().expect("a reason");
        assert!(reason.starts_with("one class only: 0 positives of"), "{reason}");
        let platt = method == CalibrationMethod::Platt;
        assert_eq!(fitted.uncalibrated.contains_key("Negative"), platt);

        let file = Fitted::new(BTreeMap::from([("findings".to_owned(), fitted.clone())]));
        let again = Fitted::from_json(&file.to_json(), Path::new("fitted.json")).expect("reads");
        assert_eq!(again, file);
        // Calibration leaves the order, so what Youden decides is what it decided without.
        let plain = FittedHead::fit(&validation, None, &criteria);
        let plain = Head::new(&test, &patients, Some(&plain), &SETTINGS).evaluate();
        let plain = plain.operating_points["Whole"]["youden"].confusion.expect("defined");
        assert_eq!(counts, plain);
    }
}

#[test]
fn an_output_that_is_no_number_undoes_its_label_and_every_mean() {
    let mut head = multilabel(&fixture().binary[0]);
    head.outputs[0] = f32::NAN;
    let patients: Vec<usize> = (0..head.images()).collect();
    let found = only(&head, &patients);
    for table in [found.auroc, found.auprc, found.ece, found.brier] {
        let table = table.expect("has it");
        assert_eq!((table.mean, table.undefined), (None, Some(Undefined::NotFinite)));
        assert_eq!(table.labels["Whole"].undefined, Some(Undefined::NotFinite));
        assert!(table.labels["Partly"].value.is_some());
    }
    let point = &found.operating_points["Whole"]["threshold_0.5"];
    assert_eq!(point.undefined.as_deref(), Some("an output is NaN or infinite"));
    let mut head = multiclass(&fixture().multiclass[0]);
    head.outputs[4] = f32::INFINITY;
    let patients: Vec<usize> = (0..head.images()).collect();
    let found = only(&head, &patients);
    assert_eq!(found.accuracy.expect("has it").undefined, Some(Undefined::NotFinite));
    assert_eq!((found.confusion_matrix, found.reliability), (None, BTreeMap::new()));
    assert_eq!(found.brier.expect("has it").undefined, Some(Undefined::NotFinite));
}

#[test]
fn a_group_is_evaluated_as_its_images_alone() {
    let head = multilabel(&fixture().binary[0]);
    let images = head.images();
    let patients: Vec<usize> = (0..images).map(|image| image / 2).collect();
    let heads = BTreeMap::from([("findings".to_owned(), head.clone())]);
    let column: Vec<&str> = (0..images).map(|image| ["F", "M", ""][image / 2 % 3]).collect();
    let by_sex = groups(column.iter().copied());
    let found = evaluate_subgroups(&heads, &patients, &by_sex, None, &SETTINGS);
    let names: Vec<&str> = found.iter().map(|group| group.group.as_str()).collect();
    assert_eq!(names, ["F", "M", "unknown"]);
    assert_eq!(found.iter().map(|group| group.images).sum::<usize>(), images);
    for (group, of) in found.iter().zip(&by_sex) {
        let alone = part(&head, &of.images);
        let of_group: Vec<usize> = of.images.iter().map(|&image| patients[image]).collect();
        assert!(group.heads["findings"] == only(&alone, &of_group), "{}", group.group);
        assert_eq!(group.patients * 2, group.images);
    }
    let ages: Vec<f64> = (0..images).map(|image| image as f64).collect();
    let bands = Bands::new(&[2.0, 40.0]).expect("ascending").groups(&ages);
    let found = evaluate_subgroups(&heads, &patients, &bands, None, &SETTINGS);
    let young = &found[0].heads["findings"];
    assert_eq!((found[0].group.as_str(), found[0].images, found[0].patients), ("<2", 2, 1));
    assert!(young.auroc.as_ref().is_some_and(|table| table.labels["Whole"].undefined.is_some()));
}

#[test]
fn of_no_image_everything_is_undefined_and_nothing_panics() {
    let fixture = fixture();
    let heads = [
        multilabel(&fixture.binary[0]),
        multiclass(&fixture.multiclass[0]),
        regression(&fixture.regression[0]),
    ];
    for head in heads {
        let found = only(&part(&head, &[]), &[]);
        let json = serde_json::to_value(&found).expect("serialises");
        for metric in ["auroc", "auprc", "ece", "brier", "mae", "rmse", "r2"] {
            let Some(table) = json.get(metric) else { continue };
            assert_eq!(table["mean"], serde_json::Value::Null, "{metric}");
            assert_eq!(table["undefined"], "no known label", "{metric}");
        }
    }
}

#[test]
fn the_json_is_the_one_that_scripts_are_written_against() {
    let head = multilabel(&fixture().binary[0]);
    let images: Vec<usize> = (0..12).collect();
    let head = part(&head, &images);
    let patients: Vec<usize> = images.iter().map(|image| image / 2).collect();
    let heads = BTreeMap::from([("findings".to_owned(), head)]);
    let settings = Settings { bins: 2, ..SETTINGS };
    let all = evaluate(&heads, &patients, None, &settings);
    let sexes = evaluate_subgroups(&heads, &patients, &groups(["F"; 12])[..], None, &settings);
    assert!(sexes[0].heads == all, "one group of all images");
    let evaluation =
        Evaluation { heads: all, subgroups: BTreeMap::from([("sex".to_owned(), vec![])]) };
    let json = serde_json::to_string_pretty(&evaluation).expect("serialises");
    insta::assert_snapshot!(json);
}
