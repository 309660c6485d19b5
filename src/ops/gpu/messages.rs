//! Messages between neighbouring cards of a pipeline, which copy engines take from where they were computed to where they are used.
//!
//! The card that receives a message has room for it before it needs it, and says when nothing else uses that memory any more. The copy engine of
//! the card that sends waits for that, and until the message is there. No thread waits until a message has come: the card that receives
//! it does, in its own stream of work, and so does a card that would write over one which has not left.
//!
//! Whoever launches a kernel that waits must know that what it waits for has been launched, and given to the copy engine. Cards then come to the end
//! of all that is launched, even where the driver holds up a thread: when a stream has no room for another launch, or
//! memory is taken.

#[cfg(feature = "cuda")]
use std::ops::Range;
#[cfg(any(feature = "cuda", test))]
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex};
#[cfg(feature = "cuda")]
use std::time::Duration;

use burn::tensor::DType;

#[cfg(feature = "cuda")]
use super::cuda::{Outgoing, Peers, let_reach};
#[cfg(feature = "cuda")]
use super::exchange::fails;
use super::gpu::lock;
use super::kernels::EXCHANGE;
use super::{Buffer, ChannelsLast, Exchange, Gpu, Kernel, Sizes};

/// Numbers of 32 bits of an array begin at multiples of so many.
const ALIGNED: usize = 4;
/// Bytes of the words, which lie where a card's part of the memory begins that all reach.
#[cfg(feature = "cuda")]
pub(super) const WORDS: usize = 32;
/// The first of the words of 32 bits of these names; each has one for values, which go to the next card, and one for gradients, which go
/// back. The number of the last message that has come, which the other card's copy engine writes.
const ARRIVED: usize = 0;
/// How often the other card has said that there is room for a message. Its kernel writes it.
const PLACED: usize = 2;
/// The number of the last message that is there, for which this card's copy engine waits.
const READY: usize = 4;
/// The number of the last message that has left. This card's copy engine writes it.
const COPIED: usize = 6;

/// Rows of a message, side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rows {
    /// How many.
    pub rows: usize,
    /// Elements of one.
    pub length: usize,
    /// What they lie in.
    pub storage: DType,
}

/// Arrays of 32-bit numbers that go with the rows of a message: what is known of each channel of a map.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OfChannels {
    /// How many.
    pub arrays: usize,
    /// Numbers of one.
    pub length: usize,
}

/// What a message is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageShape {
    /// Its rows.
    pub rows: Rows,
    /// The arrays behind them.
    pub of_channels: OfChannels,
}

/// So many rows of so many bytes, of which one begins every `pitch` bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PitchedRows {
    pub rows: usize,
    pub bytes: usize,
    pub pitch: usize,
}

/// Rows, and where they begin in a card's memory.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "cards alone have addresses"))]
pub(super) struct Lying {
    pub address: u64,
    pub rows: PitchedRows,
}

#[cfg(feature = "cuda")]
impl Lying {
    /// Some bytes of some of the rows.
    pub fn slice(&self, rows: Range<usize>, bytes: Range<usize>) -> Self {
        let address = self.address + (rows.start * self.rows.pitch + bytes.start) as u64;
        Self { address, rows: PitchedRows { rows: rows.len(), bytes: bytes.len(), ..self.rows } }
    }

    /// What is copied from one to the other: all bytes as one row, where neither has gaps between its rows.
    pub fn in_one_row(both: [&Self; 2]) -> [Self; 2] {
        let has_gaps = |all: &&Self| all.rows.rows > 1 && all.rows.pitch != all.rows.bytes;
        let in_one = |all: &Self| {
            let bytes = all.rows.rows * all.rows.bytes;
            Self { rows: PitchedRows { rows: 1, bytes, pitch: bytes }, ..*all }
        };
        if both.iter().any(has_gaps) { both.map(|all| *all) } else { both.map(in_one) }
    }
}

/// A message on its way.
#[derive(Debug)]
pub(super) struct Leaving {
    number: u32,
    /// How many were sent before it in the attempt.
    index: u32,
    /// What it is copied from.
    from: Vec<Buffer>,
}

/// Where the next message of a flow is to come.
#[derive(Debug)]
pub(super) struct Expected {
    number: u32,
    shape: MessageShape,
    memory: (Buffer, Vec<Buffer>),
}

