//! Sets of decisions that hold the right one as often as is asked for.
//!
//! Split conformal prediction (Vovk, Gammerman and Shafer 2005; Papadopoulos et al. 2002), for each label
//! and each truth by itself (label-conditional: Vovk 2012; Sadinle, Lei and Wasserman 2019). So ill
//! and healthy images are both covered, however rare one of them is. The set of an image holds every
//! decision that the model does not find less plausible than all but a share `error` of the validation
//! images for which that decision is true.
//!
//! Over images exchangeable with those of validation, the set holds the truth with probability
//! 1 − `error` or more, for positives and for negatives. Images of one patient are not exchangeable with
//! those of others, and validation images on which the best epoch was chosen look somewhat better than
//! new ones: [`coverage`] measures what is left of the promise.

use std::collections::BTreeMap;
use std::fmt;

use rand::RngExt;

use super::Measured;
use crate::model::Task;
use crate::random::stream;

/// What is not ruled out about a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecisionSet {
    /// That the image does not have the label.
    pub negative: bool,
    /// That it has.
    pub positive: bool,
}

impl fmt::Display for DecisionSet {
    /// `{0}`, `{1}`, `{0,1}` or `{}`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match (self.negative, self.positive) {
            (true, true) => "{0,1}",
            (true, false) => "{0}",
            (false, true) => "{1}",
            (false, false) => "{}",
        })
    }
}

/// What a label's sets are formed by, on calibrated probabilities.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ConformalLabel {
    /// Up to this probability 0 is not ruled out; infinite where too few negatives are known.
    pub most_negative: f64,
    /// From this probability up 1 is not ruled out; −infinite where too few positives are known.
    pub least_positive: f64,
}

impl ConformalLabel {
    /// Fits a label to validation images: `known` holds the probability of each and whether it is
    /// positive. At most a share `error` of new images is to have a set without the truth.
    pub fn fit(known: impl Iterator<Item = (f64, bool)>, error: f64) -> Self {
        let (positives, negatives): (Vec<_>, Vec<_>) = known.partition(|(_, positive)| *positive);
        let scores = |of: Vec<(f64, bool)>, sign: f64| -> Vec<f64> {
            of.into_iter().map(|(probability, _)| sign * probability).collect()
        };
        Self {
            most_negative: quantile(scores(negatives, 1.0), error),
            least_positive: -quantile(scores(positives, -1.0), error),
        }
    }

    /// The set of an image with this probability.
    pub fn set(&self, probability: f64) -> DecisionSet {
        DecisionSet {
            negative: probability <= self.most_negative,
            positive: probability >= self.least_positive,
        }
    }
}

/// The ⌈(n + 1)(1 − `error`)⌉-th smallest of n scores, infinite beyond the last.
fn quantile(mut scores: Vec<f64>, error: f64) -> f64 {
    scores.sort_unstable_by(f64::total_cmp);
    // Rounding must not make 9.000000000000002 of 10 × 0.9 the tenth.
    let place = ((scores.len() + 1) as f64 * (1.0 - error) - 1e-9).ceil().max(1.0) as usize;
    scores.get(place - 1).copied().unwrap_or(f64::INFINITY)
}

/// The labels of a head, or the classes of a `multiclass` head, of whose sets only `positive` counts:
/// whether the class is not ruled out. None for `regression`.
#[derive(Debug, Clone, PartialEq)]
pub struct ConformalHead {
    /// In the order of the head's labels.
    pub labels: Vec<ConformalLabel>,
}

impl ConformalHead {
    /// Fits a head to what is predicted of validation images.
    pub fn fit(predictions: &Measured, error: f64) -> Option<Self> {
        let known = known(predictions)?;
        let fit = |known: Vec<Known>| {
            ConformalLabel::fit(known.iter().map(|one| (one.probability, one.positive)), error)
        };
        Some(Self { labels: known.into_iter().map(fit).collect() })
    }
}

/// An image whose label is known.
#[derive(Debug, Clone, Copy)]
struct Known {
    image: usize,
    probability: f64,
    positive: bool,
}

/// The known images of each label; none for `regression`.
fn known(predictions: &Measured) -> Option<Vec<Vec<Known>>> {
    if predictions.task == Task::Regression {
        return None;
    }
    let known = predictions.known().into_iter().enumerate().map(|(place, known)| {
        let probability = |image| predictions.values[image * predictions.labels.len() + place];
        let known = known.into_iter().map(|(image, positive)| Known {
            image,
            probability: probability(image),
            positive,
        });
        known.collect()
    });
    Some(known.collect())
}

/// How many images with and without a label had a set with the truth in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Positives whose set holds 1, and all positives.
    pub positives: [usize; 2],
    /// Negatives whose set holds 0, and all negatives; for classes of a `multiclass` head it counts
    /// nothing.
    pub negatives: [usize; 2],
    /// Images whose set has one decision, and all images; for classes it counts nothing.
    pub decided: [usize; 2],
}

/// What sets fitted on one half of the validation images cover of the other half, both ways, by label;
/// `None` for `regression`. All images of a patient are in one half: `patients` has a name for each image.
/// `seed` draws the halves.
///
/// # Panics
/// If there are fewer `patients` than images.
pub fn coverage(
    predictions: &Measured,
    patients: &[String],
    error: f64,
    seed: u64,
) -> Option<BTreeMap<String, Coverage>> {
    let mut random = stream(seed, "conformal", &[]);
    let mut halves = BTreeMap::new();
    for patient in patients {
        halves.entry(patient).or_insert_with(|| random.random::<bool>());
    }
    let half = |one: &Known| halves[&patients[one.image]];
    let is_class = predictions.task == Task::Multiclass;
    let of_label = |(label, known): (&String, Vec<Known>)| {
        let mut found = Coverage::default();
        for fitted in [false, true] {
            let (fit, rest): (Vec<Known>, Vec<Known>) =
                known.iter().partition(|one| half(one) == fitted);
            let fit = fit.iter().map(|one| (one.probability, one.positive));
            let label = ConformalLabel::fit(fit, error);
            for one in rest {
                found.count(label.set(one.probability), one.positive, is_class);
            }
        }
        (label.clone(), found)
    };
    let known = known(predictions)?;
    Some(predictions.labels.iter().zip(known).map(of_label).collect())
}

impl Coverage {
    fn count(&mut self, set: DecisionSet, positive: bool, is_class: bool) {
        let add = |counts: &mut [usize; 2], is: bool| {
            counts[0] += usize::from(is);
            counts[1] += 1;
        };
        match positive {
            true => add(&mut self.positives, set.positive),
            false if is_class => return,
            false => add(&mut self.negatives, set.negative),
        }
        if !is_class {
            add(&mut self.decided, set.negative != set.positive);
        }
    }
}

#[cfg(test)]
#[path = "conformal_tests.rs"]
mod tests;
