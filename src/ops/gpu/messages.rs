//! Messages between neighbouring cards of a pipeline, by kernels that write into each other's memory.
//!
//! No thread waits until a message has come: the card that receives it does, in its own stream of work, and so does a card
//! that would write over one which has not been received. `kernels/send_rows.cu` says how they travel.
//!
//! Whoever launches a kernel that waits must know that the one for which it waits has been launched. Cards then come to the end
//! of all that is launched, even where the driver holds up a thread: when a stream has no room for another launch, or
//! memory is taken.

use super::kernels::{EXCHANGE, blocks};
use super::{Buffer, ChannelsLast, Exchange, Kernel, Sizes, Storage};

/// Blocks of the kernels, and bytes that a thread copies at once.
pub(super) const BLOCKS: usize = 128;
const UNIT: usize = 16;
/// 16-byte units in front of the slots: flags and acknowledgements of 32 bits.
const HEAD: usize = 2 * 2 * 2 * BLOCKS * 4 / UNIT;
const THREADS: usize = 512;
/// Bytes of a message, at most.
#[cfg(any(feature = "cuda", test))]
const LONGEST: usize = 4 << 30;
/// As many messages of one flow may be on their way to a card.
pub const AT_ONCE: usize = 2;

/// Where the messages of a pipeline's cards lie, which are at most so long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mailbox {
    /// 16-byte units of a slot.
    capacity: usize,
}

/// Rows of a message, side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rows {
    /// How many.
    pub rows: usize,
    /// Elements of one.
    pub length: usize,
    /// What they lie in.
    pub storage: Storage,
}

/// The kernels that give and take messages.
pub fn message_kernels() -> [Kernel; 2] {
    let kernel = |entry, text| Kernel::new(entry, THREADS as u32, &[], &[EXCHANGE.0, text]);
    [
        kernel("send_rows", include_str!("kernels/send_rows.cu")),
        kernel("receive_rows", include_str!("kernels/receive_rows.cu")),
    ]
}

impl Mailbox {
    /// One for messages of up to so many bytes.
    #[cfg(any(feature = "cuda", test))]
    pub(super) fn of(longest: usize) -> Self {
        // Longer ones go another way: kernels count units in 31 bits.
        Self { capacity: longest.min(LONGEST).div_ceil(UNIT) }
    }

    /// Bytes of the memory of each of `ranks` cards that the others reach.
    #[cfg(any(feature = "cuda", test))]
    pub(super) fn bytes(self, ranks: usize) -> usize {
        (HEAD + inboxes(ranks) * AT_ONCE * self.capacity) * UNIT
    }

    /// 16-byte units in front of the slot of message `number` of `flow`.
    fn slot(self, flow: usize, ranks: usize, number: u32) -> usize {
        let inbox = if inboxes(ranks) == 1 { 0 } else { flow };
        HEAD + (inbox * AT_ONCE + number as usize % AT_ONCE) * self.capacity
    }
}

/// A card between two others is sent values and gradients, one at an end either.
fn inboxes(ranks: usize) -> usize {
    if ranks > 2 { 2 } else { 1 }
}

/// Values go to the next card, gradients to the one before.
fn flow(from: usize, to: usize) -> usize {
    usize::from(to < from)
}

impl Rows {
    /// Those of a map.
    pub fn of_map(map: &ChannelsLast) -> Self {
        let storage = map.buffer().storage();
        Self { rows: map.pixels(), length: map.channels(), storage }
    }

    /// All of a buffer in one row.
    pub fn of_buffer(buffer: &Buffer) -> Self {
        Self { rows: 1, length: buffer.len(), storage: buffer.storage() }
    }

    /// 16-byte units of a row, where it is of whole ones.
    fn units(&self) -> Option<usize> {
        let bytes = self.length * self.storage.bytes();
        bytes.is_multiple_of(UNIT).then_some(bytes / UNIT)
    }
}

impl Exchange {
    /// Sends `rows`, of which one begins every `stride` elements of `from`, to its neighbour `to`; whether they can be sent
    /// so: they must fit, and be of whole 16 bytes each. Of the same attempt the message [`AT_ONCE`] before it must be one
    /// that the other card has [received](Self::receive) as far as launches go. Returns when this one is launched.
    pub fn send(&self, to: usize, rows: &Rows, stride: usize, from: &Buffer) -> bool {
        let side = &self.0;
        let stride = Rows { length: stride, ..*rows }.units();
        let (Some(mailbox), Some(units), Some(stride)) = (side.mailbox, rows.units(), stride)
        else {
            return false;
        };
        let all = rows.rows * units;
        if all == 0 || all > mailbox.capacity {
            return false;
        }
        let flow = flow(side.rank, to);
        let (number, index) = side.next_message(side.rank, to);
        let earlier = if index < AT_ONCE as u32 { 0 } else { number.wrapping_sub(AT_ONCE as u32) };
        let slot = mailbox.slot(flow, side.ranks, number);
        let sizes = Sizes::new().int(rows.rows).int(units).int(stride);
        let sizes = sizes.int(flow).int(side.rank).int(to).bits(number).bits(earlier);
        let sizes = sizes.int(slot).int(0);
        let [send, _] = &side.messages;
        side.with_care(from, || {
            side.gpu.launch(send, [side.message_blocks(all), 1, 1], &[from, &side.table], &sizes);
        });
        side.check(from);
        true
    }

