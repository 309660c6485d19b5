//! How the steps of a run are taken: in which parts, and what each stage keeps.

use std::ops::Range;

use super::{BatchStatistics, Schedule, Tree};

/// How the steps of a run are taken.
#[derive(Debug, Clone)]
pub struct Strategy {
    /// Images that go through the network at once, at most; at least 1.
    pub micro_batch: usize,
    /// What running statistics move towards.
    pub batch_norm: BatchStatistics,
    /// What each stage keeps.
    pub tree: Tree,
    /// How many stages there are.
    pub stages: usize,
}

impl Strategy {
    /// Whole batches of `batch` images, nothing recomputed.
    pub fn plain(stages: usize, batch: usize) -> Self {
        let batch_norm = BatchStatistics::default();
        Self { micro_batch: batch.max(1), batch_norm, tree: Tree::keep_all(stages), stages }
    }

    /// The images of each part of a batch of `images` images.
    pub fn parts(&self, images: usize) -> Vec<Range<usize>> {
        let end = |start: usize| (start + self.micro_batch).min(images);
        (0..images).step_by(self.micro_batch).map(|start| start..end(start)).collect()
    }

    /// The schedule of a step over `parts` parts.
    pub fn schedule(&self, parts: usize) -> Schedule {
        Schedule::of_tree(&self.tree, self.stages, parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_part_is_what_is_left() {
        let strategy = Strategy { micro_batch: 4, ..Strategy::plain(3, 10) };
        assert_eq!(strategy.parts(10), [0..4, 4..8, 8..10]);
        assert_eq!(strategy.parts(5), [0..4, 4..5]);
        assert_eq!(Strategy::plain(3, 10).parts(10).len(), 1);
    }
}
