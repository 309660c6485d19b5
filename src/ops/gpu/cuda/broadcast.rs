//! What a card gives all others of one process or of several, by its copy engines.

use std::sync::Arc;

use cudarc::driver::DriverError;

use super::{CopyStream, Peers};
use crate::ops::gpu::exchange::CHUNK;
use crate::ops::gpu::given::{HEAD, READY};
use crate::ops::gpu::{Argument, Buffer, Gpu};

/// Copies arrays into the memory of all other cards when a kernel has written into a word that they are there.
#[derive(Debug)]
pub(in crate::ops::gpu) struct Broadcast {
    copies: CopyStream,
    rank: usize,
    ranks: usize,
    /// Bytes in front of the words of the cards, behind which is the room: see `kernels/sum_copies.cu`.
    words: usize,
    /// Bytes of the room for one card's arrays.
    room: usize,
}

impl Broadcast {
    /// What the card `gpu` gives others by, with so many bytes in front of the words and of the room for one card's arrays.
    ///
    /// # Errors
    ///
    /// As [`CopyStream::new`].
    pub(in crate::ops::gpu) fn new(
        gpu: &Gpu,
        peers: &Arc<Peers>,
        [rank, ranks]: [usize; 2],
        [words, room]: [usize; 2],
    ) -> Result<Self, String> {
        let copies = CopyStream::new(gpu, peers, [rank, 0], words + READY)?;
        Ok(Self { copies, rank, ranks, words, room })
    }

    /// Copies `arrays`, each with the chunks in front of it in the room, to all other cards when the word says `number`, and then tells
    /// all cards that number. The kernel that writes the word must have been launched. Nothing may write into the arrays, or free
    /// their memory, before this card is told. Returns when the driver has all of it.
    ///
    /// # Errors
    ///
    /// What has failed that was to make the arrays, and what the driver says.
    pub(in crate::ops::gpu) fn give(
        &self,
        gpu: &Gpu,
        arrays: &[(Buffer, usize)],
        number: u32,
    ) -> Result<(), String> {
        let place = |(array, at): &(Buffer, usize)| {
            Ok((array.address(gpu.client())?, 4 * CHUNK * at, array.bytes()))
        };
        let arrays = arrays.iter().map(place).collect::<Result<Vec<_>, String>>()?;
        self.send(&arrays, number).map_err(|error| error.to_string())
    }

    /// Waits until all is copied that was given.
    pub(in crate::ops::gpu) fn drain(&self) {
        self.copies.drain();
    }

    fn send(&self, arrays: &[(u64, usize, usize)], number: u32) -> Result<(), DriverError> {
        let Self { ref copies, rank, ranks, words, room } = *self;
        let told = words + 4 * rank;
        copies.wait(rank, words + READY, number)?;
        // Not all to the same card at once.
        for card in (1..ranks).map(|turn| (rank + turn) % ranks) {
            let place = if rank < card { rank } else { rank - 1 };
            let begin = words + HEAD + place * room;
            for (from, at, length) in arrays {
                copies.copy(card, begin + at, *from, *length)?;
            }
            copies.tell(card, told, number)?;
        }
        copies.tell(rank, told, number)
    }
}
