//! How far an AUROC, or the difference of two on the same images, may be off.
//!
//! DeLong, DeLong and Clarke-Pearson (1988) take the variance of an AUROC from its structural
//! components: for each positive the share of negatives that it ranks above, for each negative the
//! share of positives that it ranks below. Obuchowski (1997), "Nonparametric Analysis of Clustered ROC
//! Curve Data", sums these within a cluster first, so that images of one patient may depend on each
//! other in any way. Where each image is a cluster of its own, hers is DeLong's to the last digit; here
//! both are one piece of code.

use std::collections::HashMap;

use super::estimate::Z;
use super::influence::{Influence, Spread};
use super::midranks::midranks;
use super::score_interval::{Found, Model};
use super::{Range, Undefined};

/// An AUROC with its structural components, summed within each cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct Delong {
    auroc: f64,
    positives: f64,
    negatives: f64,
    clusters: Vec<Cluster>,
}

/// What one cluster adds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Cluster {
    pub positives: f64,
    pub negatives: f64,
    /// Obuchowski's X_i.: the components of the cluster's positives, summed.
    of_positives: f64,
    /// Y_i.: those of its negatives.
    of_negatives: f64,
    /// What its images add to the variance with each image by itself.
    alone: f64,
}

/// How the interval of an AUROC is formed from its variance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scale {
    /// All areas for which the one found is likely, by the variance that each would have (`score_interval.rs`); of a
    /// difference, Student's interval from a variance without bias (`comparison.rs`).
    ///
    /// It is the default: it covers as often as it says where the AUROC is high or patients are few too
    /// (docs/evaluation.md has the figures), and is there where all positives rank above all negatives, or one patient
    /// alone is positive.
    #[default]
    Score,
    /// A symmetric interval of the logit, ln(A / (1 − A)), turned back (Pepe 2003); of a difference as `Plain`.
    Logit,
    /// A ± 1.96 standard errors, cut off at 0 and 1; what pROC's `ci.auc` gives, and of a difference its `roc.test`.
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
        for image in 0..scores.len() {
            let of = if positive[image] { m } else { n };
            // An image that is the only one of its class does not deviate.
            let freedom = (of - 1.0).max(1.0);
            sums[number[image]].alone += (component(image) - auroc).powi(2) / (of * freedom);
        }
        Ok(Self { auroc, positives: m, negatives: n, clusters: sums })
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
    /// AUROC is certain. Where one class is of one cluster only, or all positives rank above all negatives, or below,
    /// there is an interval by [`Scale::Score`].
    pub fn range(&self, scale: Scale) -> Result<Range, Undefined> {
        if scale == Scale::Score {
            return self.found()?.range().ok_or(Undefined::NoVariance);
        }
        let variance = self.variance()?;
        let (area, rest) = (self.auroc, 1.0 - self.auroc);
        if self.is_end() || variance <= 0.0 {
            return Err(Undefined::NoVariance);
        }
        let half = Z * variance.sqrt();
        if scale == Scale::Plain {
            return Ok(Range { low: (area - half).max(0.0), high: (area + half).min(1.0) });
        }
        let end = |sign: f64| {
            let logit = (area / rest).ln() + sign * half / (area * rest);
            1.0 / (1.0 + (-logit).exp())
        };
        Ok(Range { low: end(-1.0), high: end(1.0) })
    }

    /// What a score interval follows from.
    ///
    /// # Errors
    /// Images that all have one score, and two classes of one cluster each.
    pub(super) fn found(&self) -> Result<Found, Undefined> {
        let [with_positives, with_negatives] = self.with_class();
        if with_positives.max(with_negatives) < 2.0 {
            return Err(Undefined::OneCluster { class: "positive" });
        }
        let clusters = self.clusters.iter();
        if !self.is_end() && clusters.clone().all(|c| c.deviations(self.auroc) == (0.0, 0.0)) {
            return Err(Undefined::NoVariance);
        }
        let influences: Vec<Influence> = clusters
            .map(|cluster| self.influence(cluster, cluster.deviations(self.auroc)))
            .collect();
        let spread = Spread::of(&influences).filter(|_| !self.is_end());
        let model = match spread {
            Some(clustered) => self.own(&influences, clustered),
            None => self.alike(),
        };
        Ok(Found { area: self.auroc, model })
    }

    fn own(&self, influences: &[Influence], clustered: Spread) -> Model {
        let alone: f64 = self.clusters.iter().map(|cluster| cluster.alone).sum();
        let shares = influences.iter().zip(&self.clusters).map(|(influence, cluster)| {
            influence.deviation().powi(2) / clustered.variance - cluster.alone / alone
        });
        let uncertainty = shares.map(|difference| difference * difference).sum();
        Model::Own { images: [self.positives, self.negatives], clustered, alone, uncertainty }
    }

    fn alike(&self) -> Model {
        let images = [|c: &Cluster| c.positives, |c: &Cluster| c.negatives].map(|of| {
            let sizes = self.clusters.iter().map(of);
            sizes.clone().sum::<f64>().powi(2) / sizes.map(|size| size * size).sum::<f64>()
        });
        let [with_positives, with_negatives] = self.with_class();
        Model::Alike { images, freedom: with_positives.min(with_negatives) - 1.0 }
    }

    /// What a cluster with these deviations adds.
    pub(super) fn influence(&self, cluster: &Cluster, deviations: (f64, f64)) -> Influence {
        let (m, n) = (self.positives, self.negatives);
        Influence {
            deviations: [deviations.0 / m, deviations.1 / n],
            shares: [cluster.positives / m, cluster.negatives / n],
        }
    }

    /// Whether all positives rank above all negatives, or below.
    pub(super) fn is_end(&self) -> bool {
        self.auroc <= 0.0 || self.auroc >= 1.0
    }

    pub(super) fn clusters(&self) -> &[Cluster] {
        &self.clusters
    }

    /// How many clusters have positives, and how many negatives.
    fn with_class(&self) -> [f64; 2] {
        [|c: &Cluster| c.positives, |c: &Cluster| c.negatives]
            .map(|has| self.clusters.iter().filter(|cluster| has(cluster) > 0.0).count() as f64)
    }

    /// Obuchowski's covariance of two AUROCs over the same images and clusters:
    /// S10 / M + S01 / N + (S11 + S11') / (M N).
    pub(super) fn covariance(&self, other: &Self) -> Result<f64, Undefined> {
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
    pub(super) fn deviations(&self, auroc: f64) -> (f64, f64) {
        (self.of_positives - self.positives * auroc, self.of_negatives - self.negatives * auroc)
    }
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
pub(super) fn numbered(images: usize, clusters: Option<&[usize]>) -> Vec<usize> {
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
