//! Whether two models' AUROCs differ on the same images: the paired test of DeLong, DeLong and Clarke-Pearson (1988), with
//! images of a patient taken together (Obuchowski 1997).
//!
//! By [`Scale::Plain`] it is theirs: the difference over its standard error, as if that were known for certain. By
//! [`Scale::Score`], the default, it holds for few patients too:
//!
//! - The difference is a mean over pairs of a positive and a negative, of what one model gains on the pair (1, ½, 0, −½ or
//!   −1). DeLong's variance adds up that of its means over each positive and that of its means over each negative, and each
//!   of these has in it what pairs vary by apart from their two images, the interaction σ². So it counts σ² / (m n) twice.
//!   Taking it off once leaves a variance that is right on average (Gallas 2006, "One-shot estimate of MRMC variance:
//!   AUC", for readers in the place of one class). σ² is the mean square of the residuals of a two-way
//!   analysis of variance, between patients. For models with an AUROC of 0.95 and 18 positives this is a tenth of the variance.
//! - The quantile is Student's, with the degrees of freedom of the variance ([`Spread`]).
//! - The variance grows with the difference: the interval is that of [`Discordance`].
//! - Where one class is of one patient, or each model ranks all positives above all negatives (or below), there is no such
//!   variance; there the interval is that of [`hybrid`].

use std::f64::consts::SQRT_2;

use rayon::prelude::*;
use serde::Serialize;

use super::bootstrap::Difference;
use super::delong::{Cluster, numbered};
use super::discordance::Discordance;
use super::estimate::Z;
use super::hybrid::hybrid;
use super::influence::{Influence, Spread};
use super::midranks::midranks;
use super::{Delong, Range, Scale, Undefined};
use crate::metric::interval::{student_beyond, student_quantile};

/// More pairs of images are not looked at: one of the classes is of ten thousand images there, and the interaction about a
/// thousandth of the variance, or less.
const PAIRS: usize = 100_000_000;

/// Two models on the same images.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Comparison {
    /// The first AUROC less the second.
    pub difference: f64,
    /// The covariance of the two, by (clustered) DeLong; `None` where one class is of one patient only, and by [`Scale::Score`]
    /// where both are 0 or 1.
    pub covariance: Option<f64>,
    /// The variance of the difference, by (clustered) DeLong; `None` as the covariance.
    pub variance: Option<f64>,
    /// The 95% interval of the difference.
    pub range: Range,
    /// How likely a difference as great as this is, either way, between models that are equally good. The interval holds 0
    /// just where this is at least 0.05.
    pub p_value: f64,
}

/// Compares two models by their scores for the same images: the paired test of DeLong, clustered as
/// in [`Delong::new`]. By [`Scale::Plain`] and [`Scale::Logit`] its p-value is that of pROC's
/// `roc.test(method = "delong", paired = TRUE)`.
///
/// # Errors
/// As [`Delong::variance`], but for [`Scale::Score`], and a difference without variance, as of a model with itself or
/// another that ranks the images alike.
///
/// # Panics
/// If the slices differ in length.
pub fn compare(
    first: &[f64],
    second: &[f64],
    positive: &[bool],
    clusters: Option<&[usize]>,
    scale: Scale,
) -> Result<Comparison, Undefined> {
    let models =
        [Delong::new(first, positive, clusters)?, Delong::new(second, positive, clusters)?];
    let [a, b] = &models;
    let difference = a.auroc() - b.auroc();
    if midranks(first) == midranks(second) {
        return Err(Undefined::NoVariance);
    }
    let covariance = match a.covariance(b) {
        Err(Undefined::OneCluster { .. }) if scale == Scale::Score => None,
        Ok(_) if scale == Scale::Score && a.is_end() && b.is_end() => None,
        found => Some(found?),
    };
    let Some(covariance) = covariance else {
        let Difference { range, p_value } = apart(&models)?;
        return Ok(Comparison { difference, covariance: None, variance: None, range, p_value });
    };
    let sum = a.variance()? + b.variance()?;
    let variance = sum - 2.0 * covariance;
    // What rounding leaves of a difference without variance is no variance.
    if variance <= 1e-14 * sum {
        return Err(Undefined::NoVariance);
    }
    let plain = |half: f64| Range { low: difference - half, high: difference + half };
    let (range, p_value) = if scale == Scale::Score {
        let own = spread(&models).ok_or(Undefined::NoVariance)?;
        let number = numbered(first.len(), clusters);
        let pairs = pairs(&models, [first, second], positive, &number);
        let less = own.variance - pairs.map_or(0.0, |pairs| pairs.interaction);
        // The variance found of a few patients may be less than that of their pairs alone.
        let error = if less > 0.0 { less.sqrt() } else { own.variance.sqrt() };
        let p_value = student_beyond(difference / error, own.freedom);
        let half = student_quantile(own.freedom).ok_or(Undefined::NoVariance)? * error;
        let range = pairs.map_or(plain(half), |pairs| {
            Discordance { difference, share: pairs.discordant }.range(half)
        });
        (range, p_value.ok_or(Undefined::NoVariance)?)
    } else {
        let error = variance.sqrt();
        (plain(Z * error), libm::erfc((difference / error).abs() / SQRT_2))
    };
    let (covariance, variance) = (Some(covariance), Some(variance));
    Ok(Comparison { difference, covariance, variance, range, p_value })
}

