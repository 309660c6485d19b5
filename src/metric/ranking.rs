//! Images in the order of their scores, equal scores together.

use super::Example;

/// Known labels of one label or class in ascending order of score.
#[derive(Default)]
pub(crate) struct Ranking {
    ranked: Vec<Ranked>,
}

struct Ranked {
    image: usize,
    positive: bool,
    /// Whether its score is above the one before it, so that it opens a group of equal scores.
    opens: bool,
}

/// How many positives and negatives have the same score.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tied {
    pub positives: u64,
    pub negatives: u64,
}

impl Ranking {
    /// `None` if a score is not finite.
    pub fn new(examples: &[Example]) -> Option<Self> {
        if examples.iter().any(|example| !example.score.is_finite()) {
            return None;
        }
        let mut sorted: Vec<&Example> = examples.iter().collect();
        // `total_cmp` puts −0 below 0, but beside it; as numbers they are equal, hence one group.
        sorted.sort_unstable_by(|a, b| a.score.total_cmp(&b.score));
        let mut before = None;
        let ranked = sorted.into_iter().map(|example| Ranked {
            image: example.image,
            positive: example.positive,
            opens: before.replace(example.score) != Some(example.score),
        });
        Some(Self { ranked: ranked.collect() })
    }

    /// The images that are positive, or those that are not.
    pub fn images(&self, positive: bool) -> impl Iterator<Item = usize> {
        self.ranked.iter().filter(move |one| one.positive == positive).map(|one| one.image)
    }

    /// The groups of equal scores, ascending, with the image at `i` counted `times(i)` times.
    pub fn tied(&self, times: impl Fn(usize) -> u64) -> Vec<Tied> {
        let mut groups: Vec<Tied> = Vec::new();
        for example in &self.ranked {
            if example.opens {
                groups.push(Tied::default());
            }
            if let Some(group) = groups.last_mut() {
                let count =
                    if example.positive { &mut group.positives } else { &mut group.negatives };
                *count += times(example.image);
            }
        }
        groups
    }
}
