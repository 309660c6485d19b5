use super::*;

/// Probabilities of two labels for `images` images, two of each patient, with unknown truths between.
fn measured(images: usize, shift: usize) -> Measured {
    let truth = |place: usize| match place % 11 {
        0 => None,
        _ => Some(f64::from(u8::from(place * 7 % 5 < 2))),
    };
    let value = |place: usize| {
        let noise = ((place + shift) * 7919 % 401) as f64 / 401.0;
        0.7 * noise + 0.3 * truth(place).unwrap_or(0.5)
    };
    Measured {
        task: Task::Multilabel,
        labels: vec!["Edema".to_owned(), "Mass".to_owned()],
        values: (0..2 * images).map(value).collect(),
        truth: (0..2 * images).map(truth).collect(),
    }
}

fn patients(images: usize) -> Vec<usize> {
    (0..images).map(|image| image / 2).collect()
}

const SETTINGS: Settings = Settings {
    auroc: AurocMethod::ClusteredDelong,
    scale: super::super::Scale::Logit,
    resamples: 200,
    seed: 4,
    bins: 10,
};

fn all(found: &HeadComparison) -> Vec<(&'static str, MetricComparison)> {
    let tables = found.metrics.iter();
    let all = tables.flat_map(|(name, table)| {
        [table.mean].into_iter().chain(table.labels.values().copied()).map(move |one| (*name, one))
    });
    all.collect()
}

#[test]
fn a_model_does_not_differ_from_itself() {
    let model = measured(60, 0);
    let found = compare_heads(&model, &model, &patients(60), &SETTINGS).expect("compares");
    assert_eq!(found.metrics.len(), 4);
    for (name, one) in all(&found) {
        assert!(one.first.is_some() && one.first == one.second, "{name}");
        let told = (one.difference, one.low, one.high, one.p_value, one.undefined);
        assert_eq!(told, (Some(0.0), Some(0.0), Some(0.0), Some(1.0), None), "{name}");
    }
}

#[test]
fn the_other_way_round_every_difference_has_the_other_sign() {
    let (one, other) = (measured(80, 0), measured(80, 3));
    let there = compare_heads(&one, &other, &patients(80), &SETTINGS).expect("compares");
    let back = compare_heads(&other, &one, &patients(80), &SETTINGS).expect("compares");
    let close = |a: Option<f64>, b: Option<f64>| {
        let (a, b) = (a.expect("defined"), b.expect("defined"));
        assert!((a - b).abs() < 1e-12, "{a} and {b}");
    };
    for ((name, there), (_, back)) in all(&there).into_iter().zip(all(&back)) {
        assert_ne!(there.difference, Some(0.0), "{name}");
        assert_eq!((there.first, there.second), (back.second, back.first), "{name}");
        close(there.difference, back.difference.map(|d| -d));
        close(there.low, back.high.map(|end| -end));
        close(there.high, back.low.map(|end| -end));
        close(there.p_value, back.p_value);
    }
}

/// What stands in the comparison is what an evaluation of each model says.
#[test]
fn the_values_are_those_of_each_model_alone() {
    let (one, other) = (measured(60, 0), measured(60, 5));
    let found = compare_heads(&one, &other, &patients(60), &SETTINGS).expect("compares");
    for (place, label) in one.labels.iter().enumerate() {
        for (model, is_first) in [(&one, true), (&other, false)] {
            let known = (0..60).filter(|image| model.truth[image * 2 + place].is_some());
            let (values, positive): (Vec<f64>, Vec<bool>) = known
                .map(|image| image * 2 + place)
                .map(|at| (model.values[at], model.truth[at] == Some(1.0)))
                .unzip();
            let delong = super::super::Delong::new(&values, &positive, None).expect("defined");
            let curve = super::super::Reliability::new(&values, &positive, 10).expect("defined");
            let brier = super::super::brier(&values, &positive).expect("defined");
            let expected = [("auroc", delong.auroc()), ("ece", curve.ece()), ("brier", brier)];
            for (name, expected) in expected {
                let both = found.metrics[name].labels[label];
                let value = if is_first { both.first } else { both.second };
                let value = value.expect("defined");
                assert!((value - expected).abs() < 1e-12, "{name}: {value} and {expected}");
            }
        }
    }
}

