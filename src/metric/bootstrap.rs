//! How far a metric would move with other images: resamples of them (Efron 1979).

use std::collections::{BTreeMap, BTreeSet};

use rand::RngExt;
use rayon::prelude::*;

use super::auroc;
use super::interval::{Interval, Link, welch};
use super::mean;
use super::ranking::Ranking;
use crate::random;

/// Resamples behind the intervals that a run tells.
pub const RESAMPLES: usize = 1000;

/// How many times at most groups are left out in turn.
const PARTS: usize = 1000;

/// Draws images, or whole groups of images, with replacement.
#[derive(Debug, Clone)]
pub struct Resampler {
    /// The group of each image, counted from 0 without gaps.
    group_of: Vec<usize>,
    groups: usize,
    seed: u64,
}

impl Resampler {
    /// Each image by itself, or together with those of the same number in `groups` (a patient's).
    ///
    /// # Panics
    ///
    /// If `groups` is not as long as there are images.
    pub fn new(images: usize, groups: Option<&[usize]>, seed: u64) -> Self {
        let Some(groups) = groups else {
            return Self { group_of: (0..images).collect(), groups: images, seed };
        };
        assert_eq!(groups.len(), images, "one group for each image");
        let mut numbers = BTreeMap::new();
        let mut group_of = Vec::with_capacity(images);
        for group in groups {
            let next = numbers.len();
            group_of.push(*numbers.entry(group).or_insert(next));
        }
        Self { group_of, groups: numbers.len(), seed }
    }

    /// How often each image occurs in the resample of this number.
    fn times(&self, resample: usize) -> Vec<u64> {
        let mut random = random::stream(self.seed, "bootstrap", &[resample as u64]);
        let mut drawn = vec![0; self.groups];
        for _ in 0..self.groups {
            drawn[random.random_range(0..self.groups)] += 1;
        }
        self.group_of.iter().map(|&group| drawn[group]).collect()
    }

    /// What `measure` finds in each of so many resamples, in their order. It is told how often each
    /// image occurs in a resample.
    ///
    /// A resample is drawn by its number alone, so the number of threads changes nothing.
    pub fn each<T: Send>(&self, resamples: usize, measure: impl Fn(&[u64]) -> T + Sync) -> Vec<T> {
        let drawn = (0..resamples).into_par_iter();
        drawn.map(|resample| measure(&self.times(resample))).collect()
    }

    /// What `measure` finds without each group, one after another; it is told 1 of each image that is there, and else 0.
    ///
    /// More than a thousand groups are left out in a thousand parts of as many groups each, give or take one (Kott 2001).
    pub fn left_out<T: Send>(&self, measure: impl Fn(&[u64]) -> T + Sync) -> Vec<T> {
        let parts = self.groups.min(PARTS);
        let without = |part: usize| -> Vec<u64> {
            self.group_of.iter().map(|group| u64::from(group % parts != part)).collect()
        };
        (0..parts).into_par_iter().map(|part| measure(&without(part))).collect()
    }

    /// How many images there are.
    pub fn images(&self) -> usize {
        self.group_of.len()
    }

    /// How many groups (patients) there are.
    pub fn groups(&self) -> usize {
        self.groups
    }

    /// To how many groups the `images` of these numbers belong.
    pub fn groups_of(&self, images: impl Iterator<Item = usize>) -> usize {
        images.map(|image| self.group_of[image]).collect::<BTreeSet<_>>().len()
    }

    /// The sum over the images of each group that are told, with their values; of groups without any, nothing.
    pub fn sums(&self, images: impl Iterator<Item = (usize, f64)>) -> Vec<f64> {
        let mut sums = BTreeMap::new();
        images.for_each(|(image, value)| *sums.entry(self.group_of[image]).or_insert(0.0) += value);
        sums.into_values().collect()
    }

    /// The interval of the mean AUROC over `rankings`, and of each one's own.
    ///
    /// A resample in which a label has one class only leaves that label out of its mean.
    pub(super) fn auroc(&self, rankings: &[Ranking], resamples: usize) -> AurocIntervals {
        let areas = |times: &[u64]| -> Vec<Option<f64>> {
            let area = |ranking: &Ranking| auroc::of_groups(&ranking.tied(|image| times[image]));
            rankings.iter().map(area).collect()
        };
        let found = areas(&vec![1; self.images()]);
        let resampled = self.each(resamples, areas);
        let freedom: Vec<Option<f64>> = rankings.iter().map(|one| self.freedom(one)).collect();
        let interval = |value: Option<f64>, resampled: Vec<f64>, freedom: Option<f64>| {
            Interval::of(value?, &resampled, self.groups, Link::Logit, freedom?)
        };
        let means = resampled.iter().filter_map(|areas| mean(areas.iter().flatten().copied()));
        let of_mean = interval(
            mean(found.iter().flatten().copied()),
            means.collect(),
            mean(freedom.iter().flatten().copied()),
        );
        let each = (0..rankings.len()).map(|label| {
            let resampled = resampled.iter().filter_map(|areas| areas[label]).collect();
            interval(found[label], resampled, freedom[label])
        });
        AurocIntervals { mean: of_mean, each: each.collect() }
    }

