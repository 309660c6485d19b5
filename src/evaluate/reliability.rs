//! Whether probabilities mean what they say.

use serde::Serialize;

use super::Undefined;

/// Probabilities in bins of equal width beside how often they came true.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Reliability {
    /// From probability 0 to 1.
    pub bins: Vec<Bin>,
}

/// The images whose probability lies in `low..high`; in the last bin 1 itself too.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Bin {
    /// Where the bin begins.
    pub low: f64,
    /// Where it ends.
    pub high: f64,
    /// How many images it holds.
    pub images: usize,
    /// The mean of their probabilities; `None` of no image.
    pub mean_probability: Option<f64>,
    /// The share of them that is positive; `None` of no image.
    pub positive_share: Option<f64>,
}

impl Reliability {
    /// The curve of `probabilities`, one an image, in so many `bins`, as scikit-learn's
    /// `calibration_curve` but for a probability that is the very end of a bin. For a `multiclass`
    /// head the probabilities are those of the decided classes, and positive is a right decision
    /// (Guo et al. 2017).
    ///
    /// # Errors
    /// No image, or a probability that is not a number from 0 to 1.
    ///
    /// # Panics
    /// If there are no bins or the slices differ in length.
    pub fn new(probabilities: &[f64], positive: &[bool], bins: usize) -> Result<Self, Undefined> {
        assert!(bins > 0, "at least one bin");
        check(probabilities, positive)?;
        let end = |bin: usize| bin as f64 / bins as f64;
        let ends: Vec<f64> = (1..bins).map(end).collect();
        let mut sums = vec![(0_usize, 0_usize, 0.0); bins];
        for (&probability, &positive) in probabilities.iter().zip(positive) {
            let bin = ends.partition_point(|&end| end <= probability);
            let (images, positives, sum) = &mut sums[bin];
            *images += 1;
            *positives += usize::from(positive);
            *sum += probability;
        }
        let bin = |(place, (images, positives, sum)): (usize, (usize, usize, f64))| {
            let mean = |sum: f64| (images > 0).then(|| sum / images as f64);
            Bin {
                low: end(place),
                high: end(place + 1),
                images,
                mean_probability: mean(sum),
                positive_share: mean(positives as f64),
            }
        };
        Ok(Self { bins: sums.into_iter().enumerate().map(bin).collect() })
    }

    /// The expected calibration error: the mean over images of how far the share of positives in
    /// their bin is from the mean probability there (Naeini et al. 2015).
    pub fn ece(&self) -> f64 {
        let images: usize = self.bins.iter().map(|bin| bin.images).sum();
        let gap = |bin: &Bin| Some((bin.mean_probability? - bin.positive_share?).abs());
        let weighted = |bin: &Bin| gap(bin).map(|gap| gap * bin.images as f64);
        self.bins.iter().filter_map(weighted).sum::<f64>() / images as f64
    }
}

/// The mean squared difference of probability and truth, as scikit-learn's `brier_score_loss`.
///
/// # Errors
/// No image, or a probability that is not a number from 0 to 1.
///
/// # Panics
/// If the slices differ in length.
pub fn brier(probabilities: &[f64], positive: &[bool]) -> Result<f64, Undefined> {
    check(probabilities, positive)?;
    let truth = |positive: bool| f64::from(u8::from(positive));
    let squares = probabilities.iter().zip(positive).map(|(p, &y)| (p - truth(y)).powi(2));
    Ok(squares.sum::<f64>() / probabilities.len() as f64)
}

/// The same for several classes: the squared differences of an image are summed over the classes, as
/// Brier (1950) has it and scikit-learn with `scale_by_half=False`. `probabilities` is
/// `[images, classes]`, `truth` the class of each image.
///
/// # Errors
/// As [`brier`].
///
/// # Panics
/// If the slices do not fit each other.
pub fn multiclass_brier(probabilities: &[f64], truth: &[usize]) -> Result<f64, Undefined> {
    let classes = probabilities.len().checked_div(truth.len()).ok_or(Undefined::NoKnownLabel)?;
    let rows = probabilities.chunks_exact(classes).zip(truth);
    let positive: Vec<bool> =
        rows.flat_map(|(row, &truth)| (0..row.len()).map(move |class| class == truth)).collect();
    brier(probabilities, &positive).map(|mean| mean * classes as f64)
}

fn check(probabilities: &[f64], positive: &[bool]) -> Result<(), Undefined> {
    assert_eq!(probabilities.len(), positive.len(), "one truth for each probability");
    if probabilities.is_empty() {
        return Err(Undefined::NoKnownLabel);
    }
    if probabilities.iter().any(|probability| !probability.is_finite()) {
        return Err(Undefined::NotFinite);
    }
    let all = probabilities.iter().all(|probability| (0.0..=1.0).contains(probability));
    if all { Ok(()) } else { Err(Undefined::NotProbability) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bin_begins_at_its_end_below_and_the_last_holds_1() {
        let probabilities = [0.0, 0.1, 0.3, 0.29, 0.7, 1.0];
        let curve = Reliability::new(&probabilities, &[false; 6], 10).expect("defined");
        let counts: Vec<usize> = curve.bins.iter().map(|bin| bin.images).collect();
        assert_eq!(counts, [1, 1, 1, 1, 0, 0, 0, 1, 0, 1]);
        assert_eq!((curve.bins[3].low, curve.bins[3].high), (0.3, 0.4));
        assert_eq!(curve.bins[4].mean_probability, None);
    }

    #[test]
    fn no_image_and_what_is_no_probability_are_undefined() {
        assert_eq!(Reliability::new(&[], &[], 5), Err(Undefined::NoKnownLabel));
        assert_eq!(multiclass_brier(&[], &[]), Err(Undefined::NoKnownLabel));
        for (wrong, reason) in [
            (f64::NAN, Undefined::NotFinite),
            (f64::INFINITY, Undefined::NotFinite),
            (-0.1, Undefined::NotProbability),
            (1.1, Undefined::NotProbability),
        ] {
            assert_eq!(Reliability::new(&[wrong], &[true], 5), Err(reason));
            assert_eq!(brier(&[wrong], &[true]), Err(reason));
        }
    }
}