#[test]
fn classes_and_numbers_are_compared_by_their_own_metrics() {
    let classes = |shift: usize| Measured {
        task: Task::Multiclass,
        labels: ["PA", "AP", "Lateral"].map(str::to_owned).to_vec(),
        values: (0..90).map(|place| ((place + shift) * 37 % 101) as f64 / 303.0).collect(),
        truth: (0..90).map(|place| Some(f64::from(u8::from(place % 3 == place / 3 % 3)))).collect(),
    };
    let found = compare_heads(&classes(0), &classes(1), &patients(30), &SETTINGS);
    let found = found.expect("compares");
    let names: Vec<&str> = found.metrics.keys().copied().collect();
    assert_eq!(names, ["accuracy", "auprc", "auroc", "brier"]);
    let numbers = |shift: f64| Measured {
        task: Task::Regression,
        labels: vec!["Age".to_owned()],
        values: (0..30).map(|image| f64::from(image) + shift).collect(),
        truth: (0..30).map(|image| Some(f64::from(image))).collect(),
    };
    let found = compare_heads(&numbers(1.0), &numbers(3.0), &patients(30), &SETTINGS);
    let found = found.expect("compares");
    for name in ["mae", "rmse"] {
        let mean = found.metrics[name].mean;
        assert_eq!((mean.first, mean.second, mean.difference), (Some(1.0), Some(3.0), Some(2.0)));
        let reason = Some(Undefined::NoVariance);
        assert_eq!((mean.low, mean.p_value, mean.undefined), (None, None, reason), "{name}");
    }
    assert!(found.metrics["r2"].mean.difference.expect("defined") < 0.0);
}

#[test]
fn what_cannot_be_compared_says_why() {
    let model = measured(20, 0);
    let mut other = model.clone();
    other.labels.swap(0, 1);
    let refused = |other| compare_heads(&model, other, &patients(20), &SETTINGS).expect_err("is");
    assert_eq!(refused(&other), PairError::OtherLabels);
    let mut other = model.clone();
    other.truth[7] = other.truth[7].map(|truth| 1.0 - truth);
    let error = refused(&other).to_string();
    assert_eq!(error, "the truth about `Mass` in image number 4 is another in each");
    // A truth that only one of the two knows holds for both.
    let mut other = model.clone();
    other.truth[7] = None;
    let patients = patients(20);
    let found = compare_heads(&model, &other, &patients, &SETTINGS).expect("compares");
    assert_eq!(found, compare_heads(&model, &model, &patients, &SETTINGS).expect("compares"));
    // One class only.
    let mut alike = model.clone();
    alike.truth.iter_mut().for_each(|truth| *truth = Some(1.0));
    let found = compare_heads(&alike, &alike, &patients, &SETTINGS).expect("compares");
    let auroc = found.metrics["auroc"].labels["Edema"];
    let reason = auroc.undefined.expect("undefined").to_string();
    assert_eq!((auroc.first, reason.as_str()), (None, "one class only: 20 positives of 20"));
}

#[test]
fn two_models_that_rank_all_positives_first_may_differ_on_other_patients() {
    let model = |of: fn(f64) -> f64, turned: bool| Measured {
        task: Task::Binary,
        labels: vec!["Mass".to_owned()],
        values: (0..40)
            .map(|image| match (image % 4 == 0, turned) {
                (true, false) => of(0.6 + 0.01 * f64::from(image)),
                (true, true) => of(1.0 - 0.01 * f64::from(image)),
                (false, _) => of(0.01 * f64::from(image)),
            })
            .collect(),
        truth: (0..40).map(|image| Some(f64::from(u8::from(image % 4 == 0)))).collect(),
    };
    let patients: Vec<usize> = (0..40).collect();
    let settings = Settings::default();
    let first = model(|score| score, false);
    let of = |second: &Measured| {
        let found = compare_heads(&first, second, &patients, &settings).expect("compares");
        ["auroc", "auprc"].map(|metric| {
            assert_eq!(found.metrics[metric].mean, found.metrics[metric].labels["Mass"]);
            found.metrics[metric].mean
        })
    };
    for (found, least) in of(&model(|score| score, true)).into_iter().zip([0.05, 0.2]) {
        let (low, high) = (found.low.expect("defined"), found.high.expect("defined"));
        assert_eq!((found.difference, low, found.p_value), (Some(0.0), -high, Some(1.0)));
        assert!(least < high && high < 0.5, "{found:?}");
    }
    // Of one model's area Wilson's interval begins this far below 1, and the other's is 1.
    let below = 1.0 - super::super::wilson(10, 10).expect("positives").low;
    let [_, areas] = of(&model(|score| score, true));
    assert!((areas.high.expect("defined") - below).abs() < 1e-9, "{areas:?}");
    // The same ranks.
    for found in of(&model(|score| score * score, false)) {
        assert_eq!((found.low, found.high, found.p_value), (Some(0.0), Some(0.0), Some(1.0)));
    }
}
