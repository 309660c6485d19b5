//! How far an AUROC, or the difference of two on the same images, may be off.
//!
//! DeLong, DeLong and Clarke-Pearson (1988) take the variance of an AUROC from its structural
//! components: for each positive the share of negatives that it ranks above, for each negative the
//! share of positives that it ranks below. Obuchowski (1997), "Nonparametric Analysis of Clustered ROC
//! Curve Data", sums these within a cluster first, so that images of one patient may depend on each
//! other in any way. Where each image is a cluster of its own, hers is DeLong's to the last digit; here
//! both are one piece of code.

use std::collections::HashMap;
use std::f64::consts::SQRT_2;

use serde::Serialize;

use super::estimate::Z;
use super::midranks::midranks;
use super::score_interval::Found;
use super::{Range, Undefined};

/// An AUROC with its structural components, summed within each cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct Delong {
    auroc: f64,
    positives: f64,
    negatives: f64,
    clusters: Vec<Cluster>,
    /// The variance with each image by itself.
    alone: f64,
}

/// What one cluster adds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Cluster {
    positives: f64,
    negatives: f64,
    /// Obuchowski's X_i.: the components of the cluster's positives, summed.
    of_positives: f64,
    /// Y_i.: those of its negatives.
    of_negatives: f64,
}

/// How the interval of an AUROC is formed from its variance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scale {
    /// All areas for which the one found is likely, by the variance that each would have (`score_interval.rs`).
    ///
    /// It is the default: it covers as often as it says where the AUROC is high or patients are few too
    /// (docs/evaluation.md has the figures), and is there where all positives rank above all negatives.
    #[default]
    Score,
    /// A symmetric interval of the logit, ln(A / (1 − A)), turned back (Pepe 2003).
    Logit,
    /// A ± 1.96 standard errors, cut off at 0 and 1; what pROC's `ci.auc` gives.
    Plain,
}

impl Delong {
    /// Ranks `scores`, one an image; the higher, the likelier positive. `clusters` holds the number
    /// of each image's patient; without it each image counts as a patient of its own, which is the
    /// plain form of DeLong. Takes O(n log n).
    ///
    /// # Errors
    /// No image, a score that is not finite, or one class only.
    ///
    /// # Panics
    /// If the slices differ in length.
    pub fn new(
        scores: &[f64],
        positive: &[bool],
        clusters: Option<&[usize]>,
    ) -> Result<Self, Undefined> {
        assert_eq!(scores.len(), positive.len(), "one score for each image");
        let positives = check(scores, positive)?;
        let all = midranks(scores);
        let mut within = vec![0.0; scores.len()];
        for class in [false, true] {
            let images = (0..scores.len()).filter(|&image| positive[image] == class);
            let (images, of_class): (Vec<usize>, Vec<f64>) =
                images.map(|image| (image, scores[image])).unzip();
            images.into_iter().zip(midranks(&of_class)).for_each(|(i, rank)| within[i] = rank);
        }
        let (m, n) = (positives as f64, (scores.len() - positives) as f64);
        let number = numbered(scores.len(), clusters);
        let mut sums = vec![Cluster::default(); number.iter().max().map_or(0, |last| last + 1)];
        // How many of the other class it ranks above, a tie counting half.
        let component = |image: usize| match (all[image] - within[image], positive[image]) {
            (above, true) => above / n,
            (above, false) => 1.0 - above / m,
        };
        for image in 0..scores.len() {
            let cluster = &mut sums[number[image]];
            if positive[image] {
                cluster.positives += 1.0;
                cluster.of_positives += component(image);
            } else {
                cluster.negatives += 1.0;
                cluster.of_negatives += component(image);
            }
        }
        let auroc = sums.iter().map(|cluster| cluster.of_positives).sum::<f64>() / m;
        let alone = (0..scores.len()).map(|image| {
            let of = if positive[image] { m } else { n };
            (component(image) - auroc).powi(2) / (of * (of - 1.0))
        });
        let alone = alone.sum();
        Ok(Self { auroc, positives: m, negatives: n, clusters: sums, alone })
    }

    /// The area under the receiver operating characteristic; a tie counts half.
    pub fn auroc(&self) -> f64 {
        self.auroc
    }

    /// The variance of the AUROC.
    ///
    /// # Errors
    /// Positives, or negatives, of one cluster only.
    pub fn variance(&self) -> Result<f64, Undefined> {
        self.covariance(self)
    }

    /// The 95% interval of the AUROC.
    ///
    /// # Errors
    /// As [`Delong::variance`], and a variance of 0: it says that the images are too few, and not that the
    /// AUROC is certain. Where that is because all positives rank above all negatives, or below, there is an
    /// interval by [`Scale::Score`].
    pub fn range(&self, scale: Scale) -> Result<Range, Undefined> {
        let variance = self.variance()?;
        let (area, rest) = (self.auroc, 1.0 - self.auroc);
        let is_end = area <= 0.0 || rest <= 0.0;
        let half = Z * variance.max(0.0).sqrt();
        match scale {
            Scale::Score if is_end => self.found(None).range().ok_or(Undefined::NoVariance),
            _ if is_end || variance <= 0.0 => Err(Undefined::NoVariance),
            Scale::Score => self.found(Some(variance)).range().ok_or(Undefined::NoVariance),
            Scale::Plain => Ok(Range { low: (area - half).max(0.0), high: (area + half).min(1.0) }),
            Scale::Logit => {
                let end = |sign: f64| {
                    let logit = (area / rest).ln() + sign * half / (area * rest);
                    1.0 / (1.0 + (-logit).exp())
                };
                Ok(Range { low: end(-1.0), high: end(1.0) })
            }
        }
    }