    /// What its neighbour `from` has [sent](Self::send): it comes when the card gets so far. Returns when that is launched.
    pub fn receive(&self, from: usize, rows: &Rows) -> Buffer {
        let side = &self.0;
        let (mailbox, units) = side.mailbox.zip(rows.units()).expect("it could be sent");
        let flow = flow(from, side.rank);
        let (number, _) = side.next_message(from, side.rank);
        let slot = mailbox.slot(flow, side.ranks, number);
        let out = side.gpu.empty(rows.rows * rows.length, rows.storage);
        let sizes = Sizes::new().int(rows.rows).int(units);
        let sizes = sizes.int(flow).int(side.rank).int(from).bits(number).int(slot).int(0);
        let [_, receive] = &side.messages;
        side.with_care(&out, || {
            let grid = [side.message_blocks(rows.rows * units), 1, 1];
            side.gpu.launch(receive, grid, &[&side.table, &out], &sizes);
        });
        side.check(&out);
        out
    }
}

impl super::exchange::Side {
    /// The number of the next message from one card to its neighbour, and how many were sent before it in this attempt.
    fn next_message(&self, from: usize, to: usize) -> (u32, u32) {
        // Behind the numbers of sums: those of values and of gradients between each card and the next.
        self.next_of(self.ranks + 2 * from.min(to) + flow(from, to))
    }

    /// Blocks that copy so many units.
    fn message_blocks(&self, units: usize) -> usize {
        blocks(units, THREADS).min(self.blocks).min(BLOCKS)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::exchange::Side;
    use super::*;
    use crate::memory::DryAllocator;
    use crate::ops::gpu::{DryGpu, Exchanges, Gpu};

    #[test]
    fn slots_lie_behind_one_another_and_within_the_memory_that_is_taken() {
        for kernel in message_kernels() {
            assert!(kernel.text().contains(&format!("#define BLOCKS {BLOCKS}\n")));
        }
        for ranks in 2..=5 {
            let mailbox = Mailbox::of(1000);
            let flows = if ranks > 2 { vec![0, 1] } else { vec![1] };
            let places = flows
                .iter()
                .flat_map(|flow| [6, 7, 8].map(|number| mailbox.slot(*flow, ranks, number) * UNIT));
            let places: Vec<usize> = places.collect();
            let ends = places.iter().max().map(|place| place + 1008);
            assert_eq!(ends, Some(mailbox.bytes(ranks)), "{places:?}");
            for of_flow in places.chunks(3) {
                assert_eq!(of_flow[2], of_flow[0], "slots are taken in turns");
                assert_eq!(of_flow[1] - of_flow[0], 1008);
            }
            assert!(places.iter().all(|place| *place >= 4 * 8 * BLOCKS));
        }
    }

    fn three() -> (Gpu, Exchanges) {
        let gpu = Gpu::dry(&DryGpu::new(DryAllocator::default(), true));
        let side = |rank: usize| {
            let side = Side::of_pipeline(&gpu, [rank, 3], Mailbox::of(64));
            Exchange(Arc::new(side))
        };
        let all = Exchanges::of_sides((0..3).map(side).collect());
        (gpu, all)
    }

    #[test]
    fn a_message_that_does_not_fit_or_is_not_of_whole_units_goes_another_way() {
        let (gpu, all) = three();
        all.begin("step".to_owned());
        let send = |rows: usize, length: usize, stride: usize| {
            let rows = Rows { rows, length, storage: Storage::Bf16 };
            all.side(0).send(1, &rows, stride, &gpu.empty(rows.rows * stride, Storage::Bf16))
        };
        assert!(send(4, 8, 8) && send(2, 16, 24) && send(1, 32, 32));
        assert!(!send(5, 8, 8) && !send(1, 40, 40), "64 bytes fit");
        assert!(!send(1, 7, 8) && !send(2, 8, 12) && !send(0, 8, 8));
    }

    #[test]
    fn both_cards_count_messages_alike_and_a_failed_attempt_leaves_none_behind() {
        let (gpu, all) = three();
        let rows = Rows { rows: 1, length: 16, storage: Storage::F32 };
        let numbers = |rank: usize| {
            [(0, 1), (1, 0), (1, 2), (2, 1)].map(|(from, to)| {
                let kind = 3 + 2 * usize::min(from, to) + flow(from, to);
                all.side(rank).0.number(kind)
            })
        };
        let send = |from: usize, to: usize| {
            assert!(all.side(from).send(to, &rows, 16, &gpu.floats(16)));
        };
        all.begin("step".to_owned());
        send(0, 1);
        send(0, 1);
        drop(all.side(1).receive(0, &rows));
        send(1, 2);
        send(2, 1);
        assert_eq!(
            [numbers(0), numbers(1), numbers(2)],
            [[2, 0, 0, 0], [1, 0, 1, 0], [0, 0, 0, 1]]
        );
        all.end(true).expect("nobody waits");
        all.begin("step".to_owned());
        assert_eq!([numbers(0), numbers(1), numbers(2)], [[2, 0, 1, 1]; 3]);
        // Of a new attempt none has had a slot.
        assert_eq!(all.side(0).0.next_message(0, 1), (3, 0));
        assert_eq!(all.side(0).0.next_message(0, 1), (4, 1));
    }
}
