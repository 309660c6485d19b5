//! Gradients that cards give each other while they compute, by their copy engines.
//!
//! `cuda/broadcast.rs` copies them, `kernels/sum_copies.cu` says where they lie, and how a card knows that they have come.

#[cfg(feature = "cuda")]
use std::sync::atomic::Ordering;

use burn::tensor::Tensor;

use super::arrays::{ARRAYS, HEADER, Places};
#[cfg(feature = "cuda")]
use super::cuda::Broadcast;
#[cfg(feature = "cuda")]
use super::exchange::fails;
use super::exchange::{CHUNK, Side, TURNS, bytes};
use super::kernels::{EXCHANGE, blocks};
use super::{Buffer, Exchange, Kernel, Sizes};

/// Bytes in front of the room for what other cards give: words of `kernels/sum_copies.cu`.
pub(super) const HEAD: usize = 256;
/// Bytes from the first of them to the one that tells a card's own copy engines.
pub(super) const READY: usize = 128;
/// Arrays that are shorter are added up with all others: it costs a card more to give them by themselves.
const LEAST_GIVEN: usize = 1 << 15;
/// Bytes of the room for what the other cards of a batch give a card, at most.
pub const MOST_ROOM: u64 = 256 << 20;

/// What a card gives arrays to others by.
#[derive(Debug)]
pub(super) struct Giving {
    /// Chunks that it may give in a step; 0 where it gives none.
    room: usize,
    /// Those that tell of what is given, wait for it and add it up.
    kernels: [Kernel; 3],
    #[cfg(feature = "cuda")]
    broadcast: Option<Broadcast>,
}

/// What a card gives all others in a step.
#[derive(Debug, Default)]
pub struct Given {
    /// The arrays, each with the chunks of the room in front of it.
    arrays: Vec<(Buffer, usize)>,
    chunks: usize,
    /// How often the card had given something when it gave the last ones.
    number: u32,
}

/// Bytes of memory of one of `ranks` cards that the others reach, for sums and for so many chunks that each other card may give.
#[cfg(feature = "cuda")]
pub(super) fn bytes_with_room(ranks: usize, chunks: usize) -> usize {
    bytes(ranks).next_multiple_of(HEAD) + HEAD + (ranks - 1) * chunks * CHUNK * 4
}

/// Chunks of what one of `ranks` cards may give, where a card has `bytes` for what all others do.
#[cfg(feature = "cuda")]
pub(super) fn chunks_in(bytes: u64, ranks: usize) -> usize {
    bytes as usize / (ranks - 1) / (4 * CHUNK)
}

