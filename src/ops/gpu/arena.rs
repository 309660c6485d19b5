//! Which parts of a piece of memory are in use.

use std::collections::BTreeMap;

use crate::memory::{Place, Placement, UnderWay};

/// A piece of memory whose parts are given out and come back: each where a step's placement has it, or in the smallest gap with
/// room.
///
/// CubeCL's allocator gives out places in the order in which they are asked for and cannot know what comes, so that a step may hold a
/// quarter more than it uses.
#[derive(Debug, Default)]
pub(super) struct Parts {
    placement: Placement,
    /// Where each part in use begins and ends.
    taken: BTreeMap<u64, u64>,
    /// Bytes of all of these.
    bytes: u64,
    /// The operation that took the last part, and how many of its places are behind it.
    operation: Option<(usize, usize)>,
}

impl Parts {
    /// Of memory in which a step's buffers lie as `placement` has it.
    pub fn new(placement: Placement) -> Self {
        Self { placement, ..Self::default() }
    }

    /// Bytes of the parts in use.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where a part of `bytes` bytes lies from now on that the operation under way takes; none where there is no room.
    pub fn take(&mut self, bytes: u64) -> Option<u64> {
        let bytes = Placement::room(bytes);
        let begin = self.planned(bytes).or_else(|| self.smallest_gap(bytes))?;
        self.taken.insert(begin, begin + bytes);
        self.bytes += bytes;
        Some(begin)
    }

    /// The part that begins there is no longer in use.
    pub fn give_back(&mut self, begin: u64) {
        if let Some(end) = self.taken.remove(&begin) {
            self.bytes -= end - begin;
        }
    }

    /// Where the placement has the next part that the operation under way takes, unless that is in use.
    fn planned(&mut self, bytes: u64) -> Option<u64> {
        let operation = UnderWay::operation()?;
        let from = match self.operation {
            Some((same, taken)) if same == operation => taken,
            _ => 0,
        };
        self.operation = Some((operation, from));
        let places = self.placement.operations.get(operation)?.get(from..)?;
        // What is there from before is not taken. The last batch may have fewer images, and smaller buffers.
        let same = places.iter().position(|place| place.bytes == bytes);
        let skipped = same.or_else(|| places.iter().position(|place| place.bytes > bytes))?;
        self.operation = Some((operation, from + skipped + 1));
        let place = Place { bytes, ..places[skipped] };
        self.is_free(place).then_some(place.begin)
    }

    fn is_free(&self, Place { begin, bytes }: Place) -> bool {
        let before = self.taken.range(..begin + bytes).next_back();
        before.is_none_or(|(_, end)| *end <= begin)
    }

    fn smallest_gap(&self, bytes: u64) -> Option<u64> {
        let ends = self.taken.iter().map(|(begin, end)| (*begin, *end));
        let behind = (self.placement.bytes, self.placement.bytes);
        let gaps = ends.chain([behind]).scan(0, |end_before, (begin, end)| {
            let from = std::mem::replace(end_before, end);
            Some((begin - from, from))
        });
        gaps.filter(|(gap, _)| *gap >= bytes).min().map(|(_, begin)| begin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(parts: &mut Parts, count: u64) -> Option<u64> {
        parts.take(512 * count - 17).map(|begin| begin / 512)
    }

    fn placement() -> Placement {
        let place = |begin: u64, bytes: u64| Place { begin: 512 * begin, bytes: 512 * bytes };
        let operations = vec![vec![place(6, 4), place(0, 2)], vec![place(3, 3)]];
        Placement { bytes: 512 * 10, operations }
    }

    #[test]
    fn parts_lie_where_the_placement_has_them_and_smaller_ones_in_the_places_of_larger_ones() {
        let mut parts = Parts::new(placement());
        let step = UnderWay::default();
        for [first, second, third] in [[4, 2, 3], [4, 2, 3], [3, 1, 2], [3, 1, 2]] {
            step.at(0);
            assert_eq!([first, second].map(|count| blocks(&mut parts, count)), [Some(6), Some(0)]);
            step.at(1);
            assert_eq!(blocks(&mut parts, third), Some(3));
            assert_eq!(parts.bytes(), 512 * (first + second + third));
            [6, 0, 3].into_iter().for_each(|begin| parts.give_back(512 * begin));
            assert_eq!(parts.bytes(), 0);
        }
    }

    #[test]
    fn what_is_not_placed_lies_in_the_smallest_gap() {
        let mut parts = Parts::new(placement());
        assert_eq!(blocks(&mut parts, 1), Some(0), "outside a step");
        let step = UnderWay::default();
        step.at(1);
        assert_eq!(blocks(&mut parts, 3), Some(3));
        step.at(0);
        assert_eq!(blocks(&mut parts, 4), Some(6));
        assert_eq!(blocks(&mut parts, 2), Some(1), "the place of the second is in use");
        assert_eq!(blocks(&mut parts, 1), None, "an operation takes more than is known of it");
        drop(step);
        parts.give_back(512 * 3);
        assert_eq!(blocks(&mut parts, 4), None);
        assert_eq!(blocks(&mut parts, 3), Some(3));
        assert_eq!(parts.bytes(), 512 * 10);
    }
}
