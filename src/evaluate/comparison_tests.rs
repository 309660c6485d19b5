//! Against SciPy (tests/fixtures/score_interval.py), and every sample that a small population has.

use super::*;

#[derive(serde::Deserialize)]
struct Fixture {
    cases: Vec<Case>,
}

#[derive(serde::Deserialize)]
struct Case {
    name: String,
    scores: Vec<f64>,
    second: Vec<f64>,
    positive: Vec<bool>,
    patient: Vec<usize>,
    difference: Expected,
}

#[derive(serde::Deserialize)]
struct Expected {
    low: f64,
    high: f64,
    p_value: f64,
}

fn cases() -> Vec<Case> {
    let text = include_str!("../../tests/fixtures/score_interval.json");
    serde_json::from_str::<Fixture>(text).expect("the fixture reads").cases
}

#[test]
fn intervals_and_p_values_are_those_that_scipy_finds() {
    let cases = cases();
    assert_eq!(cases.len(), 10);
    for Case { name, scores, second, positive, patient, difference } in cases {
        let found = compare(&scores, &second, &positive, Some(&patient), Scale::Score);
        let found = found.expect("defined");
        for (ours, theirs) in [
            (found.range.low, difference.low),
            (found.range.high, difference.high),
            (found.p_value, difference.p_value),
        ] {
            assert!((ours - theirs).abs() < 1e-9, "{name}: {ours} for {theirs}");
        }
        // These tell of no variance; by the plain form there is no interval.
        let plain = compare(&scores, &second, &positive, Some(&patient), Scale::Plain);
        assert_eq!(plain.is_err(), found.variance.is_none(), "{name}");
        let without = ["one ill patient", "told apart by both"].contains(&&name[..]);
        assert_eq!(found.variance.is_none(), without, "{name}");
    }
}

#[test]
fn an_interval_holds_0_just_where_its_p_value_is_at_least_5_percent() {
    for scale in [Scale::Score, Scale::Plain] {
        let mut below = 0;
        for Case { scores, second, positive, patient, .. } in cases() {
            for shift in 0..40 {
                // Positives that the second model scores lower and lower.
                let shifted = second.iter().zip(&positive);
                let shift = f64::from(shift) * 0.05;
                let second: Vec<f64> =
                    shifted.map(|(score, &is)| if is { score - shift } else { *score }).collect();
                let found = compare(&scores, &second, &positive, Some(&patient), scale);
                let Ok(found) = found else { continue };
                let holds = found.range.low <= 0.0 && 0.0 <= found.range.high;
                assert_eq!(holds, found.p_value >= 0.05, "{found:?}");
                below += usize::from(!holds);
            }
        }
        assert!((20..280).contains(&below), "{below}");
    }
}

#[test]
fn models_in_the_other_order_differ_by_as_much_the_other_way() {
    for Case { name, scores, second, positive, patient, .. } in cases() {
        let of = |first: &[f64], second: &[f64]| {
            compare(first, second, &positive, Some(&patient), Scale::Score).expect("defined")
        };
        let (there, back) = (of(&scores, &second), of(&second, &scores));
        for (ours, theirs) in [
            (there.range.low, -back.range.high),
            (there.range.high, -back.range.low),
            (there.p_value, back.p_value),
        ] {
            assert!((ours - theirs).abs() < 1e-12, "{name}: {ours} and {theirs}");
        }
    }
}

/// Patients of two images each: their scores by two models.
type Population = [[[f64; 2]; 2]; 3];

/// Every way to draw three of three with replacement.
fn samples() -> impl Iterator<Item = [usize; 3]> + Clone {
    (0..27).map(|number| [number / 9, number / 3 % 3, number % 3])
}

#[test]
fn over_all_samples_of_a_population_the_variance_is_that_of_the_differences() {
    let ill: Population =
        [[[2.0, 1.0], [4.0, 3.5]], [[3.0, 2.5], [0.5, 3.0]], [[2.5, 0.5], [5.0, 6.0]]];
    let well: Population =
        [[[1.0, 2.0], [2.0, 1.5]], [[0.0, 0.0], [3.5, 1.0]], [[2.5, 3.0], [1.5, 0.5]]];
    let (mut differences, mut ours, mut delongs) = (Vec::new(), 0.0, 0.0);
    for (of_ill, of_well) in samples().flat_map(|ill| samples().map(move |well| (ill, well))) {
        let mut scores = [Vec::new(), Vec::new()];
        let (mut positive, mut patients) = (Vec::new(), Vec::new());
        let drawn = of_ill.iter().map(|one| (ill[*one], true));
        let drawn = drawn.chain(of_well.iter().map(|one| (well[*one], false)));
        for (patient, (images, is)) in drawn.enumerate() {
            for image in images {
                scores.iter_mut().zip(image).for_each(|(all, score)| all.push(score));
                positive.push(is);
                patients.push(patient);
            }
        }
        let models = [0, 1].map(|model| {
            Delong::new(&scores[model], &positive, Some(&patients)).expect("both classes")
        });
        differences.push(models[0].auroc() - models[1].auroc());
        let [first, second] = [0, 1].map(|model| &scores[model][..]);
        let found = spread(&models).expect("six patients").variance;
        let pairs = pairs(&models, [first, second], &positive, &patients).expect("few");
        ours += found - pairs.interaction;
        delongs += found;
    }
    let count = differences.len() as f64;
    let mean = differences.iter().sum::<f64>() / count;
    let variance = differences.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / count;
    assert!((ours / count - variance).abs() < 1e-12, "{} for {variance}", ours / count);
    assert!(delongs / count > 1.05 * variance, "{} for {variance}", delongs / count);
}

#[test]
fn what_cannot_be_compared_says_why() {
    let (yes, no) = (true, false);
    let scores = [1.0, 2.0, 1.5, 3.0];
    let same = compare(&scores, &scores.map(|s| 2.0 * s), &[no, yes, yes, no], None, Scale::Score);
    assert_eq!(same, Err(Undefined::NoVariance));
    let alone = [no, yes, no, no];
    assert_eq!(compare(&scores, &scores, &alone, None, Scale::Score), Err(Undefined::NoVariance));
    let other = [3.0, 2.0, 1.5, 1.0];
    let one = compare(&scores, &other, &alone, None, Scale::Score).expect("defined");
    assert_eq!((one.difference, one.p_value), (0.0, 1.0));
    assert!(one.range.low < 0.0 && one.range.low == -one.range.high, "{one:?}");
    let plain = compare(&scores, &other, &alone, None, Scale::Plain);
    assert_eq!(plain, Err(Undefined::OneCluster { class: "positive" }));
    let all = compare(&scores, &scores, &[yes; 4], None, Scale::Score);
    assert_eq!(all, Err(Undefined::OneClass { positives: 4, images: 4 }));
}