/// A way from one card to its neighbour, where what is sent meets the room for it: whichever comes later gives both to the copy engine.
#[derive(Debug, Default)]
pub(super) struct Crossing {
    meeting: Mutex<Meeting>,
    copied: Condvar,
    /// How often there was room for a message.
    placed: AtomicU32,
    #[cfg(feature = "cuda")]
    outgoing: Option<Outgoing>,
}

#[derive(Debug, Default)]
struct Meeting {
    /// The number of the message, what it is made of, and where it lies.
    message: Option<(u32, MessageShape, Vec<Lying>)>,
    /// The number and shape of the message that there is room for, how often there was room, and where.
    place: Option<(u32, MessageShape, u32, Vec<Lying>)>,
    /// The number of the last message that was given to the copy engine.
    given: u32,
}

/// The kernel that tells copy engines of messages and of room for them, and waits for what they have done.
pub fn message_kernel() -> Kernel {
    let text = include_str!("kernels/tell_and_await.cu");
    Kernel::new("tell_and_await", 32, &[], &[EXCHANGE, text])
}

impl OfChannels {
    /// That of these arrays, which are of one length.
    pub fn of(arrays: &[Buffer]) -> Self {
        Self { arrays: arrays.len(), length: arrays.first().map_or(0, Buffer::len) }
    }
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

    /// A buffer in so many rows.
    pub fn of_buffer(buffer: &Buffer, rows: usize) -> Self {
        Self { rows, length: buffer.len() / rows, storage: buffer.storage() }
    }

    /// Where one begins every `stride` elements.
    fn every(&self, stride: usize) -> PitchedRows {
        let bytes = |elements: usize| elements * self.storage.size();
        PitchedRows { rows: self.rows, bytes: bytes(self.length), pitch: bytes(stride) }
    }
}

impl MessageShape {
    /// Bytes of one row and pitch of each part, in memory with so much room: the rows, and each of the arrays.
    fn parts(&self, stride: usize) -> impl Iterator<Item = PitchedRows> {
        let OfChannels { arrays, length } = self.of_channels;
        let array = Rows { rows: 1, length, storage: DType::F32 }.every(length);
        std::iter::once(self.rows.every(stride)).chain(std::iter::repeat_n(array, arrays))
    }

    /// That of a message of `next` images where this one is of `images`.
    pub fn of_images(&self, images: usize, next: usize) -> Self {
        let Self { rows, of_channels } = *self;
        let length = match of_channels.length > rows.length {
            // Of each image.
            true => of_channels.length / images * next,
            false => of_channels.length,
        };
        Self {
            rows: Rows { rows: rows.rows / images * next, ..rows },
            of_channels: OfChannels { length, ..of_channels },
        }
    }

    /// Elements from one row to the next where there is to be room for so many.
    pub fn stride(&self, room: usize) -> usize {
        self.rows.length.max(room)
    }

    /// Memory for such a message, whose rows and arrays have room for so many elements.
    fn memory(&self, gpu: &Gpu, room: usize) -> (Buffer, Vec<Buffer>) {
        let Self { rows, of_channels: OfChannels { arrays, length } } = *self;
        let stride = self.stride(room);
        let out = gpu.empty(rows.rows * stride, rows.storage);
        if arrays == 0 {
            return (out, Vec::new());
        }
        let numbers = (length / rows.length * stride).next_multiple_of(ALIGNED);
        let all = gpu.floats(arrays * numbers);
        let array = |place: usize| all.range(place * numbers..(place + 1) * numbers);
        (out, (0..arrays).map(array).collect())
    }
}

