//! Where buffers lie that are known beforehand, so that they leave no gaps.

use std::cell::Cell;
use std::cmp::Reverse;

use super::BufferLifetime;

/// Where the buffers lie that the passes of a step take, in one piece of memory.
///
/// The largest is placed first, and each at the lowest place that no buffer has which is in use at the same time: "greedy by size
/// for offset calculation" (Pisarchyk and Lee, Efficient Memory Management for Deep Neural Net Inference, 2020, section 5.2). An
/// allocator that places them in the order in which they are asked for needs up to a quarter more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Placement {
    /// Bytes of all of it.
    pub bytes: u64,
    /// The places of the buffers that each operation takes, in the order in which it takes them.
    pub operations: Vec<Vec<Place>>,
}

/// The place of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Where it begins.
    pub begin: u64,
    /// Its bytes, a multiple of [`Placement::ALIGNMENT`].
    pub bytes: u64,
}

impl Placement {
    /// Buffers begin at multiples of so many bytes.
    pub const ALIGNMENT: u64 = 512;

    /// What a buffer of so many bytes takes.
    pub fn room(bytes: u64) -> u64 {
        bytes.next_multiple_of(Self::ALIGNMENT)
    }

    /// That of those of `buffers` that passes take in the last step. A buffer's place is free for another one from the moment on at
    /// which it is given back.
    pub fn of(buffers: &[BufferLifetime]) -> Self {
        let taken = buffers.iter().filter_map(|buffer| Some((buffer.pass?, buffer)));
        let last = taken.clone().map(|(pass, _)| pass.step).max();
        let taken = taken.filter(|(pass, _)| Some(pass.step) == last);
        let (operations, buffers): (Vec<usize>, Vec<&BufferLifetime>) =
            taken.map(|(pass, buffer)| (pass.operation, buffer)).unzip();
        let mut order: Vec<usize> = (0..buffers.len()).collect();
        order.sort_by_key(|number| {
            let BufferLifetime { bytes, from, to, .. } = buffers[*number];
            (Reverse((*bytes, to - from)), *from)
        });
        let mut begins = vec![0; buffers.len()];
        let mut all = 0;
        for (count, number) in order.iter().enumerate() {
            let (own, bytes) = (buffers[*number], Self::room(buffers[*number].bytes));
            let beside = order[..count].iter().filter(|other| is_beside(own, buffers[**other]));
            let mut beside: Vec<[u64; 2]> = beside
                .map(|other| [begins[*other], begins[*other] + Self::room(buffers[*other].bytes)])
                .collect();
            beside.sort_unstable();
            let mut begin = 0;
            for [from, to] in beside {
                if begin + bytes <= from {
                    break;
                }
                begin = begin.max(to);
            }
            begins[*number] = begin;
            all = all.max(begin + bytes);
        }
        let mut places = vec![Vec::new(); operations.iter().max().map_or(0, |last| last + 1)];
        for ((operation, begin), buffer) in operations.into_iter().zip(begins).zip(buffers) {
            places[operation].push(Place { begin, bytes: Self::room(buffer.bytes) });
        }
        Self { bytes: all, operations: places }
    }
}

/// Whether both are in use at the same time.
fn is_beside(one: &BufferLifetime, other: &BufferLifetime) -> bool {
    one.from < other.to && other.from < one.to
}

thread_local! {
    static UNDER_WAY: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Which operation of a step's schedule the current thread is at, for those who place what it takes: none once this is gone.
#[derive(Debug, Default)]
pub struct UnderWay(());

impl UnderWay {
    /// From now on it is at this one.
    pub fn at(&self, operation: usize) {
        UNDER_WAY.set(Some(operation));
    }

    /// The operation under way.
    pub fn operation() -> Option<usize> {
        UNDER_WAY.get()
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        UNDER_WAY.set(None);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::memory::StepOperation;

    /// The bytes that are in use at `time`.
    fn at_once(buffers: &[BufferLifetime], time: u64) -> u64 {
        let there = buffers.iter().filter(|buffer| buffer.from <= time && time < buffer.to);
        there.map(|buffer| Placement::room(buffer.bytes)).sum()
    }

    fn buffers() -> impl Strategy<Value = Vec<BufferLifetime>> {
        let buffer =
            (1_u64..40, 0_u64..60, 1_u64..30).prop_map(|(blocks, from, long)| BufferLifetime {
                bytes: 512 * blocks - 100,
                from,
                to: from + long,
                used: from,
                pass: Some(StepOperation { step: 1, operation: 0 }),
            });
        proptest::collection::vec(buffer, 1..60)
    }

    proptest! {
        #[test]
        fn buffers_that_are_in_use_at_once_lie_apart(buffers in buffers()) {
            let Placement { bytes, operations } = Placement::of(&buffers);
            let places = &operations[0];
            for (number, (own, place)) in buffers.iter().zip(places).enumerate() {
                prop_assert!(place.begin % Placement::ALIGNMENT == 0);
                prop_assert!(own.bytes <= place.bytes && place.begin + place.bytes <= bytes);
                for (other, before) in buffers.iter().zip(&places[..number]) {
                    let apart = place.begin + place.bytes <= before.begin
                        || before.begin + before.bytes <= place.begin;
                    prop_assert!(apart || !is_beside(own, other));
                }
            }
            let peak = buffers.iter().map(|buffer| at_once(&buffers, buffer.from)).max();
            prop_assert!(Some(bytes) >= peak);
        }
    }

    /// A long buffer that comes late does not find its place taken by a short one that came before it.
    #[test]
    fn what_is_largest_lies_lowest() {
        let buffer = |blocks: u64, from, to, pass: Option<[usize; 2]>| BufferLifetime {
            bytes: 512 * blocks,
            from,
            to,
            used: from,
            pass: pass.map(|[step, operation]| StepOperation { step, operation }),
        };
        let all = [
            buffer(7, 0, 3, Some([0, 0])),
            buffer(4, 3, 6, Some([1, 0])),
            buffer(9, 3, 12, None),
            buffer(2, 4, 12, Some([1, 2])),
            buffer(5, 7, 12, Some([1, 2])),
        ];
        let place = |begin: u64, bytes: u64| Place { begin: 512 * begin, bytes: 512 * bytes };
        let operations = vec![vec![place(0, 4)], vec![], vec![place(5, 2), place(0, 5)]];
        assert_eq!(Placement::of(&all), Placement { bytes: 7 * 512, operations });
    }

    #[test]
    fn no_operation_is_under_way_once_a_step_has_ended() {
        let step = UnderWay::default();
        step.at(3);
        assert_eq!(UnderWay::operation(), Some(3));
        drop(step);
        assert_eq!(UnderWay::operation(), None);
    }
}
