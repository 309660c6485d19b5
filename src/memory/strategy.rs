//! How the steps of a run are taken: in which parts, and what each stage keeps.

use std::ops::Range;

use super::{BatchStatistics, CheckpointPlan, PipelinePart, Schedule};

/// How the steps of a run are taken.
#[derive(Debug, Clone)]
pub struct Strategy {
    /// Images that go through the network at once, at most; at least 1.
    pub micro_batch: usize,
    /// Images in a part at least, where a batch has as many: what BatchNorm needs; at most
    /// `micro_batch`.
    pub fewest: usize,
    /// What running statistics move towards.
    pub batch_norm: BatchStatistics,
    /// How many stages, from the first on, are frozen.
    pub frozen: usize,
    /// What each stage behind the frozen ones keeps.
    pub tree: CheckpointPlan,
    /// How many stages there are; in a pipeline, on this device.
    pub stages: usize,
    /// Which part of a pipeline they are, where they are one.
    pub part: Option<PipelinePart>,
}

impl Strategy {
    /// Whole batches of `batch` images, nothing recomputed.
    pub fn plain(stages: usize, batch: usize) -> Self {
        let batch_norm = BatchStatistics::default();
        Self {
            micro_batch: batch.max(1),
            fewest: 1,
            batch_norm,
            frozen: 0,
            tree: CheckpointPlan::keep_all(stages),
            stages,
            part: None,
        }
    }

    /// The images of each part of a batch of `images` images. Where too few are left for the last, it
    /// takes the others from the part before, or is taken with it where that would have too few then.
    pub fn parts(&self, images: usize) -> Vec<Range<usize>> {
        let mut starts: Vec<usize> = (0..images).step_by(self.micro_batch).collect();
        if let [.., before, last] = starts[..]
            && images - last < self.fewest
        {
            starts.pop();
            let moved = images - self.fewest;
            starts.extend((moved - before >= self.fewest).then_some(moved));
        }
        let ends = starts.iter().skip(1).copied().chain([images]);
        starts.iter().copied().zip(ends).map(|(start, end)| start..end).collect()
    }

    /// [`Strategy::parts`] of a batch that `copies` copies of the model compute together, each of which
    /// takes `micro_batch` images at once.
    pub fn parts_over(&self, images: usize, copies: usize) -> Vec<Range<usize>> {
        let micro_batch = self.micro_batch.saturating_mul(copies);
        Self { micro_batch, ..self.clone() }.parts(images)
    }

    /// The schedule of a step over `parts` parts.
    pub fn schedule(&self, parts: usize) -> Schedule {
        let Self { frozen, tree, stages, part, .. } = self;
        match part {
            Some(part) => Schedule::in_pipeline(*part, *frozen, tree, *stages, parts),
            None => Schedule::behind_frozen(*frozen, tree, *stages, parts),
        }
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

    #[test]
    fn no_part_has_fewer_images_than_batch_norm_needs() {
        for (micro_batch, images) in (2..6).flat_map(|micro| (0..20).map(move |n| (micro, n))) {
            let strategy = Strategy { micro_batch, fewest: 2, ..Strategy::plain(3, 10) };
            let parts = strategy.parts(images);
            let lengths: Vec<usize> = parts.iter().map(ExactSizeIterator::len).collect();
            assert_eq!(
                parts.into_iter().flatten().collect::<Vec<_>>(),
                (0..images).collect::<Vec<_>>()
            );
            assert!(lengths.iter().all(|length| *length >= images.min(2)), "{lengths:?}");
            let most = if images > 2 && micro_batch == 2 { 3 } else { micro_batch };
            assert!(lengths.iter().all(|length| *length <= most), "{lengths:?}");
        }
        let strategy = Strategy { micro_batch: 8, fewest: 2, ..Strategy::plain(3, 10) };
        assert_eq!(strategy.parts(9), [0..7, 7..9]);
        assert_eq!(strategy.parts(10), [0..8, 8..10]);
    }
}