impl Exchange {
    /// Sends rows, of which one begins every `stride` elements of `from`, and `of_channels`, arrays of one length, which are a message of this
    /// `shape`, to its neighbour `to`; whether copy engines take them. Of the same attempt the message before it must be one
    /// that the other card has [received](Self::receive) as far as launches go.
    ///
    /// The memory is held until the message has left, as far as that is known: when the next message of the flow is sent, when the gradient
    /// of these values comes, or when [none is sent any more](Self::all_sent). Nothing may write into it before.
    pub fn send(
        &self,
        to: usize,
        shape: &MessageShape,
        stride: usize,
        from: &Buffer,
        of_channels: &[Buffer],
    ) -> bool {
        let side = &self.0;
        let flow = flow(side.rank, to);
        let Some(crossing) = &side.sends[flow] else { return false };
        let (number, index) = side.next_message(side.rank, to);
        let earlier = side.offer(flow, Some(number));
        let parts = std::iter::once(from).chain(of_channels).zip(shape.parts(stride));
        // All is launched when it is known where they lie.
        let parts = side.lying(parts.collect());
        drop(earlier);
        let given = crossing.meet(|meeting| meeting.message = Some((number, *shape, parts)));
        let careful = side.careful.load(Ordering::Relaxed);
        #[cfg(feature = "cuda")]
        if let Some(outgoing) = crossing.outgoing.as_ref().filter(|_| careful && given >= number) {
            outgoing.drain();
        }
        #[cfg(not(feature = "cuda"))]
        let _ = (given, careful);
        let held = std::iter::once(from).chain(of_channels).cloned().collect();
        *lock(&side.leaving[flow]) = Some(Leaving { number, index, from: held });
        true
    }

    /// No more messages are sent in this attempt: what is computed from here on waits until the last ones have left.
    pub fn all_sent(&self) {
        for flow in [0, 1] {
            self.0.await_room(flow);
            if let Some(last) = self.0.offer(flow, None) {
                self.0.check(&last.from[0]);
            }
        }
    }

    /// What its neighbour `from` has [sent](Self::send), which is of this `shape`: its rows and arrays get [room](MessageShape::stride) for so many elements. It comes when
    /// the card gets so far. Returns when that is launched. What lies behind the elements of a row or of an array may be anything.
    ///
    /// Where a message of the shape `next`, as far as is known, follows in this attempt, there is memory for it from here on.
    pub fn receive(
        &self,
        from: usize,
        shape: &MessageShape,
        room: usize,
        next: Option<MessageShape>,
    ) -> (Buffer, Vec<Buffer>) {
        let side = &self.0;
        let flow = flow(from, side.rank);
        let (number, index) = side.next_message(from, side.rank);
        let expected = lock(&side.expected[flow]).take();
        let expected = expected.filter(|it| (it.number, it.shape) == (number, *shape));
        let memory = expected.map(|expected| expected.memory).unwrap_or_else(|| {
            let memory = shape.memory(&side.gpu, room);
            let placed = side.tell_and_await(Some((from, flow)), None, &memory.0);
            side.place(flow, [number, placed], shape, room, &memory);
            memory
        });
        // The copy engine has it now: whoever asks knows that it was sent.
        let next = next.map(|shape| (shape, shape.memory(&side.gpu, room)));
        let tells = next.as_ref().map(|_| (from, flow));
        let placed = side.tell_and_await(tells, Some((ARRIVED + flow, number)), &memory.0);
        side.check(&memory.0);
        if let Some((shape, memory)) = next {
            let number = number.wrapping_add(1);
            side.place(flow, [number, placed], &shape, room, &memory);
            *lock(&side.expected[flow]) = Some(Expected { number, shape, memory });
        }
        // A gradient comes when the values that it is of have.
        if flow == 1 {
            let mut values = lock(&side.leaving[0]);
            *values = values.take().filter(|values| values.index > index);
        }
        memory
    }
}

impl Crossing {
    /// Notes what has come, and gives the copy engine a message for which there is room. Returns the number of the last one that it has.
    fn meet(&self, comes: impl FnOnce(&mut Meeting)) -> u32 {
        let mut meeting = lock(&self.meeting);
        comes(&mut meeting);
        let Meeting {
            message: Some((number, shape, parts)),
            place: Some((of, room_for, placed, places)),
            ..
        } = &*meeting
        else {
            return meeting.given;
        };
        // What does not fit was made before the shape of the message was known. Whoever has made it makes another.
        if (number, shape) == (of, room_for) {
            let number = *number;
            #[cfg(feature = "cuda")]
            if let Some(outgoing) = &self.outgoing {
                let outcome = outgoing.take(parts, places, [number, *placed]);
                outcome.unwrap_or_else(|text| fails(&text));
            }
            #[cfg(not(feature = "cuda"))]
            let _ = (parts, placed, places);
            meeting.message = None;
            meeting.given = number;
            self.copied.notify_all();
        }
        meeting.place = None;
        meeting.given
    }
}

