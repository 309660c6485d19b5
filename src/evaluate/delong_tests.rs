//! Against pROC and the functions of the Cleveland Clinic (tests/fixtures/delong.R).

use proptest::prelude::*;

use super::*;
use crate::evaluate::compare;

#[derive(serde::Deserialize)]
struct Case {
    name: String,
    positive: Vec<bool>,
    first: Vec<f64>,
    second: Vec<f64>,
    patient: Vec<usize>,
    plain: Expected,
    clustered: Expected,
}

#[derive(serde::Deserialize)]
struct Expected {
    auroc_first: f64,
    auroc_second: f64,
    variance_first: f64,
    variance_second: f64,
    covariance: f64,
    low_first: f64,
    high_first: f64,
    p_value: f64,
}

fn cases() -> Vec<Case> {
    let text = include_str!("../../tests/fixtures/delong.json");
    serde_json::from_str(text).expect("the fixture reads")
}

#[test]
fn variances_and_p_values_are_those_of_proc_and_of_the_cleveland_clinic() {
    let cases = cases();
    assert_eq!(cases.len(), 5);
    for case in &cases {
        for (expected, clusters) in
            [(&case.plain, None), (&case.clustered, Some(&case.patient[..]))]
        {
            let of = |scores| Delong::new(scores, &case.positive, clusters).expect("defined");
            let (first, second) = (of(&case.first), of(&case.second));
            let both = compare(&case.first, &case.second, &case.positive, clusters, Scale::Plain);
            let both = both.expect("defined");
            let range = first.range(Scale::Plain).expect("defined");
            for (name, ours, theirs) in [
                ("first AUROC", first.auroc(), expected.auroc_first),
                ("second AUROC", second.auroc(), expected.auroc_second),
                ("first variance", first.variance().expect("defined"), expected.variance_first),
                ("second variance", second.variance().expect("defined"), expected.variance_second),
                ("covariance", both.covariance.expect("defined"), expected.covariance),
                ("low", range.low, expected.low_first.max(0.0)),
                ("high", range.high, expected.high_first.min(1.0)),
                ("p-value", both.p_value, expected.p_value),
            ] {
                let off = (ours - theirs).abs();
                let clustered = clusters.is_some();
                assert!(off < 1e-12, "{}, {clustered}, {name}: {ours} for {theirs}", case.name);
            }
        }
    }
}

#[test]
fn the_logit_interval_is_symmetric_in_the_logit_and_within_0_and_1() {
    let logit = |area: f64| (area / (1.0 - area)).ln();
    for case in cases() {
        let delong = Delong::new(&case.first, &case.positive, None).expect("defined");
        let range = delong.range(Scale::Logit).expect("defined");
        let middle = (logit(range.low) + logit(range.high)) / 2.0;
        assert!((middle - logit(delong.auroc())).abs() < 1e-12, "{}", case.name);
        // Of the first order it is the plain one: dA = A (1 − A) dlogit.
        let area = delong.auroc();
        let half = (logit(range.high) - middle) * area * (1.0 - area);
        let error = delong.variance().expect("defined").sqrt();
        assert!((half - Z * error).abs() < 1e-12, "{}", case.name);
    }
}

