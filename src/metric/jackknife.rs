//! How far a metric would move with other patients, from leaving each of them out in turn: the jackknife (Quenouille 1949,
//! Tukey 1958; Efron and Stein 1981).
//!
//! ```text
//! bias       (n − 1) · (mean of mᵢ − m)
//! variance   (n − 1) / n · Σ (mᵢ − mean of mᵢ)²
//! freedom    2 n / (κ − (n − 3) / (n − 1)),   of κ, the kurtosis of the mᵢ, and n − 1 at most
//! ```
//!
//! Here m is the metric and mᵢ what it is without patient i, of n. The degrees of freedom say how well the variance is known
//! (O'Neill 2014, "Some Useful Moment Results in Sampling Problems", The American Statistician 68:282): where a few patients
//! decide it, as where errors have heavy tails, it is known as badly as they are few.
//!
//! A resample of the bootstrap holds some patients several times. That makes average precision spread less than it does over
//! other patients, and hides a part of its bias; without one patient it has neither fault.

/// What leaving patients out tells of a metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Jackknife {
    /// How much higher the metric is than the one of all patients there are, on average.
    pub bias: f64,
    /// The standard error; 0 where the metric differs by rounding alone.
    pub error: f64,
    /// The degrees of freedom of the standard error, 1 at least.
    pub freedom: f64,
}

impl Jackknife {
    /// Of a metric's `value`, and what it is without each patient; `None` of fewer than two patients.
    pub fn of(value: f64, left_out: &[f64]) -> Option<Self> {
        let most = left_out.len().checked_sub(1).filter(|most| *most > 0)? as f64;
        let n = left_out.len() as f64;
        let mean = left_out.iter().sum::<f64>() / n;
        let squares = || left_out.iter().map(|one| (one - mean).powi(2));
        let sum = squares().sum::<f64>();
        let error = (most / n * sum).sqrt();
        let kurtosis = n * squares().map(|square| square * square).sum::<f64>() / (sum * sum);
        let freedom = 2.0 * n / (kurtosis - (n - 3.0) / most);
        Some(Self {
            bias: most * (mean - value),
            error: if error > 1e-12 * value.abs() { error } else { 0.0 },
            // Few values that are much alike have a kurtosis below that of the normal distribution.
            freedom: if freedom > 0.0 && freedom < most { freedom.max(1.0) } else { most },
        })
    }
}

#[cfg(test)]
mod tests {
    use rand::RngExt;

    use super::*;
    use crate::metric::ranking::Ranking;
    use crate::metric::{Example, Resampler, auprc};

    #[derive(serde::Deserialize)]
    struct Fixture {
        jackknife: Vec<Case>,
    }

    /// What astropy finds for scikit-learn's average precision, and SciPy's kurtosis.
    #[derive(serde::Deserialize)]
    struct Case {
        scores: Vec<f64>,
        positive: Vec<bool>,
        value: f64,
        bias: f64,
        error: f64,
        freedom: f64,
    }

    fn fixture() -> Vec<Case> {
        let text = include_str!("../../tests/fixtures/metrics.json");
        serde_json::from_str::<Fixture>(text).expect("the fixture reads").jackknife
    }

    fn ranking(scores: &[f64], positive: &[bool]) -> Ranking {
        let example = |image: usize| Example {
            image,
            score: scores[image],
            predicted: false,
            positive: positive[image],
        };
        let examples: Vec<Example> = (0..scores.len()).map(example).collect();
        Ranking::new(&examples).expect("finite scores")
    }

    fn found(scores: &[f64], positive: &[bool], patients: Option<&[usize]>) -> Jackknife {
        let ranking = ranking(scores, positive);
        let area = |times: &[u64]| auprc::of_groups(&ranking.tied(|image| times[image]));
        let value = area(&vec![1; scores.len()]).expect("both classes");
        let left_out = Resampler::new(scores.len(), patients, 0).left_out(area);
        let left_out: Vec<f64> = left_out.into_iter().flatten().collect();
        Jackknife::of(value, &left_out).expect("patients")
    }

    #[test]
    fn bias_and_error_are_those_of_astropy_and_degrees_of_freedom_of_scipys_kurtosis() {
        let cases = fixture();
        assert_eq!(cases.len(), 2);
        for Case { scores, positive, value, bias, error, freedom } in cases {
            let ours = found(&scores, &positive, None);
            for (ours, theirs) in [(ours.bias, bias), (ours.error, error), (ours.freedom, freedom)]
            {
                assert!((ours - theirs).abs() < 1e-9, "{value}: {ours} for {theirs}");
            }
        }
    }

    #[test]
    fn images_of_a_patient_are_left_out_together() {
        let Case { scores, positive, .. } = fixture().remove(0);
        let once = found(&scores, &positive, None);
        let twice = |index: usize| index / 2;
        let patients: Vec<usize> = (0..2 * scores.len()).map(|i| 1000 - 7 * twice(i)).collect();
        let scores: Vec<f64> = (0..2 * scores.len()).map(|i| scores[twice(i)]).collect();
        let positive: Vec<bool> = (0..scores.len()).map(|i| positive[twice(i)]).collect();
        let grouped = found(&scores, &positive, Some(&patients));
        for (ours, theirs) in [(grouped.bias, once.bias), (grouped.error, once.error)] {
            assert!((ours - theirs).abs() < 1e-12, "{grouped:?} for {once:?}");
        }
    }

    #[test]
    fn the_error_of_a_mean_is_the_textbooks_one_and_many_patients_are_left_out_in_parts() {
        let mut random = crate::random::stream(1, "jackknife", &[]);
        let values: Vec<f64> = (0..5000).map(|_| random.random_range(0.0..1.0)).collect();
        let of = |count: usize| {
            let mean = |times: &[u64]| {
                let sum: f64 = values.iter().zip(times).map(|(value, &n)| value * n as f64).sum();
                sum / times.iter().sum::<u64>() as f64
            };
            let all = mean(&vec![1; count]);
            let left_out = Resampler::new(count, None, 0).left_out(mean);
            let square = |value: &f64| (value - all).powi(2);
            let variance = values[..count].iter().map(square).sum::<f64>() / (count - 1) as f64;
            let found = Jackknife::of(all, &left_out).expect("patients");
            (left_out.len(), found, (variance / count as f64).sqrt())
        };
        let (parts, exact, error) = of(400);
        assert_eq!(parts, 400);
        assert!((exact.error - error).abs() < 1e-12 && exact.bias.abs() < 1e-9, "{exact:?}");
        let (parts, rough, error) = of(5000);
        assert_eq!(parts, 1000);
        assert!((rough.error / error - 1.0).abs() < 0.1, "{rough:?} for {error}");
    }

    #[test]
    fn degrees_of_freedom_are_from_1_to_the_patients_less_one() {
        let of = |left_out: &[f64]| Jackknife::of(0.0, left_out).map(|found| found.freedom);
        assert_eq!(of(&[1.0, -1.0, 1.0, -1.0]), Some(3.0));
        assert_eq!(of(&[0.0; 4]), Some(3.0));
        let one = of(&[[1.0].as_slice(), &[0.0; 60]].concat()).expect("patients");
        assert!((1.0..2.2).contains(&one), "{one}");
        assert_eq!(of(&[1.0, 2.0]), Some(1.0));
        assert_eq!([of(&[1.0]), of(&[])], [None, None]);
        assert_eq!(Jackknife::of(0.5, &[0.5; 4]).map(|found| found.error), Some(0.0));
    }
}