impl super::exchange::Side {
    /// Tells the copy engine of a new message of this flow where there is one, and has the card wait until the one before has left, which is returned: what
    /// that was copied from is to be held until this is launched. CubeCL's thread seeks memory for what is asked for when it comes to that, and would give it
    /// to what was asked for before.
    #[must_use]
    fn offer(&self, flow: usize, new: Option<u32>) -> Option<Leaving> {
        let earlier = lock(&self.leaving[flow]).take();
        let left = earlier.as_ref().map(|earlier| (COPIED + flow, earlier.number));
        let told = new.map(|number| (self.rank, READY + flow, number));
        if told.is_some() || left.is_some() {
            self.launch(told, left, &self.gpu.floats(1));
        }
        earlier
    }

    /// Tells the neighbour `to` that there is room for another message of the flow, and has the card wait for a number of a word where it is to.
    /// Returns how often there was room.
    fn tell_and_await(
        &self,
        to: Option<(usize, usize)>,
        awaited: Option<(usize, u32)>,
        written: &Buffer,
    ) -> u32 {
        let told = to.map(|(to, flow)| {
            let placed = &self.receives(flow).placed;
            let placed = placed.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
            (to, PLACED + flow, placed)
        });
        self.launch(told, awaited, written);
        told.map_or(0, |(_, _, placed)| placed)
    }

    /// Launches what writes a number into a word of a card, and waits for one in a word of this card.
    fn launch(
        &self,
        told: Option<(usize, usize, u32)>,
        awaited: Option<(usize, u32)>,
        written: &Buffer,
    ) {
        let (card, word, number) = told.unwrap_or_default();
        let (own, least) = awaited.unwrap_or_default();
        let sizes = Sizes::of([self.rank, usize::from(told.is_some()), card, word]).bits(number);
        let sizes = sizes.ints([usize::from(awaited.is_some()), own]).bits(least);
        self.with_care(written, || {
            self.gpu.launch(&self.message, [1, 1, 1], &[&self.table, written], &sizes);
        });
    }

    /// Where these rows are. Unwinds where something has failed that was to make them.
    fn lying(&self, parts: Vec<(&Buffer, PitchedRows)>) -> Vec<Lying> {
        #[cfg(feature = "cuda")]
        if self.peers.is_some() {
            return Outgoing::lying(&self.gpu, &parts).unwrap_or_else(|text| fails(&text));
        }
        parts.into_iter().map(|(_, rows)| Lying { address: 0, rows }).collect()
    }

    /// Has a message of this shape come into `memory`: the number of the message, and how often there was room.
    fn place(
        &self,
        flow: usize,
        number: [u32; 2],
        shape: &MessageShape,
        room: usize,
        (out, arrays): &(Buffer, Vec<Buffer>),
    ) {
        let parts = std::iter::once(out).chain(arrays).zip(shape.parts(shape.stride(room)));
        let places = self.lying(parts.collect());
        let [number, placed] = number;
        self.receives(flow).meet(|meeting| meeting.place = Some((number, *shape, placed, places)));
    }

    /// The way by which messages of the flow come.
    fn receives(&self, flow: usize) -> &Crossing {
        self.receives[flow].as_ref().expect("it could be sent")
    }

    /// Waits until there was room for the last message of the flow, where its memory is held, or all waiting is ended.
    fn await_room(&self, flow: usize) {
        #[cfg(feature = "cuda")]
        if let (Some(peers), Some(crossing)) = (&self.peers, &self.sends[flow]) {
            let last = lock(&self.leaving[flow]).as_ref().map(|leaving| leaving.number);
            let mut meeting = lock(&crossing.meeting);
            while last.is_some_and(|last| meeting.given != last) && !peers.is_over() {
                let waited = crossing.copied.wait_timeout(meeting, Duration::from_millis(5));
                meeting = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
            }
        }
        #[cfg(not(feature = "cuda"))]
        let _ = flow;
    }

    /// Waits until nothing is copied any more.
    #[cfg(feature = "cuda")]
    pub(super) fn drain_messages(&self) {
        let crossings = self.sends.iter().flatten();
        crossings.filter_map(|crossing| crossing.outgoing.as_ref()).for_each(Outgoing::drain);
    }

    /// Nothing is on its way any more.
    pub(super) fn forget_messages(&self) {
        for flow in [0, 1] {
            *lock(&self.leaving[flow]) = None;
            *lock(&self.expected[flow]) = None;
            if let Some(crossing) = &self.sends[flow] {
                let mut meeting = lock(&crossing.meeting);
                (meeting.message, meeting.place) = (None, None);
            }
        }
    }

