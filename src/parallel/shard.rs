//! What devices with the same weights share out of an optimizer's work: stage 1 of ZeRO (Rajbhandari et al. 2020,
//! arXiv:1910.02054), as PyTorch's `ZeroRedundancyOptimizer` has it.
//!
//! Each device updates its shard of every tensor of weights, keeps the optimizer's state and the average of that
//! shard alone, and gets the other shards' new weights from the devices that have them. Optimizers work number by
//! number, so the bits are those of one device that updates the whole tensor.

use std::ops::Range;

use burn::tensor::{DType, Device, Tensor};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Member;

/// Where the optimizer's state lies where several devices have the same weights.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OptimizerPlacement {
    /// Every device keeps all of it and updates all weights.
    #[default]
    Replicated,
    /// Every device keeps a part of it, updates that part of the weights and sends these to the others. It
    /// takes less memory and gives the same numbers. PyTorch has this as `ZeroRedundancyOptimizer`; it is
    /// stage 1 of ZeRO.
    Sharded,
}

/// The part of every tensor of weights that one device updates, of several that have the same weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    rank: usize,
    ranks: usize,
}

impl Shard {
    /// All of it.
    pub const WHOLE: Self = Self { rank: 0, ranks: 1 };

    /// That of the device at place `rank`, from 0, of `ranks`.
    pub fn new(rank: usize, ranks: usize) -> Self {
        Self { rank, ranks }
    }

    /// Whether it is all of it.
    pub fn is_whole(self) -> bool {
        self.ranks == 1
    }

    /// Its place in a tensor of `length` numbers. Shards lie one behind another in the order of the devices, and
    /// their lengths differ by 1 at most.
    pub fn range(self, length: usize) -> Range<usize> {
        let Self { rank, ranks } = self;
        length * rank / ranks..length * (rank + 1) / ranks
    }

    /// Its numbers of `values`; none where a tensor has fewer numbers than there are devices.
    pub fn of(self, values: Tensor<1>) -> Option<Tensor<1>> {
        if self.is_whole() {
            return Some(values);
        }
        let range = self.range(values.dims()[0]);
        // In memory of its own: a part of a tensor would keep all of the tensor's memory.
        (!range.is_empty()).then(|| values.clone().slice([range]).mul_scalar(1.0))
    }

    /// The tensor `name` of `length` numbers of which `part` is this shard, put together from those of all devices of
    /// `row`. It is put on the device and in the numbers `to`.
    ///
    /// Unwinds with [`Abandoned`](super::Abandoned) when one of them has failed.
    pub fn whole(
        self,
        row: &Member,
        name: &str,
        part: Option<Tensor<1>>,
        length: usize,
        to: (&Device, DType),
    ) -> Tensor<1> {
        match part {
            Some(part) if self.is_whole() => part,
            part => row.join(name, part, length, to),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_follow_one_another_and_are_as_long_as_each_other() {
        for ranks in 1..9 {
            for length in (0..70).chain([1 << 20, 1_736_000_001]) {
                let ranges = (0..ranks).map(|rank| Shard::new(rank, ranks).range(length));
                let ranges: Vec<_> = ranges.collect();
                assert_eq!((ranges[0].start, ranges[ranks - 1].end), (0, length));
                assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start));
                let even = length / ranks..=length.div_ceil(ranks);
                assert!(ranges.iter().all(|range| even.contains(&range.len())), "{ranges:?}");
            }
        }
    }

    #[test]
    fn a_shard_is_its_own_numbers_or_none() {
        let values =
            || Tensor::<1>::from_data([0.5, -0.0, 3.0, f32::MIN_POSITIVE], &Device::flex());
        let of = |rank, ranks| {
            let part = Shard::new(rank, ranks).of(values())?;
            Some(part.into_data().iter::<f32>().map(f32::to_bits).collect::<Vec<_>>())
        };
        let bits = |values: &[f32]| Some(values.iter().map(|value| value.to_bits()).collect());
        assert_eq!(of(0, 1), bits(&[0.5, -0.0, 3.0, f32::MIN_POSITIVE]));
        assert_eq!([of(0, 3), of(1, 3)], [bits(&[0.5]), bits(&[-0.0])]);
        assert_eq!(of(2, 3), bits(&[3.0, f32::MIN_POSITIVE]));
        assert_eq!([of(0, 5), of(4, 5)], [None, bits(&[f32::MIN_POSITIVE])]);
    }
}
