//! What conformal sets promise, held by simulation and by cases that can be counted by hand.

use rand_distr::{Distribution, StandardNormal};

use super::*;

/// A head of one label: probabilities of a model that finds it, so many images, this share of them positive.
fn drawn(images: usize, positive: f64, number: u64) -> Measured {
    let mut random = stream(7, "test of conformal sets", &[number]);
    let (mut values, mut truth) = (Vec::new(), Vec::new());
    for _ in 0..images {
        let is = random.random::<f64>() < positive;
        let noise: f64 = StandardNormal.sample(&mut random);
        let logit: f64 = noise + if is { 1.5 } else { 0.0 };
        values.push(1.0 / (1.0 + (-logit).exp()));
        truth.push(Some(f64::from(u8::from(is))));
    }
    Measured { task: Task::Multilabel, labels: vec!["Edema".into()], values, truth }
}

/// The share of positives and of negatives of `new` images that are covered, fitted on others.
fn covered(fitted_on: &Measured, new: &Measured, error: f64) -> [[usize; 2]; 2] {
    let head = ConformalHead::fit(fitted_on, error).expect("labels");
    let mut found = Coverage::default();
    for one in &known(new).expect("labels")[0] {
        found.count(head.labels[0].set(one.probability), one.positive, false);
    }
    [found.positives, found.negatives]
}

#[test]
fn positives_and_negatives_are_each_covered_as_often_as_is_asked_for() {
    const DATA_SETS: u64 = 400;
    for (error, positive) in [(0.1, 0.5), (0.1, 0.08), (0.2, 0.3)] {
        let mut shares = [Vec::new(), Vec::new()];
        for number in 0..DATA_SETS {
            let validation = drawn(400, positive, 2 * number);
            let counts = covered(&validation, &drawn(400, positive, 2 * number + 1), error);
            for (shares, [right, all]) in shares.iter_mut().zip(counts) {
                shares.push(right as f64 / all as f64);
            }
        }
        for (shares, known) in shares.into_iter().zip([positive, 1.0 - positive]) {
            let mean = shares.iter().sum::<f64>() / shares.len() as f64;
            let variance = shares.iter().map(|share| (share - mean).powi(2)).sum::<f64>();
            let off = 4.0 * (variance / (DATA_SETS * (DATA_SETS - 1)) as f64).sqrt();
            // Without ties it is at least 1 − error, and above it by 1 / (n + 1) at most (Lei et al.
            // 2018, theorem 2.2); n here is some 400 × `known`, of which the fewest count.
            let fewest = 400.0 * known - 4.0 * (400.0 * known * (1.0 - known)).sqrt();
            let range = 1.0 - error - off..1.0 - error + 1.0 / (fewest + 1.0) + off;
            assert!(range.contains(&mean), "error {error}, share {known}: {mean} in {range:?}");
        }
    }
}

#[test]
fn the_score_is_the_one_that_is_counted_by_hand() {
    // Of nine scores the ninth is the ⌈10 × 0.9⌉-th; of eight none is.
    let label = |count: usize| {
        let positives = (1..=count).map(|rank| (rank as f64 / 10.0, true));
        ConformalLabel::fit(positives.chain([(0.3, false)]), 0.1)
    };
    assert_eq!(label(9).least_positive, 0.1);
    assert_eq!(label(8).least_positive, f64::NEG_INFINITY);
    assert_eq!(label(19).least_positive, 0.2);
    // One negative says nothing at this error, and half at an error of a half.
    assert_eq!(label(9).most_negative, f64::INFINITY);
    let half = ConformalLabel::fit([(0.3, false), (0.8, true)].into_iter(), 0.5);
    assert_eq!(half, ConformalLabel { most_negative: 0.3, least_positive: 0.8 });
    let shown = [0.2, 0.3, 0.5, 0.8].map(|probability| half.set(probability).to_string());
    assert_eq!(shown, ["{0}", "{0}", "{}", "{1}"]);
    let apart = ConformalLabel { most_negative: 0.7, least_positive: 0.4 };
    assert_eq!(apart.set(0.5).to_string(), "{0,1}");
}

#[test]
fn classes_are_covered_each_by_itself_and_numbers_have_no_sets() {
    let of_pa = |image: i32| 1.0 / (1.0 + f64::from(image % 5 - image % 7).exp());
    let class = |image: i32| [1 - image % 2, image % 2].map(|is| Some(f64::from(is)));
    let head = Measured {
        task: Task::Multiclass,
        labels: vec!["PA".into(), "AP".into()],
        values: (0..60).flat_map(|image| [of_pa(image), 1.0 - of_pa(image)]).collect(),
        truth: (0..60).flat_map(class).collect(),
    };
    let fitted = ConformalHead::fit(&head, 0.2).expect("classes");
    for (class, known) in known(&head).expect("classes").iter().enumerate() {
        let of_class: Vec<&Known> = known.iter().filter(|one| one.positive).collect();
        assert_eq!(of_class.len(), 30);
        let held = |one: &&&Known| fitted.labels[class].set(one.probability).positive;
        // ⌈31 × 0.8⌉ = 25 of 30, or more with ties.
        assert!(of_class.iter().filter(held).count() >= 25);
    }
    let patients: Vec<String> = (0..60).map(|image| format!("p{}", image / 3)).collect();
    let measured = coverage(&head, &patients, 0.2, 1).expect("classes");
    assert_eq!(measured["PA"].positives[1] + measured["AP"].positives[1], 60);
    assert_eq!(measured["PA"].negatives, [0, 0]);
    let numbers = Measured { task: Task::Regression, ..head };
    assert_eq!(ConformalHead::fit(&numbers, 0.1), None);
}

#[test]
fn coverage_is_measured_on_patients_that_sets_were_not_fitted_on() {
    let head = drawn(1000, 0.3, 1);
    let patients: Vec<String> = (0..1000).map(|image| format!("p{}", image / 2)).collect();
    let measured = coverage(&head, &patients, 0.1, 1).expect("labels")["Edema"];
    let Coverage { positives, negatives, decided } = measured;
    assert_eq!(positives[1] + negatives[1], 1000);
    assert_eq!(decided[1], 1000);
    for [right, all] in [positives, negatives] {
        let (share, all) = (right as f64 / all as f64, all as f64);
        // Two fits on half of them and as many images tried: deviations of both.
        assert!((share - 0.9).abs() < 4.0 * (2.0 * 0.09 / all).sqrt(), "{share}");
    }
    // Images with the same logit and other truths: who fits on what it measures would see no error.
    let all_of_one = vec!["p".to_owned(); 1000];
    let alone = coverage(&head, &all_of_one, 0.1, 1).expect("labels")["Edema"];
    assert_eq!(alone.positives[0], alone.positives[1], "nothing to fit on rules nothing out");
    assert_eq!(alone.decided, [0, 1000]);
}
