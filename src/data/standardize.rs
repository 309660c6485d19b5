//! Numbers to be learnt, brought to mean 0 and standard deviation 1.

use serde::{Deserialize, Serialize};

use super::batch::Targets;
use super::spread::Moments;

/// How the numbers of a `regression` head are standardised, label by label: (number − mean) / std.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Standardizer {
    /// Of the label's known numbers; 0 where none is known.
    pub mean: Vec<f64>,
    /// Of the same, divided by how many there are (as NumPy's `std`); 1 where they do not differ.
    pub std: Vec<f64>,
}

impl Standardizer {
    /// That of known numbers, as scikit-learn's `StandardScaler` fits it, and the labels (by their
    /// place) of which all known numbers are the same.
    pub fn fit(targets: &Targets) -> (Self, Vec<usize>) {
        let moments: Vec<Moments> =
            (0..targets.width).map(|label| Moments::of(&targets.known(label))).collect();
        let constant = moments.iter().enumerate().filter(|(_, moments)| moments.is_constant());
        let constant: Vec<usize> = constant.map(|(label, _)| label).collect();
        let std = |moments: &Moments| match moments.is_constant() || moments.count == 0 {
            true => 1.0,
            false => moments.variance.sqrt(),
        };
        let standardizer = Self {
            mean: moments.iter().map(|moments| moments.mean).collect(),
            std: moments.iter().map(std).collect(),
        };
        (standardizer, constant)
    }

    /// The targets to be learnt; what is masked stays as it is.
    pub fn apply(&self, targets: &Targets) -> Targets {
        let mut targets = targets.clone();
        let places = targets.values.iter_mut().zip(&targets.mask).enumerate();
        for (place, (value, _)) in places.filter(|(_, (_, known))| **known != 0.0) {
            let label = place % self.mean.len();
            *value = ((f64::from(*value) - self.mean[label]) / self.std[label]) as f32;
        }
        targets
    }

    /// Brings a head's outputs, `[images, labels]`, back to the labels' own units.
    pub fn undo(&self, outputs: &mut [f32]) {
        for (place, value) in outputs.iter_mut().enumerate() {
            let label = place % self.mean.len();
            *value = (f64::from(*value) * self.std[label] + self.mean[label]) as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Fixture {
        /// `[images][labels]`; none is unknown.
        numbers: Vec<Vec<Option<f32>>>,
        mean: Vec<f64>,
        scale: Vec<f64>,
        /// The numbers standardised.
        standardized: Vec<Vec<Option<f64>>>,
        constant: Vec<usize>,
    }

    fn fixture() -> (Fixture, Targets) {
        let text = include_str!("../../tests/fixtures/standardize.json");
        let fixture: Fixture = serde_json::from_str(text).expect("the fixture reads");
        let all = || fixture.numbers.iter().flatten();
        let targets = Targets {
            values: all().map(|number| number.unwrap_or(0.0)).collect(),
            mask: all().map(|number| f32::from(u8::from(number.is_some()))).collect(),
            width: fixture.mean.len(),
        };
        (fixture, targets)
    }

    fn close(ours: f64, theirs: f64, within: f64) -> bool {
        (ours - theirs).abs() <= within * theirs.abs().max(1.0)
    }

    #[test]
    fn means_and_deviations_are_those_of_scikit_learn() {
        let (fixture, targets) = fixture();
        let (standardizer, constant) = Standardizer::fit(&targets);
        assert_eq!(constant, fixture.constant);
        for (label, (mean, std)) in standardizer.mean.iter().zip(&standardizer.std).enumerate() {
            assert!(close(*mean, fixture.mean[label], 1e-13), "{label}: {mean}");
            assert!(close(*std, fixture.scale[label], 1e-13), "{label}: {std}");
        }
        let learnt = standardizer.apply(&targets);
        let expected = fixture.standardized.iter().flatten();
        for ((ours, known), theirs) in learnt.values.iter().zip(&learnt.mask).zip(expected) {
            assert_eq!(*known != 0.0, theirs.is_some());
            assert!(close(f64::from(*ours), theirs.unwrap_or(0.0), 1e-6), "{ours} for {theirs:?}");
        }
    }

    #[test]
    fn undoing_gives_the_numbers_back_to_their_last_bits() {
        let (_, targets) = fixture();
        let (standardizer, _) = Standardizer::fit(&targets);
        let mut outputs = standardizer.apply(&targets).values;
        standardizer.undo(&mut outputs);
        for (place, (ours, known)) in outputs.iter().zip(&targets.mask).enumerate() {
            let label = place % targets.width;
            let (mean, std) = (standardizer.mean[label], standardizer.std[label]);
            let theirs = f64::from(targets.values[place]);
            let within = f64::from(f32::EPSILON) * (theirs - mean).abs().max(std).max(theirs.abs());
            let apart = (f64::from(*ours) - theirs).abs();
            assert!(*known == 0.0 || apart <= within, "{ours} for {theirs}");
        }
    }

    #[test]
    fn a_label_without_a_known_number_is_left_as_it_is() {
        let targets = Targets { values: vec![0.0; 3], mask: vec![0.0; 3], width: 1 };
        let (standardizer, constant) = Standardizer::fit(&targets);
        assert_eq!(standardizer, Standardizer { mean: vec![0.0], std: vec![1.0] });
        assert_eq!((standardizer.apply(&targets), constant), (targets, Vec::new()));
    }
}
