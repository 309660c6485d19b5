//! Maps put behind one another, and sums of maps: as much memory as the norms move, so all threads do it.

use std::mem::MaybeUninit;

use rayon::prelude::*;

use crate::Maps;
use crate::matrix::written;

/// Values that a thread takes at once.
const BLOCK: usize = 1 << 14;

/// Of each of `batch` images the maps of all `parts`, one part behind the other. A part is maps, and how many values
/// it has of an image.
pub fn joined(batch: usize, parts: &[(Maps<'_>, usize)]) -> Vec<f32> {
    let each: usize = parts.iter().map(|(_, count)| count).sum();
    let write = |out: &mut [MaybeUninit<f32>]| {
        out.par_chunks_mut(each.max(1)).enumerate().for_each(|(image, mut rest)| {
            for (maps, count) in parts {
                let (out, behind) = rest.split_at_mut(*count);
                rest = behind;
                let from = maps.image(image)[..*count].par_chunks(BLOCK);
                out.par_chunks_mut(BLOCK).zip(from).for_each(|(out, from)| {
                    out.write_copy_of_slice(from);
                });
            }
        });
    };
    // SAFETY: the parts of an image are all its values, and each is written.
    #[expect(unsafe_code, reason = "the result is not cleared before it is written")]
    let (values, ()) = unsafe { written(batch * each, write) };
    values
}

/// Adds maps of `batch` images to `sum`, whose images lie one behind the other.
pub fn add(batch: usize, sum: &mut [f32], maps: Maps<'_>) {
    let each = sum.len().checked_div(batch).unwrap_or(0);
    assert_eq!(batch * each, sum.len(), "whole images");
    sum.par_chunks_mut(each.max(1)).enumerate().for_each(|(image, sum)| {
        let from = maps.image(image)[..each].par_chunks(BLOCK);
        sum.par_chunks_mut(BLOCK).zip(from).for_each(|(sum, from)| {
            sum.iter_mut().zip(from).for_each(|(sum, value)| *sum += value);
        });
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(count: usize, first: f32) -> Vec<f32> {
        (0..count).map(|place| first + place as f32).collect()
    }

    #[test]
    fn parts_stand_behind_one_another_in_each_image() {
        // More than a block, none, and maps between which others lie.
        let [many, apart] = [(3 * (BLOCK + 5), 0.0), (3 * 11, 0.5)].map(|(n, at)| numbers(n, at));
        let parts = [(&many, BLOCK + 5, BLOCK + 5), (&many, 0, 1), (&apart, 7, 11)];
        let given = parts.map(|(values, count, stride)| (Maps::new(values, stride), count));
        let each = BLOCK + 5 + 7;
        let expected = |place: usize| {
            let (image, mut place) = (place / each, place % each);
            for (values, count, stride) in parts {
                if place < count {
                    return values[image * stride + place];
                }
                place -= count;
            }
            unreachable!("a value of a part")
        };
        let found = joined(3, &given);
        assert_eq!(found, (0..3 * each).map(expected).collect::<Vec<_>>());
        assert_eq!(joined(0, &given), Vec::<f32>::new());
        assert_eq!(joined(3, &[]), Vec::<f32>::new());
    }

    #[test]
    fn sums_are_those_of_the_values_at_the_same_place() {
        for (each, stride) in [(BLOCK + 3, BLOCK + 3), (5, 9), (0, 4)] {
            let (before, maps) = (numbers(2 * each, 0.25), numbers(2 * stride, 3.0));
            let mut sum = before.clone();
            add(2, &mut sum, Maps::new(&maps, stride));
            for (place, (sum, before)) in sum.iter().zip(&before).enumerate() {
                let other = maps[place / each * stride + place % each];
                assert_eq!(*sum, before + other);
            }
        }
    }
}
