//! Where the known numbers of a label lie.

use serde::Serialize;

use super::batch::Targets;

/// The spread of known numbers, in their own unit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Numbers {
    /// How many are known.
    pub count: usize,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation, divided by their count (as NumPy's `std`).
    pub std: f64,
    /// The least.
    pub min: f64,
    /// A quarter of them is below; between two of them in proportion (as NumPy's `percentile`).
    pub lower_quartile: f64,
    /// Half of them is below.
    pub median: f64,
    /// Three quarters of them are below.
    pub upper_quartile: f64,
    /// The greatest.
    pub max: f64,
}

impl Numbers {
    /// That of these; none of no number.
    pub(super) fn of(mut numbers: Vec<f64>) -> Option<Self> {
        numbers.sort_unstable_by(f64::total_cmp);
        let (&min, &max) = (numbers.first()?, numbers.last()?);
        let quantile = |share: f64| {
            let place = share * (numbers.len() - 1) as f64;
            let (below, above) = (numbers[place.floor() as usize], numbers[place.ceil() as usize]);
            below + (above - below) * place.fract()
        };
        let Moments { count, mean, variance } = Moments::of(&numbers);
        Some(Self {
            count,
            mean,
            std: variance.sqrt(),
            min,
            lower_quartile: quantile(0.25),
            median: quantile(0.5),
            upper_quartile: quantile(0.75),
            max,
        })
    }
}

impl Targets {
    /// The known numbers of one label.
    pub(super) fn known(&self, label: usize) -> Vec<f64> {
        let places = self.values.iter().zip(&self.mask).skip(label).step_by(self.width.max(1));
        places.filter(|(_, known)| **known != 0.0).map(|(value, _)| f64::from(*value)).collect()
    }
}

/// How many numbers there are, their mean, and the mean of their squared distances from it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Moments {
    pub count: usize,
    pub mean: f64,
    pub variance: f64,
}

impl Moments {
    pub fn of(numbers: &[f64]) -> Self {
        let count = numbers.len();
        let divisor = count.max(1) as f64;
        let mean = numbers.iter().sum::<f64>() / divisor;
        let squares: f64 = numbers.iter().map(|number| (number - mean).powi(2)).sum();
        Self { count, mean, variance: squares / divisor }
    }

    /// Whether the numbers are the same but for rounding: scikit-learn's bound.
    pub fn is_constant(&self) -> bool {
        let rounding = self.count as f64 * f64::EPSILON;
        let bound = rounding * self.variance + (rounding * self.mean).powi(2);
        self.count > 0 && self.variance <= bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize)]
    struct Fixture {
        numbers: Vec<Vec<Option<f32>>>,
        spread: Vec<[f64; 8]>,
    }

    #[test]
    fn the_spread_of_numbers_is_that_of_numpy() {
        let text = include_str!("../../tests/fixtures/standardize.json");
        let fixture: Fixture = serde_json::from_str(text).expect("the fixture reads");
        assert!(fixture.spread.len() >= 6);
        for (label, theirs) in fixture.spread.iter().enumerate() {
            let known = fixture.numbers.iter().filter_map(|row| row[label]).map(f64::from);
            let Numbers { count, mean, std, min, lower_quartile, median, upper_quartile, max } =
                Numbers::of(known.collect()).expect("some are known");
            let ours = [count as f64, mean, std, min, lower_quartile, median, upper_quartile, max];
            for (ours, theirs) in ours.iter().zip(theirs) {
                let within = 1e-13 * theirs.abs().max(1.0);
                assert!((ours - theirs).abs() <= within, "{label}: {ours} for {theirs}");
            }
        }
        assert_eq!(Numbers::of(Vec::new()), None);
    }
}