    fn freedom(&self, ranking: &Ranking) -> Option<f64> {
        let [positives, negatives] =
            [true, false].map(|positive| self.groups_of(ranking.images(positive)));
        welch(positives, negatives)
    }
}

/// What [`Resampler::auroc`] finds; `None` where no resample defines it.
pub(super) struct AurocIntervals {
    pub mean: Option<Interval>,
    pub each: Vec<Option<Interval>>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Example;

    #[derive(serde::Deserialize)]
    struct Fixture {
        bootstrap: Bootstrapped,
    }

    /// An interval from the standard error of scipy.stats.bootstrap.
    #[derive(serde::Deserialize)]
    struct Bootstrapped {
        scores: Vec<f64>,
        positive: Vec<bool>,
        low: f64,
        high: f64,
    }

    fn fixture() -> Fixture {
        serde_json::from_str(include_str!("../../tests/fixtures/metrics.json")).expect("reads")
    }

    fn ranking(scores: &[f64], positive: &[bool]) -> Ranking {
        let examples: Vec<Example> = (0..scores.len())
            .map(|image| Example {
                image,
                score: scores[image],
                predicted: false,
                positive: positive[image],
            })
            .collect();
        Ranking::new(&examples).expect("finite scores")
    }

    #[test]
    fn the_interval_is_that_of_scipy_but_for_the_draws() {
        let Bootstrapped { scores, positive, low, high } = fixture().bootstrap;
        let resampler = Resampler::new(scores.len(), None, 3);
        let ours = resampler.auroc(&[ranking(&scores, &positive)], 4000).mean.expect("is defined");
        assert!((ours.low - low).abs() < 0.01, "{ours:?} for {low}");
        assert!((ours.high - high).abs() < 0.01, "{ours:?} for {high}");
    }

    #[test]
    fn images_of_a_group_are_drawn_together() {
        let Bootstrapped { scores, positive, .. } = fixture().bootstrap;
        let once = Resampler::new(scores.len(), None, 5);
        let once = once.auroc(&[ranking(&scores, &positive)], 200).mean;
        // Each image three times, under a group's number that is arbitrary.
        let thrice = |index: usize| index / 3;
        let groups: Vec<usize> = (0..3 * scores.len()).map(|i| 1000 - 7 * thrice(i)).collect();
        let scores: Vec<f64> = (0..3 * scores.len()).map(|i| scores[thrice(i)]).collect();
        let positive: Vec<bool> = (0..scores.len()).map(|i| positive[thrice(i)]).collect();
        let grouped = Resampler::new(scores.len(), Some(&groups), 5);
        assert_eq!(grouped.auroc(&[ranking(&scores, &positive)], 200).mean, once);
    }

    #[test]
    fn a_seed_fixes_the_interval_and_more_resamples_keep_the_first_ones() {
        let (one, other) = (Resampler::new(50, None, 1), Resampler::new(50, None, 2));
        assert_eq!(one.times(7), Resampler::new(50, None, 1).times(7));
        assert_ne!(one.times(7), one.times(8));
        assert_ne!(one.times(7), other.times(7));
        assert_eq!(one.times(7).iter().sum::<u64>(), 50);
    }

    #[test]
    fn what_is_measured_comes_in_the_order_of_the_resamples() {
        let resampler = Resampler::new(9, Some(&[0, 0, 1, 2, 2, 2, 3, 4, 5]), 8);
        for resamples in [0, 1, 2, 3, 101] {
            let expected: Vec<Vec<u64>> = (0..resamples).map(|one| resampler.times(one)).collect();
            assert_eq!(resampler.each(resamples, <[u64]>::to_vec), expected);
        }
    }

    #[test]
    fn resamples_without_both_classes_are_left_out() {
        // Two of the thirty are positive: in about e⁻² of the resamples none is.
        let positive: Vec<bool> = (0..30).map(|image| image == 20 || image == 29).collect();
        let scores: Vec<f64> = (0..30).map(f64::from).collect();
        let resampler = Resampler::new(30, None, 1);
        let ranked = ranking(&scores, &positive);
        let area = |times: &[u64]| auroc::of_groups(&ranked.tied(|image| times[image]));
        let found: Vec<f64> = resampler.each(1000, area).into_iter().flatten().collect();
        assert!((820..910).contains(&found.len()), "{}", found.len());
        let value = area(&[1; 30]).expect("both classes");
        let freedom = welch(2, 28).expect("two of each");
        let expected = Interval::of(value, &found, 30, Link::Logit, freedom);
        assert!(expected.is_some());
        assert_eq!(resampler.auroc(&[ranking(&scores, &positive)], 1000).mean, expected);
        let one_class = ranking(&scores, &[true; 30]);
        assert_eq!(resampler.auroc(&[one_class], 50).mean, None);
        assert_eq!(Resampler::new(0, None, 1).auroc(&[], 10).mean, None);
    }
}
