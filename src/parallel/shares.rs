//! How a batch is shared out.

use std::ops::Range;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What BatchNorm normalises over where several devices compute a batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BatchNormOver {
    /// The images of all devices that are computed at once: the numbers of one device that computes
    /// them all. PyTorch has this as `SyncBatchNorm`.
    #[default]
    Sync,
    /// The images of each device on its own, as PyTorch's `DistributedDataParallel` does it. Devices
    /// exchange less, and the numbers depend on how many devices there are.
    Local,
}

/// A device's part of the images that all devices compute at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its images, by their places in the global batch; at least one.
    pub images: Range<usize>,
    /// The images of all devices together.
    pub together: Range<usize>,
    /// How many devices, from the first on, have images of these.
    pub ranks: usize,
}

impl Part {
    /// The whole of `together`, on one device.
    pub fn alone(together: Range<usize>) -> Self {
        Self { images: together.clone(), together, ranks: 1 }
    }
}

/// Shares out a batch over `ranks` devices: `parts` says which of its images are computed at once. Each of
/// these parts is split into runs of images that differ by one at most, of at least `fewest` images each,
/// so that some devices have none of a small part. The first devices then have some.
pub fn shares(parts: &[Range<usize>], ranks: usize, fewest: usize) -> Vec<Vec<Part>> {
    let of_rank = |rank: usize| {
        let part = |together: &Range<usize>| {
            let images = together.len();
            let ranks = (images / fewest.max(1)).clamp(1, ranks);
            let place = |rank: usize| together.start + images * rank / ranks;
            (rank < ranks).then(|| Part {
                images: place(rank)..place(rank + 1),
                together: together.clone(),
                ranks,
            })
        };
        parts.iter().filter_map(part).collect()
    };
    (0..ranks).map(of_rank).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_image_is_on_one_device_and_devices_have_as_many_as_others() {
        for (images, ranks, fewest) in
            (1..30).flat_map(|images| (1..6).flat_map(move |r| [(images, r, 1), (images, r, 2)]))
        {
            let parts: Vec<Range<usize>> =
                (0..images).step_by(11).map(|start| start..images.min(start + 11)).collect();
            let shares = shares(&parts, ranks, fewest);
            let mut all: Vec<usize> =
                shares.iter().flatten().flat_map(|part| part.images.clone()).collect();
            all.sort_unstable();
            assert_eq!(all, (0..images).collect::<Vec<_>>());
            for part in shares.iter().flatten() {
                let (most, least) = (part.together.len().div_ceil(part.ranks), part.images.len());
                assert!(least == most || least + 1 == most);
                assert!(least >= fewest.min(part.together.len()));
            }
            for (rank, share) in shares.iter().enumerate() {
                assert!(share.iter().all(|part| rank < part.ranks));
            }
        }
    }

    #[test]
    fn a_part_with_fewer_images_than_devices_is_on_the_first_ones() {
        let parts = [0..8, 8..11];
        let of = |rank: usize| -> Vec<usize> {
            shares(&parts, 4, 1)[rank].iter().flat_map(|part| part.images.clone()).collect()
        };
        assert_eq!([of(0), of(2), of(3)], [vec![0, 1, 8], vec![4, 5, 10], vec![6, 7]]);
    }
}