    /// The number of the next message from one card to its neighbour, and how many were sent before it in this attempt.
    fn next_message(&self, from: usize, to: usize) -> (u32, u32) {
        // Behind the numbers of sums: those of values and of gradients between each card and the next.
        self.next_of(self.ranks + 2 * from.min(to) + flow(from, to))
    }
}

/// The ways by which a card of a pipeline sends values and gradients, and those by which it receives them.
#[cfg(any(feature = "cuda", test))]
pub(super) type Ways = [[Option<Arc<Crossing>>; 2]; 2];

/// Those of each of `ranks` cards; `crossing` makes the one from a card to a neighbour.
#[cfg(any(feature = "cuda", test))]
fn ways<E>(
    ranks: usize,
    crossing: impl Fn(usize, usize) -> Result<Crossing, E>,
) -> Result<Vec<Ways>, E> {
    let mut all = vec![Ways::default(); ranks];
    for (before, behind) in (1..ranks).map(|rank| (rank - 1, rank)) {
        for (from, to) in [(before, behind), (behind, before)] {
            let (way, flow) = (Arc::new(crossing(from, to)?), flow(from, to));
            all[from][0][flow] = Some(Arc::clone(&way));
            all[to][1][flow] = Some(way);
        }
    }
    Ok(all)
}

/// Has the copy engines of each of the cards `gpus` of a pipeline reach the memory of its neighbours from then on.
///
/// # Errors
///
/// As [`let_reach`].
#[cfg(feature = "cuda")]
pub(super) fn let_neighbours_reach(gpus: &[Gpu]) -> Result<(), String> {
    gpus.windows(2).try_for_each(|both| {
        let [before, behind] = [both[0].index(), both[1].index()];
        let_reach(before, behind).and_then(|()| let_reach(behind, before))
    })
}