/// The kernels that tell of what is given, wait for it and add it up.
pub(super) fn giving_kernels() -> [Kernel; 3] {
    let kernel = |entry, threads, texts: &[&'static str]| Kernel::new(entry, threads, &[], texts);
    let sum_copies = include_str!("kernels/sum_copies.cu");
    [
        kernel("tell_ready", 32, &[EXCHANGE, include_str!("kernels/tell_ready.cu")]),
        kernel("await_copies", 32, &[EXCHANGE, include_str!("kernels/await_copies.cu")]),
        kernel("sum_copies", 512, &[EXCHANGE, HEADER, TURNS, sum_copies]),
    ]
}

impl Giving {
    /// That of a card that gives nothing.
    pub(super) fn nothing() -> Self {
        Self {
            room: 0,
            kernels: giving_kernels(),
            #[cfg(feature = "cuda")]
            broadcast: None,
        }
    }

    /// Waits until all that was given is copied.
    #[cfg(feature = "cuda")]
    pub(super) fn drain(&self) {
        self.broadcast.iter().for_each(Broadcast::drain);
    }
}

impl Exchange {
    /// Begins to give all other cards `arrays`, of which all cards have as many that are as long, in memory that nobody else holds:
    /// those that are long enough and for which there is room. They travel beside what is computed next, and [are added
    /// up](Self::sum_given) where they lie. A kernel must have summed [over all](Self::sum_over_all) since the last ones were.
    /// Returns which of `arrays` are given.
    pub fn give(&self, given: &mut Given, arrays: &[Buffer]) -> Vec<bool> {
        let side = &self.0;
        let begin = given.arrays.len();
        let fits = |array: &Buffer| {
            let chunks = blocks(array.len(), CHUNK);
            let fits = array.len() >= LEAST_GIVEN && given.chunks + chunks <= side.giving.room;
            if fits {
                given.arrays.push((array.clone(), given.chunks));
                given.chunks += chunks;
            }
            fits
        };
        let fit: Vec<bool> = arrays.iter().map(fits).collect();
        let new = &given.arrays[begin..];
        let Some((first, _)) = new.first() else { return fit };
        given.number = side.next(side.of_given(), 1);
        let [tell_ready, ..] = &side.giving.kernels;
        let sizes = side.of_given_part(Sizes::new(), READY, given.number);
        side.gpu.launch(tell_ready, [1, 1, 1], &[first], &sizes);
        side.check(first);
        #[cfg(feature = "cuda")]
        if let Some(broadcast) = &side.giving.broadcast {
            let outcome = broadcast.give(&side.gpu, new, given.number);
            outcome.unwrap_or_else(|text| fails(&text));
            if side.careful.load(Ordering::Relaxed) {
                broadcast.drain();
            }
        }
        fit
    }

    /// Makes of everything that was given the sums over all cards, where it lies. A launch that waits, and one for every 32 arrays.
    pub fn sum_given(&self, given: &Given) {
        let side = &self.0;
        let Some((first, _)) = given.arrays.first() else { return };
        let [_, await_copies, sum_copies] = &side.giving.kernels;
        side.with_care(first, || {
            let sizes = side.of_given_part(Sizes::new(), 0, given.number);
            side.gpu.launch(await_copies, [1, 1, 1], &[first], &sizes);
        });
        for arrays in given.arrays.chunks(ARRAYS) {
            let before = arrays[0].1;
            let groups: Vec<_> =
                arrays.iter().map(|(array, _)| (array.len(), vec![array])).collect();
            let sizes = Sizes::of([arrays.len(), before, side.giving.room, 0]);
            let sizes = side.of_given_part(sizes, 0, given.number);
            let places = Places::every(CHUNK);
            side.gpu.launch_over(sum_copies, places, &groups, &[], sizes);
        }
    }

    /// [`Exchange::give`] of tensors of 32-bit numbers.
    #[cfg(feature = "cuda")]
    pub fn give_of(&self, given: &mut Given, tensors: Vec<Tensor<1>>) -> Vec<bool> {
        let arrays: Vec<Buffer> = tensors.into_iter().map(Buffer::of_tensor).collect();
        self.give(given, &arrays)
    }

    /// [`Exchange::sum_given`] as tensors, in the order in which they were given.
    #[cfg(feature = "cuda")]
    pub fn sums_of_given(&self, given: &Given) -> Vec<Tensor<1>> {
        self.sum_given(given);
        let tensor = |(sum, _): &(Buffer, usize)| self.0.gpu.tensor(sum, [sum.len()]);
        given.arrays.iter().map(tensor).collect()
    }

    /// There is no card without CUDA.
    #[cfg(not(feature = "cuda"))]
    pub fn give_of(&self, _: &mut Given, tensors: Vec<Tensor<1>>) -> Vec<bool> {
        vec![false; tensors.len()]
    }

    /// There is no card without CUDA.
    #[cfg(not(feature = "cuda"))]
    pub fn sums_of_given(&self, _: &Given) -> Vec<Tensor<1>> {
        Vec::new()
    }
}

impl Side {
    /// Lets it give so many chunks to each other card, which all must have room for.
    ///
    /// # Errors
    ///
    /// What the driver or the system says.
    #[cfg(feature = "cuda")]
    pub(super) fn with_room(mut self, chunks: usize) -> Result<Self, String> {
        let (true, Some(peers)) = (chunks > 0, &self.peers) else { return Ok(self) };
        let place = [bytes(self.ranks).next_multiple_of(HEAD), chunks * CHUNK * 4];
        let broadcast = Broadcast::new(&self.gpu, peers, [self.rank, self.ranks], place)?;
        self.giving.broadcast = Some(broadcast);
        self.giving.room = chunks;
        Ok(self)
    }

    /// What kernels need that work on what cards give: of the words that begin so many bytes behind the first.
    fn of_given_part(&self, sizes: Sizes, behind: usize, number: u32) -> Sizes {
        let words = bytes(self.ranks).next_multiple_of(HEAD) + behind;
        self.with_addresses(self.part(sizes, self.ranks, words, number))
    }

    /// The kind of number of what all cards give.
    fn of_given(&self) -> usize {
        self.numbers.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::memory::DryAllocator;
    use crate::ops::gpu::{DryGpu, Gpu};

    #[test]
    fn what_is_long_enough_and_has_room_is_given_and_chunks_lie_behind_one_another() {
        let gpu = Gpu::dry(&DryGpu::new(DryAllocator::default(), true));
        let mut side = Side::new(&gpu, [0, 3], vec![0; 18], 132);
        side.giving.room = 12;
        let exchange = Exchange(Arc::new(side));
        let arrays = |lengths: &[usize]| -> Vec<Buffer> {
            lengths.iter().map(|length| gpu.floats(*length)).collect()
        };
        let mut given = Given::default();
        let first = exchange.give(&mut given, &arrays(&[LEAST_GIVEN - 1, LEAST_GIVEN, 40_001]));
        assert_eq!(first, [false, true, true]);
        let kind = exchange.0.of_given();
        assert_eq!((given.number, given.chunks, exchange.0.number(kind)), (1, 9, 1));
        // Three chunks are left.
        assert_eq!(exchange.give(&mut given, &arrays(&[LEAST_GIVEN, 8])), [false, false]);
        assert_eq!((given.number, exchange.0.number(kind)), (1, 1), "nothing is told of nothing");
        let begins: Vec<usize> = given.arrays.iter().map(|(_, before)| *before).collect();
        assert_eq!(begins, [0, 4]);
        exchange.sum_given(&given);
        // A step later the room is free.
        assert_eq!(
            exchange.give(&mut Given::default(), &arrays(&[LEAST_GIVEN; 4]))[2..],
            [true, false]
        );
        assert_eq!(exchange.0.number(kind), 2);
    }
}
