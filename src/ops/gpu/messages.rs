//! Messages between neighbouring cards of a pipeline, which copy engines take over and kernels take out where they come.
//!
//! No thread waits until a message has come: the card that receives it does, in its own stream of work, and so does a card
//! that would write over one which has not left. `kernels/messages.cuh` says how they travel.
//!
//! Whoever launches a kernel that waits must know that what it waits for has been launched, and given to the copy engine. Cards then come to the end
//! of all that is launched, even where the driver holds up a thread: when a stream has no room for another launch, or
//! memory is taken.

#[cfg(feature = "cuda")]
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};

#[cfg(feature = "cuda")]
use super::cuda::{Outgoing, PitchedRows, Way};
#[cfg(feature = "cuda")]
use super::exchange::fails;
use super::kernels::{EXCHANGE, Header, blocks};
use super::{Buffer, ChannelsLast, Exchange, Kernel, Sizes, Storage};

const MESSAGES: Header = Header(include_str!("kernels/messages.cuh"));
/// Bytes that a thread copies at once, and how often a block of `THREADS` does that in a turn.
const UNIT: usize = 16;
const AHEAD: usize = 8;
/// 16-byte units in front of the messages: words of 32 bits, of which `kernels/messages.cuh` says where they lie.
const HEAD: usize = 16;
const THREADS: usize = 512;
/// The first of the words of these names.
#[cfg(any(feature = "cuda", test))]
const ARRIVED: usize = 0;
#[cfg(any(feature = "cuda", test))]
const TAKEN: usize = 2;
#[cfg(any(feature = "cuda", test))]
const READY: usize = 4;
#[cfg(any(feature = "cuda", test))]
const COPIED: usize = 6;
/// Bytes of a message, at most.
#[cfg(any(feature = "cuda", test))]
const LONGEST: usize = 4 << 30;

/// Where the messages of a pipeline's cards come, which are at most so long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mailbox {
    /// 16-byte units of the longest.
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

/// Arrays of 32-bit numbers that go with the rows of a message: what is known of each channel of a map.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OfChannels {
    /// How many.
    pub arrays: usize,
    /// Numbers of one.
    pub length: usize,
}

/// A message on its way.
#[derive(Debug)]
pub(super) struct Leaving {
    number: u32,
    /// How many were sent before it in the attempt.
    index: u32,
    /// What it is copied from.
    _from: Vec<Buffer>,
}

/// The kernels that give and take messages.
pub fn message_kernels() -> [Kernel; 2] {
    let kernel =
        |entry, threads, text| Kernel::new(entry, threads, &[], &[EXCHANGE.0, MESSAGES.0, text]);
    [
        kernel("offer_rows", 32, include_str!("kernels/offer_rows.cu")),
        kernel("receive_rows", THREADS as u32, include_str!("kernels/receive_rows.cu")),
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
        (HEAD + neighbours(ranks) * self.capacity) * UNIT
    }

    /// 16-byte units in front of where a message of `flow` comes.
    fn inbox(self, flow: usize, ranks: usize) -> usize {
        HEAD + place(flow, ranks) * self.capacity
    }
}

impl OfChannels {
    /// That of these arrays, which are of one length.
    pub fn of(arrays: &[Buffer]) -> Self {
        Self { arrays: arrays.len(), length: arrays.first().map_or(0, Buffer::len) }
    }

    fn rows(self) -> Rows {
        Rows { rows: self.arrays, length: self.length, storage: Storage::F32 }
    }
}

/// A card between two others is sent values and gradients and sends both, one at an end either.
fn neighbours(ranks: usize) -> usize {
    if ranks > 2 { 2 } else { 1 }
}

/// Where what belongs to a flow lies among that of all flows.
fn place(flow: usize, ranks: usize) -> usize {
    if neighbours(ranks) == 1 { 0 } else { flow }
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

    /// From one row to the next where there is to be room for `room` elements, as far as that can be [received](Exchange::receive).
    pub fn with_room(&self, room: usize) -> usize {
        let room = Self { length: room, ..*self };
        if room.length > self.length && room.units().is_some() { room.length } else { self.length }
    }

    /// 16-byte units of a row, where it is of whole ones.
    fn units(&self) -> Option<usize> {
        let bytes = self.length * self.storage.bytes();
        bytes.is_multiple_of(UNIT).then_some(bytes / UNIT)
    }
}