#[test]
fn what_cannot_be_told_has_its_reason() {
    let of = |scores: &[f64], positive: &[bool], clusters: Option<&[usize]>| {
        let delong = Delong::new(scores, positive, clusters);
        delong.and_then(|delong| delong.range(Scale::Logit)).expect_err("undefined")
    };
    let (yes, no) = (true, false);
    assert_eq!(of(&[], &[], None), Undefined::NoKnownLabel);
    assert_eq!(of(&[1.0, 2.0], &[yes, yes], None), Undefined::OneClass { positives: 2, images: 2 });
    assert_eq!(of(&[1.0, f64::NAN], &[yes, no], None), Undefined::NotFinite);
    let scores = [1.0, 2.0, 1.5, 3.0];
    assert_eq!(of(&scores, &[no, yes, no, no], None), Undefined::OneCluster { class: "positive" });
    let patients = [3, 7, 9, 7];
    let of_one_patient = of(&scores, &[no, yes, no, yes], Some(&patients));
    assert_eq!(of_one_patient, Undefined::OneCluster { class: "positive" });
    assert_eq!(of(&[1.0, 2.0, 3.0, 4.0], &[no, no, yes, yes], None), Undefined::NoVariance);
    // By the score there is one, which says how little four images tell; images that are all alike tell nothing.
    let score = |scores: &[f64]| {
        let delong = Delong::new(scores, &[no, no, yes, yes], None).expect("defined");
        delong.range(Scale::Score)
    };
    let range = score(&[1.0, 2.0, 3.0, 4.0]).expect("defined");
    assert!(range.low < 0.5 && range.high == 1.0, "{range:?}");
    assert_eq!(score(&[1.0; 4]), Err(Undefined::NoVariance));
    let both_alone = Delong::new(&[1.0, 2.0], &[no, yes], None).expect("defined");
    assert_eq!(both_alone.range(Scale::Score), Err(Undefined::OneCluster { class: "positive" }));
    // Nor do they of one patient; other scores do.
    let of_one = |scores: &[f64]| {
        let delong = Delong::new(scores, &[no, yes, no, no], None).expect("defined");
        delong.range(Scale::Score)
    };
    assert_eq!(of_one(&[1.0; 4]), Err(Undefined::NoVariance));
    let range = of_one(&[1.0, 2.0, 1.5, 3.0]).expect("defined");
    assert!(range.low < 0.2 && range.high > 0.9, "{range:?}");
}

#[test]
fn for_patients_of_as_many_images_the_spread_is_obuchowskis() {
    let scores: Vec<f64> = (0..60).map(|image| f64::from(image * 7919 % 101)).collect();
    let patients: Vec<usize> = (0..60).map(|image| image / 3).collect();
    let positive: Vec<bool> = patients.iter().map(|patient| patient % 3 == 0).collect();
    let delong = Delong::new(&scores, &positive, Some(&patients)).expect("defined");
    let Model::Own { clustered, .. } = delong.found().expect("defined").model else {
        panic!("seven patients are ill");
    };
    let variance = delong.variance().expect("defined");
    assert!((clustered.variance - variance).abs() < 1e-15, "{clustered:?} for {variance}");
}

/// Every pair of a positive and a negative, one by one.
fn by_pairs(scores: &[f64], positive: &[bool]) -> (Vec<f64>, f64) {
    let share = |image: usize| {
        let others: Vec<f64> = (0..scores.len())
            .filter(|&other| positive[other] != positive[image])
            .map(|other| {
                let (mine, theirs) = (scores[image], scores[other]);
                let right = if positive[image] { mine > theirs } else { mine < theirs };
                if mine == theirs { 0.5 } else { f64::from(u8::from(right)) }
            })
            .collect();
        others.iter().sum::<f64>() / others.len() as f64
    };
    let components: Vec<f64> = (0..scores.len()).map(share).collect();
    let of_positives = components.iter().zip(positive).filter(|(_, positive)| **positive);
    let count = positive.iter().filter(|&&positive| positive).count() as f64;
    let area = of_positives.map(|(component, _)| component).sum::<f64>() / count;
    (components, area)
}

proptest! {
    /// Components of every pair, with many ties, and the textbook's sample variances.
    #[test]
    fn the_variance_is_that_of_the_components_of_all_pairs(
        scored in prop::collection::vec((-3..4_i8, any::<bool>()), 4..40),
    ) {
        let scores: Vec<f64> = scored.iter().map(|(score, _)| f64::from(*score)).collect();
        let positive: Vec<bool> = scored.iter().map(|(_, positive)| *positive).collect();
        let positives = positive.iter().filter(|&&positive| positive).count();
        prop_assume!(positives > 1 && positives + 1 < positive.len());
        let (components, area) = by_pairs(&scores, &positive);
        let variance = |class: bool| {
            let of_class: Vec<f64> = (0..scores.len())
                .filter(|&image| positive[image] == class)
                .map(|image| (components[image] - area).powi(2))
                .collect();
            let count = of_class.len() as f64;
            of_class.iter().sum::<f64>() / (count - 1.0) / count
        };
        let ours = Delong::new(&scores, &positive, None).expect("defined");
        prop_assert!((ours.auroc() - area).abs() < 1e-12);
        let expected = variance(true) + variance(false);
        prop_assert!((ours.variance().expect("defined") - expected).abs() < 1e-12);
        let alone: Vec<usize> = (0..scores.len()).map(|image| 900 - 7 * image).collect();
        prop_assert_eq!(&Delong::new(&scores, &positive, Some(&alone)).expect("defined"), &ours);
    }
}