/// The difference by the intervals of the two.
fn apart([a, b]: &[Delong; 2]) -> Result<Difference, Undefined> {
    let found = [a.found()?, b.found()?];
    let freedom = found[0].freedom().min(found[1].freedom());
    let ranges = |quantile| found.map(|one| one.range_at(quantile));
    hybrid([a.auroc(), b.auroc()], freedom, ranges).ok_or(Undefined::NoVariance)
}

/// The variance of the difference, as far as it is known.
fn spread([a, b]: &[Delong; 2]) -> Option<Spread> {
    let pairs = a.clusters().iter().zip(b.clusters());
    let influences = pairs.map(|(of_a, of_b)| a.influence(of_a, gain([a, b], [of_a, of_b])));
    Spread::of(&influences.collect::<Vec<Influence>>())
}

/// By how much a cluster's components deviate in the first model more than in the second, of positives and negatives.
fn gain([a, b]: [&Delong; 2], [of_a, of_b]: [&Cluster; 2]) -> (f64, f64) {
    let ((ax, ay), (bx, by)) = (of_a.deviations(a.auroc()), of_b.deviations(b.auroc()));
    (ax - bx, ay - by)
}

/// What single pairs of a positive and a negative tell.
#[derive(Debug, Clone, Copy)]
struct Pairs {
    /// σ² / (m n): of pairs of a cluster with positives and one with negatives, by how much the gain on their images deviates
    /// from what the two clusters' deviations add up to.
    interaction: f64,
    /// The mean of the gain's size.
    discordant: f64,
}

/// `None` of more than [`PAIRS`].
fn pairs(
    models: &[Delong; 2],
    scores: [&[f64]; 2],
    positive: &[bool],
    cluster_of: &[usize],
) -> Option<Pairs> {
    let [a, b] = models;
    let class = |is: bool| (0..positive.len()).filter(move |&image| positive[image] == is);
    let negatives: Vec<usize> = class(false).collect();
    let (m, n) = ((positive.len() - negatives.len()) as f64, negatives.len() as f64);
    if m * n > PAIRS as f64 {
        return None;
    }
    let clusters = a.clusters();
    let mut positives_of = vec![Vec::new(); clusters.len()];
    class(true).for_each(|image| positives_of[cluster_of[image]].push(image));
    let gains: Vec<(f64, f64)> = (0..clusters.len())
        .map(|cluster| gain([a, b], [&clusters[cluster], &b.clusters()[cluster]]))
        .collect();
    let difference = a.auroc() - b.auroc();
    let of_cluster = |cluster: usize| {
        if positives_of[cluster].is_empty() {
            return [0.0; 2];
        }
        let (mut sums, mut sizes) = (vec![0.0; clusters.len()], 0.0);
        for &image in &positives_of[cluster] {
            for &other in &negatives {
                let [first, second] = scores.map(|scores| wins(scores[image], scores[other]));
                sums[cluster_of[other]] += first - second;
                sizes += (first - second).abs();
            }
        }
        let residuals =
            sums.iter().zip(clusters).zip(&gains).map(|((sum, other), (_, of_other))| {
                let (m_here, n_there) = (clusters[cluster].positives, other.negatives);
                let expected = n_there * gains[cluster].0 + m_here * of_other;
                (sum - m_here * n_there * difference - expected).powi(2)
            });
        [residuals.sum::<f64>(), sizes]
    };
    let found: Vec<[f64; 2]> = (0..clusters.len()).into_par_iter().map(of_cluster).collect();
    let sum = |of: usize| found.iter().map(|one| one[of]).sum::<f64>();
    let with = |of: fn(&Cluster) -> f64| clusters.iter().filter(|c| of(c) > 0.0).count() as f64;
    let corrected =
        [with(|c| c.positives), with(|c| c.negatives)].map(|count| count / (count - 1.0));
    let interaction = sum(0) * corrected[0] * corrected[1] / (m * n).powi(2);
    Some(Pairs { interaction, discordant: sum(1) / (m * n) })
}

/// Whether a positive's score is above a negative's; a tie counts half.
fn wins(score: f64, other: f64) -> f64 {
    0.5 * (f64::from(u8::from(score > other)) + f64::from(u8::from(score >= other)))
}

#[cfg(test)]
#[path = "comparison_tests.rs"]
mod tests;