    /// What a score interval follows from, of this variance unless the area is 0 or 1.
    fn found(&self, variance: Option<f64>) -> Found {
        let [of_positives, of_negatives] = self.with_class().map(|clusters| clusters - 1.0);
        let squares = |deviation: fn((f64, f64)) -> f64| {
            let each = self.clusters.iter().map(|c| deviation(c.deviations(self.auroc)).powi(2));
            each.sum::<f64>()
        };
        let part = |squares: f64, freedom: f64, images: f64| {
            squares * (freedom + 1.0) / freedom / (images * images)
        };
        let a = part(squares(|(x, _)| x), of_positives, self.positives);
        let b = part(squares(|(_, y)| y), of_negatives, self.negatives);
        let freedom = match variance {
            Some(_) => (a + b).powi(2) / (a * a / of_positives + b * b / of_negatives),
            None => of_positives.min(of_negatives),
        };
        let images = |power: i32| {
            self.clusters.iter().map(|c| (c.positives + c.negatives).powi(power)).sum::<f64>()
        };
        Found {
            area: self.auroc,
            positives: self.positives,
            negatives: self.negatives,
            variances: variance.map(|variance| (variance, self.alone)),
            freedom,
            alike: images(2) / images(1),
        }
    }

    /// How many clusters have positives, and how many negatives.
    fn with_class(&self) -> [f64; 2] {
        [|c: &Cluster| c.positives, |c: &Cluster| c.negatives]
            .map(|has| self.clusters.iter().filter(|cluster| has(cluster) > 0.0).count() as f64)
    }

    /// Obuchowski's covariance of two AUROCs over the same images and clusters:
    /// S10 / M + S01 / N + (S11 + S11') / (M N).
    fn covariance(&self, other: &Self) -> Result<f64, Undefined> {
        let all = self.clusters.len() as f64;
        let [with_positives, with_negatives] = self.with_class();
        for (count, class) in [(with_positives, "positive"), (with_negatives, "negative")] {
            if count < 2.0 {
                return Err(Undefined::OneCluster { class });
            }
        }
        let (mut s10, mut s01, mut s11) = (0.0, 0.0, 0.0);
        for (a, b) in self.clusters.iter().zip(&other.clusters) {
            let (ax, ay) = a.deviations(self.auroc);
            let (bx, by) = b.deviations(other.auroc);
            s10 += ax * bx;
            s01 += ay * by;
            s11 += ax * by + bx * ay;
        }
        let (m, n) = (self.positives, self.negatives);
        let corrected = |sum: f64, clusters: f64| sum * clusters / (clusters - 1.0);
        Ok(corrected(s10, with_positives) / (m * m)
            + corrected(s01, with_negatives) / (n * n)
            + corrected(s11, all) / (m * n))
    }
}

impl Cluster {
    /// X_i. − m_i A and Y_i. − n_i A.
    fn deviations(&self, auroc: f64) -> (f64, f64) {
        (self.of_positives - self.positives * auroc, self.of_negatives - self.negatives * auroc)
    }
}

/// Two models on the same images.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Comparison {
    /// The first AUROC less the second.
    pub difference: f64,
    /// The covariance of the two.
    pub covariance: f64,
    /// The variance of the difference.
    pub variance: f64,
    /// The 95% interval of the difference: ± 1.96 standard errors.
    pub range: Range,
    /// How likely a difference as great as this is, either way, between models that are equally good.
    pub p_value: f64,
}

/// Compares two models by their scores for the same images: the paired test of DeLong, clustered as
/// in [`Delong::new`]. Its p-value is that of pROC's `roc.test(method = "delong", paired = TRUE)`.
///
/// # Errors
/// As [`Delong::variance`], and a difference without variance, as of a model with itself.
///
/// # Panics
/// If the slices differ in length.
pub fn compare(
    first: &[f64],
    second: &[f64],
    positive: &[bool],
    clusters: Option<&[usize]>,
) -> Result<Comparison, Undefined> {
    let first = Delong::new(first, positive, clusters)?;
    let second = Delong::new(second, positive, clusters)?;
    let (of_first, of_second) = (first.variance()?, second.variance()?);
    let covariance = first.covariance(&second)?;
    let variance = of_first + of_second - 2.0 * covariance;
    // What rounding leaves of a difference without variance is no variance.
    if variance <= 1e-14 * (of_first + of_second) {
        return Err(Undefined::NoVariance);
    }
    let difference = first.auroc - second.auroc;
    let half = Z * variance.sqrt();
    let range = Range { low: difference - half, high: difference + half };
    let p_value = libm::erfc((difference / variance.sqrt()).abs() / SQRT_2);
    Ok(Comparison { difference, covariance, variance, range, p_value })
}

/// How many images are positive, where AUROC is defined.
pub(super) fn check(scores: &[f64], positive: &[bool]) -> Result<usize, Undefined> {
    let (positives, images) = (positive.iter().filter(|&&one| one).count(), positive.len());
    if images == 0 {
        return Err(Undefined::NoKnownLabel);
    }
    if scores.iter().any(|score| !score.is_finite()) {
        return Err(Undefined::NotFinite);
    }
    if positives == 0 || positives == images {
        return Err(Undefined::OneClass { positives, images });
    }
    Ok(positives)
}

/// The clusters counted from 0 without gaps, in the order of their first image.
fn numbered(images: usize, clusters: Option<&[usize]>) -> Vec<usize> {
    let Some(clusters) = clusters else {
        return (0..images).collect();
    };
    assert_eq!(clusters.len(), images, "one cluster for each image");
    let mut numbers = HashMap::new();
    clusters
        .iter()
        .map(|cluster| {
            let next = numbers.len();
            *numbers.entry(cluster).or_insert(next)
        })
        .collect()
}

#[cfg(test)]
#[path = "delong_tests.rs"]
mod tests;
