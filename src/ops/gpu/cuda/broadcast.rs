//! What a card gives all others of one process or of several, by its copy engines.

use std::sync::Arc;

use cudarc::driver::DriverError;

use super::{CopyStream, Peers};
use crate::ops::gpu::{Buffer, Gpu};

/// Copies arrays into the memory of all other cards when a kernel has written into a word that they are there.
#[derive(Debug)]
pub(in crate::ops::gpu) struct Broadcast {
    copies: CopyStream,
    landing: Landing,
}

/// Where the arrays of a card lie in the memory that the others reach: see `kernels/sum_copies.cu`.
#[derive(Debug, Clone, Copy)]
pub(in crate::ops::gpu) struct Landing {
    pub rank: usize,
    pub ranks: usize,
    /// Bytes in front of the words of the cards.
    pub words: usize,
    /// Bytes from these to the word that the card's own kernel writes.
    pub ready: usize,
    /// Bytes from the words to the room.
    pub head: usize,
    /// Bytes of the room for one card's arrays.
    pub bytes: usize,
}

impl Broadcast {
    /// What the card `gpu` gives others by.
    ///
    /// # Errors
    ///
    /// As [`CopyStream::new`].
    pub(in crate::ops::gpu) fn new(
        gpu: &Gpu,
        peers: &Arc<Peers>,
        landing: Landing,
    ) -> Result<Self, String> {
        let copies = CopyStream::new(gpu, peers, [landing.rank, 0], landing.words + landing.ready)?;
        Ok(Self { copies, landing })
    }

    /// Copies `arrays`, each with the bytes in front of it in the room, to all other cards when the word says `number`, and then tells
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
            Ok((array.address(gpu.client())?, *at, array.len() * array.storage().bytes()))
        };
        let arrays = arrays.iter().map(place).collect::<Result<Vec<_>, String>>()?;
        self.send(&arrays, number).map_err(|error| error.to_string())
    }

    /// Waits until all is copied that was given.
    pub(in crate::ops::gpu) fn drain(&self) {
        self.copies.drain();
    }

    fn send(&self, arrays: &[(u64, usize, usize)], number: u32) -> Result<(), DriverError> {
        let Landing { rank, ranks, words, ready, head, bytes } = self.landing;
        let told = words + 4 * rank;
        self.copies.wait(rank, words + ready, number)?;
        // Not all to the same card at once.
        for card in (1..ranks).map(|turn| (rank + turn) % ranks) {
            let place = if rank < card { rank } else { rank - 1 };
            let room = words + head + place * bytes;
            for (from, at, length) in arrays {
                self.copies.copy(card, room + at, *from, *length)?;
            }
            self.copies.tell(card, told, number)?;
        }
        self.copies.tell(rank, told, number)
    }
}