impl Exchange {
    /// Sends `rows`, of which one begins every `stride` elements of `from`, and `of_channels`, arrays of one length, to its neighbour `to`; whether
    /// they can be sent so: they must fit, and be of whole 16 bytes each. Of the same attempt the message before it must be one
    /// that the other card has [received](Self::receive) as far as launches go. Returns when its copy is asked for.
    ///
    /// The memory of the rows is held until they have left, as far as that is known: when the next message of the flow is sent, when the gradient
    /// of these values comes, or when [none is sent any more](Self::all_sent). Nothing may write into it before.
    pub fn send(
        &self,
        to: usize,
        rows: &Rows,
        stride: usize,
        from: &Buffer,
        of_channels: &[Buffer],
    ) -> bool {
        let side = &self.0;
        let stride = Rows { length: stride, ..*rows }.units();
        let others = OfChannels::of(of_channels);
        let (Some(mailbox), Some(units), Some(stride), Some(other_units)) =
            (side.mailbox, rows.units(), stride, others.rows().units())
        else {
            return false;
        };
        let all = rows.rows * units + others.arrays * other_units;
        if all == 0 || all > mailbox.capacity {
            return false;
        }
        let flow = flow(side.rank, to);
        let (number, index) = side.next_message(side.rank, to);
        side.offer(flow, Some(number), from);
        #[cfg(feature = "cuda")]
        if let Some(outgoing) = &side.outgoing[flow] {
            let rows = PitchedRows { rows: rows.rows, bytes: units * UNIT, pitch: stride * UNIT };
            let other = PitchedRows { rows: 1, bytes: other_units * UNIT, pitch: 0 };
            let parts = of_channels.iter().map(|array| (array, other));
            let parts: Vec<_> = std::iter::once((from, rows)).chain(parts).collect();
            let before = (index > 0).then(|| number.wrapping_sub(1));
            let outcome = outgoing.take(&side.gpu, &parts, number, before);
            outcome.unwrap_or_else(|text| fails(&text));
            if side.careful.load(Ordering::Relaxed) {
                outgoing.drain();
            }
        }
        #[cfg(not(feature = "cuda"))]
        let _ = stride;
        let held = std::iter::once(from).chain(of_channels).cloned().collect();
        *side.leaving(flow) = Some(Leaving { number, index, _from: held });
        true
    }

    /// No more messages are sent in this attempt: what is computed from here on waits until the last ones have left.
    pub fn all_sent(&self) {
        for flow in [0, 1] {
            self.0.offer(flow, None, &self.0.table);
        }
    }

    /// What its neighbour `from` has [sent](Self::send), of which a row begins every `stride` elements, and arrays `of_channels` with room for `room`
    /// numbers each: they come when the card gets so far. Returns when that is launched. What lies between rows, and behind the numbers of an array, may
    /// be anything.
    ///
    /// # Panics
    ///
    /// When rows or arrays would lie over one another, or do not begin at whole 16 bytes.
    pub fn receive(
        &self,
        from: usize,
        rows: &Rows,
        stride: usize,
        (of_channels, room): (OfChannels, usize),
    ) -> (Buffer, Vec<Buffer>) {
        let side = &self.0;
        let (mailbox, units) = side.mailbox.zip(rows.units()).expect("it could be sent");
        let flow = flow(from, side.rank);
        let (number, index) = side.next_message(from, side.rank);
        let others = of_channels.rows();
        let other_units = others.units().expect("it could be sent");
        let room = room.max(of_channels.length).next_multiple_of(UNIT / 4);
        let between = |rows: &Rows, stride: usize, units: usize| {
            let between = Rows { length: stride, ..*rows }.units();
            between.filter(|between| *between >= units).expect("one row lies behind another")
        };
        let other_strides = between(&others, room, other_units);
        let between = between(rows, stride, units);
        let out = side.gpu.empty(rows.rows * stride, rows.storage);
        let inbox = mailbox.inbox(flow, side.ranks);
        let all_others = match of_channels.arrays {
            0 => out.clone(),
            arrays => side.gpu.floats(arrays * room),
        };
        let sizes = Sizes::new().int(rows.rows).int(units).int(between);
        let sizes = sizes.int(of_channels.arrays).int(other_units).int(other_strides);
        let sizes = sizes.int(flow).int(side.rank).int(from).bits(number).int(inbox);
        let [_, receive] = &side.messages;
        side.with_care(&out, || {
            let all = rows.rows * units + of_channels.arrays * other_units;
            let in_turn = blocks(all, THREADS * AHEAD);
            let grid = [in_turn.min(2 * side.gpu.multiprocessors()), 1, 1];
            side.gpu.launch(receive, grid, &[&side.table, &out, &all_others], &sizes);
        });
        side.check(&out);
        // A gradient comes when the values that it is of have.
        if flow == 1 {
            let mut values = side.leaving(0);
            *values = values.take().filter(|values| values.index > index);
        }
        let array = |number: usize| all_others.range(number * room..(number + 1) * room);
        (out, (0..of_channels.arrays).map(array).collect())
    }
}

impl super::exchange::Side {
    /// Tells the copy engine of a new message of this flow where there is one, and has the card wait until the one before has left. What that was
    /// copied from is not held any longer.
    fn offer(&self, flow: usize, new: Option<u32>, written: &Buffer) {
        let mut leaving = self.leaving(flow);
        let earlier = leaving.as_ref().map(|earlier| earlier.number);
        if new.is_none() && earlier.is_none() {
            return;
        }
        let [offer, _] = &self.messages;
        let sizes = Sizes::new().int(flow).int(self.rank);
        let sizes = [new, earlier].into_iter().fold(sizes, |sizes, number| {
            sizes.int(usize::from(number.is_some())).bits(number.unwrap_or(0))
        });
        self.with_care(written, || self.gpu.launch(offer, [1, 1, 1], &[&self.table], &sizes));
        *leaving = None;
    }