/// The ways of each of the cards `gpus` of a pipeline; through the host's memory where they are `apart`.
///
/// # Errors
///
/// What the driver says.
#[cfg(feature = "cuda")]
pub(super) fn ways_of_cards(
    gpus: &[Gpu],
    peers: &Arc<Peers>,
    apart: bool,
) -> Result<Vec<Ways>, String> {
    ways(gpus.len(), |from, to| {
        let flow = flow(from, to);
        let words = [ARRIVED, PLACED, READY, COPIED].map(|word| 4 * (word + flow));
        let both = [&gpus[from], &gpus[to]];
        let outgoing = Outgoing::new(both, peers, [from, to], (flow, apart), words)?;
        Ok(Crossing { outgoing: Some(outgoing), ..Crossing::default() })
    })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::super::exchange::Side;
    use super::*;
    use crate::memory::DryAllocator;
    use crate::ops::gpu::{DryGpu, Exchanges};

    fn three() -> (Gpu, Exchanges) {
        let gpu = Gpu::dry(&DryGpu::new(DryAllocator::default(), true));
        let Ok(ways) = ways(3, |_, _| Ok::<_, Infallible>(Crossing::default()));
        let side = |(rank, ways)| Exchange(Arc::new(Side::of_pipeline(&gpu, [rank, 3], ways)));
        let all = Exchanges::of_sides(ways.into_iter().enumerate().map(side).collect());
        (gpu, all)
    }

    fn shape(rows: usize, length: usize, arrays: usize) -> MessageShape {
        let rows = Rows { rows, length, storage: DType::BF16 };
        MessageShape { rows, of_channels: OfChannels { arrays, length } }
    }

    fn send(gpu: &Gpu, all: &Exchanges, [from, to]: [usize; 2], shape: MessageShape) -> bool {
        let Rows { rows, length, storage } = shape.rows;
        let arrays = vec![gpu.floats(length); shape.of_channels.arrays];
        all.side(from).send(to, &shape, length, &gpu.empty(rows * length, storage), &arrays)
    }

    /// The number of the last message that the copy engine from a card to its neighbour has.
    fn given(all: &Exchanges, from: usize, to: usize) -> u32 {
        let way = all.side(from).0.sends[flow(from, to)].as_ref().expect("a way");
        lock(&way.meeting).given
    }

    #[test]
    fn a_message_goes_where_there_is_room_for_it_whichever_comes_first() {
        let (gpu, all) = three();
        all.begin("step".to_owned());
        let one = shape(4, 8, 3);
        // The first comes before there is room, of the others there is some before they come.
        for micro in 1..4 {
            assert!(send(&gpu, &all, [0, 1], one));
            assert_eq!(given(&all, 0, 1), if micro == 1 { 0 } else { micro });
            let (out, arrays) = all.side(1).receive(0, &one, 16, (micro < 3).then_some(one));
            assert_eq!(given(&all, 0, 1), micro);
            assert_eq!((out.len(), arrays.len(), arrays[2].len()), (4 * 16, 3, 16));
            assert_eq!(lock(&all.side(1).0.expected[0]).is_some(), micro < 3);
        }
    }

    #[test]
    fn where_another_shape_comes_than_was_expected_there_is_room_made_for_it() {
        let (gpu, all) = three();
        all.begin("step".to_owned());
        let shapes = [shape(4, 8, 0), shape(2, 8, 0), shape(2, 8, 2), shape(2, 12, 2)];
        for (micro, (one, expected)) in shapes.into_iter().zip(shapes.map(Some)).enumerate() {
            assert!(send(&gpu, &all, [2, 1], one));
            assert_eq!(given(&all, 2, 1), micro as u32, "there is no room for it");
            let (out, arrays) = all.side(1).receive(2, &one, 0, expected);
            assert_eq!(given(&all, 2, 1), micro as u32 + 1);
            assert_eq!(out.len(), one.rows.rows * one.rows.length);
            assert_eq!(arrays.len(), one.of_channels.arrays);
        }
    }

    #[test]
    fn cards_tell_and_await_the_words_of_one_another() {
        let words = [ARRIVED, PLACED, READY, COPIED].map(|word| [word, word + 1]);
        let mut all = words.concat();
        all.dedup();
        assert!(all.is_sorted() && all.len() == 8);
        let (_, all) = three();
        let way = |way: &Option<Arc<Crossing>>| way.as_ref().map(Arc::as_ptr);
        let sends = |rank: usize, flow: usize| way(&all.side(rank).0.sends[flow]);
        let receives = |rank: usize, flow: usize| way(&all.side(rank).0.receives[flow]);
        for rank in 0..2 {
            assert_eq!(sends(rank, 0), receives(rank + 1, 0));
            assert_eq!(sends(rank + 1, 1), receives(rank, 1));
            assert!(sends(rank, 0).is_some() && receives(rank, 1).is_some());
        }
        assert_eq!([sends(0, 1), sends(2, 0), receives(0, 0), receives(2, 1)], [None; 4]);
    }

    #[test]
    fn both_cards_count_messages_alike_and_a_failed_attempt_leaves_none_behind() {
        let (gpu, all) = three();
        let one = shape(1, 16, 0);
        let numbers = |rank: usize| {
            [(0, 1), (1, 0), (1, 2), (2, 1)].map(|(from, to)| {
                let kind = 3 + 2 * usize::min(from, to) + flow(from, to);
                all.side(rank).0.number(kind)
            })
        };
        all.begin("step".to_owned());
        assert!(send(&gpu, &all, [0, 1], one));
        drop(all.side(1).receive(0, &one, 32, Some(one)));
        assert!(send(&gpu, &all, [0, 1], one));
        assert!(send(&gpu, &all, [1, 2], one));
        assert!(send(&gpu, &all, [2, 1], one));
        assert_eq!(
            [numbers(0), numbers(1), numbers(2)],
            [[2, 0, 0, 0], [1, 0, 1, 0], [0, 0, 0, 1]]
        );
        assert!(lock(&all.side(1).0.expected[0]).is_some());
        all.end(true).expect("nobody waits");
        for rank in 0..3 {
            let side = &all.side(rank).0;
            assert!(side.expected.iter().all(|expected| lock(expected).is_none()));
            assert!(side.leaving.iter().all(|leaving| lock(leaving).is_none()));
            let meetings = side.sends.iter().flatten().map(|way| lock(&way.meeting));
            assert!(meetings.into_iter().all(|it| it.message.is_none() && it.place.is_none()));
        }
        all.begin("step".to_owned());
        assert_eq!([numbers(0), numbers(1), numbers(2)], [[2, 0, 1, 1]; 3]);
        // In a new attempt none was sent before it.
        assert_eq!(all.side(0).0.next_message(0, 1), (3, 0));
        assert_eq!(all.side(0).0.next_message(0, 1), (4, 1));
    }
}
