//! How far a metric would move with other images: the percentile bootstrap (Efron 1979).

use std::collections::BTreeMap;
use std::thread;

use rand::RngExt;

use super::auroc;
use super::mean;
use super::ranking::Ranking;
use crate::random;

/// Resamples behind the intervals that a run tells.
pub const RESAMPLES: usize = 1000;

/// The middle 95% of a metric over resamples of the images.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The 2.5% quantile.
    pub low: f64,
    /// The 97.5% quantile.
    pub high: f64,
    /// The resamples in which the metric was defined; the quantiles are over these.
    pub defined: usize,
}

impl Interval {
    /// That of a metric's values over the resamples that define it; `None` without a value.
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_unstable_by(f64::total_cmp);
        let (low, high) = (quantile(&values, 0.025)?, quantile(&values, 0.975)?);
        Some(Self { low, high, defined: values.len() })
    }
}

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
        let threads = thread::available_parallelism().map_or(1, usize::from).min(resamples.max(1));
        let part = |thread: usize| resamples * thread / threads..resamples * (thread + 1) / threads;
        let measured = |thread: usize| -> Vec<T> {
            part(thread).map(|resample| measure(&self.times(resample))).collect()
        };
        thread::scope(|scope| {
            let measured = &measured;
            let started: Vec<_> =
                (1..threads).map(|thread| scope.spawn(move || measured(thread))).collect();
            let mut all = measured(0);
            for thread in started {
                let part = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                all.extend(part);
            }
            all
        })
    }

    /// The interval of the mean AUROC over `rankings`, and of each one's own.
    ///
    /// A resample in which a label has one class only leaves that label out of its mean.
    pub(super) fn auroc(&self, rankings: &[Ranking], resamples: usize) -> AurocIntervals {
        let areas = self.each(resamples, |times| -> Vec<Option<f64>> {
            let area = |ranking: &Ranking| auroc::of_groups(&ranking.tied(|image| times[image]));
            rankings.iter().map(area).collect()
        });
        let means = areas.iter().filter_map(|areas| mean(areas.iter().flatten().copied()));
        let each = |label: usize| areas.iter().filter_map(|areas| areas[label]).collect();
        AurocIntervals {
            mean: Interval::of(means.collect()),
            each: (0..rankings.len()).map(|label| Interval::of(each(label))).collect(),
        }
    }
}

/// What [`Resampler::auroc`] finds; `None` where no resample defines it.
pub(super) struct AurocIntervals {
    pub mean: Option<Interval>,
    pub each: Vec<Option<Interval>>,
}

/// The quantile of ascending numbers, linear between them as NumPy's default.
fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let position = share * (sorted.len().checked_sub(1)?) as f64;
    let below = sorted[position.floor() as usize];
    let above = sorted[position.ceil() as usize];
    Some(below + (above - below) * position.fract())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Example;

    #[derive(serde::Deserialize)]
    struct Fixture {
        quantiles: Quantiles,
        bootstrap: Bootstrapped,
    }

    #[derive(serde::Deserialize)]
    struct Quantiles {
        values: Vec<f64>,
        shares: Vec<f64>,
        expected: Vec<f64>,
    }

    /// An interval by scipy.stats.bootstrap.
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
    fn quantiles_are_those_of_numpy() {
        let Quantiles { mut values, shares, expected } = fixture().quantiles;
        values.sort_unstable_by(f64::total_cmp);
        for (share, expected) in shares.into_iter().zip(expected) {
            let ours = quantile(&values, share).expect("there are values");
            assert!((ours - expected).abs() < 1e-12, "{share}: {ours} for {expected}");
        }
        assert_eq!(quantile(&[], 0.5), None);
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
    fn resamples_without_both_classes_are_left_out_and_counted() {
        // The only positive is missing from about 1 / e of the resamples.
        let positive: Vec<bool> = (0..30).map(|image| image == 29).collect();
        let scores: Vec<f64> = (0..30).map(f64::from).collect();
        let resampler = Resampler::new(30, None, 1);
        let interval = resampler.auroc(&[ranking(&scores, &positive)], 1000).mean;
        let Interval { low, high, defined } = interval.expect("some resamples define it");
        assert_eq!((low, high), (1.0, 1.0));
        assert!((580..690).contains(&defined), "{defined}");
        let one_class = ranking(&scores, &[true; 30]);
        assert_eq!(resampler.auroc(&[one_class], 50).mean, None);
        assert_eq!(Resampler::new(0, None, 1).auroc(&[], 10).mean, None);
    }
}