    /// The last message of a flow, where its memory is held.
    fn leaving(&self, flow: usize) -> MutexGuard<'_, Option<Leaving>> {
        self.leaving[flow].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing is on its way any more.
    pub(super) fn forget_messages(&self) {
        [0, 1].into_iter().for_each(|flow| *self.leaving(flow) = None);
    }

    /// The number of the next message from one card to its neighbour, and how many were sent before it in this attempt.
    fn next_message(&self, from: usize, to: usize) -> (u32, u32) {
        // Behind the numbers of sums: those of values and of gradients between each card and the next.
        self.next_of(self.ranks + 2 * from.min(to) + flow(from, to))
    }

    /// Lets it send messages, for which all cards of its pipeline have room.
    ///
    /// # Errors
    ///
    /// What the driver says.
    #[cfg(feature = "cuda")]
    pub(super) fn with_mailbox(mut self, mailbox: Mailbox) -> Result<Self, String> {
        let Some(peers) = &self.peers else { return Ok(self) };
        let before = self.rank.checked_sub(1);
        let behind = Some(self.rank + 1).filter(|behind| *behind < self.ranks);
        for (flow, to) in [behind, before].into_iter().enumerate() {
            let Some(to) = to else { continue };
            let way = Way {
                from: self.rank,
                to,
                lane: flow,
                inbox: mailbox.inbox(flow, self.ranks) * UNIT,
                arrived: 4 * (ARRIVED + flow),
                ready: 4 * (READY + flow),
                copied: 4 * (COPIED + flow),
                taken: 4 * (TAKEN + flow),
            };
            self.outgoing[flow] = Some(Outgoing::new(&self.gpu, peers, way)?);
        }
        self.mailbox = Some(mailbox);
        Ok(self)
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
    fn messages_lie_behind_one_another_and_within_the_memory_that_is_taken() {
        let words = [("ARRIVED", ARRIVED), ("TAKEN", TAKEN), ("READY", READY), ("COPIED", COPIED)];
        for (name, first) in words {
            let mut words = MESSAGES.0.lines().filter_map(|line| {
                let mut parts = line.strip_prefix("#define ")?.split_whitespace();
                (parts.next() == Some(name)).then(|| parts.next()?.parse().ok())?
            });
            assert_eq!(words.next(), Some(first), "{name}");
        }
        for ranks in 2..=5 {
            let mailbox = Mailbox::of(1000);
            let flows = if ranks > 2 { vec![0, 1] } else { vec![1] };
            let places = flows.iter().map(|flow| mailbox.inbox(*flow, ranks));
            let mut all: Vec<usize> = places.map(|place| place * UNIT).collect();
            all.sort_unstable();
            assert!(all.windows(2).all(|pair| pair[1] - pair[0] == 1008), "{all:?}");
            assert_eq!(all.last().map(|place| place + 1008), Some(mailbox.bytes(ranks)));
            assert!(all[0] >= 4 * 12, "words lie in front");
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
        let with = |rows: usize, length: usize, stride: usize, of_channels: &[Buffer]| {
            let rows = Rows { rows, length, storage: Storage::Bf16 };
            let from = gpu.empty(rows.rows * stride, Storage::Bf16);
            all.side(0).send(1, &rows, stride, &from, of_channels)
        };
        let send = |rows: usize, length: usize, stride: usize| with(rows, length, stride, &[]);
        assert!(send(4, 8, 8) && send(2, 16, 24) && send(1, 32, 32));
        let arrays = |count: usize, length: usize| vec![gpu.floats(length); count];
        assert!(with(1, 8, 8, &arrays(3, 4)) && with(2, 8, 8, &arrays(1, 8)));
        assert!(!with(1, 8, 8, &arrays(2, 8)) && !with(1, 8, 8, &arrays(1, 3)));
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
            assert!(all.side(from).send(to, &rows, 16, &gpu.floats(16), &[]));
        };
        all.begin("step".to_owned());
        send(0, 1);
        send(0, 1);
        drop(all.side(1).receive(0, &rows, 32, (OfChannels::default(), 0)));
        send(1, 2);
        send(2, 1);
        assert_eq!(
            [numbers(0), numbers(1), numbers(2)],
            [[2, 0, 0, 0], [1, 0, 1, 0], [0, 0, 0, 1]]
        );
        all.end(true).expect("nobody waits");
        all.begin("step".to_owned());
        assert_eq!([numbers(0), numbers(1), numbers(2)], [[2, 0, 1, 1]; 3]);
        // In a new attempt none was sent before it.
        assert_eq!(all.side(0).0.next_message(0, 1), (3, 0));
        assert_eq!(all.side(0).0.next_message(0, 1), (4, 1));
    }
}
