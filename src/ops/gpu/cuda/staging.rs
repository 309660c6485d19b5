//! The host's memory on the way of messages between cards that do not reach each other's.

use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::DriverError;

use super::Peers;
use super::copies::CopyStream;
use super::peers::Host;
use crate::ops::gpu::Gpu;
use crate::ops::gpu::messages::{Lying, PitchedRows};

/// Messages that can be on their way at once: one comes while the next one leaves.
const SLOTS: usize = 2;
/// Parts of a message begin at multiples of so many bytes.
const ALIGNED: usize = 256;
/// Bytes after which what has come goes on, about, while the rest comes.
const PIECE: usize = 16 << 20;

/// Where messages wait in the host's memory: a copy engine of the card that sends brings them, and one of the card that receives takes them.
pub(super) struct Staging {
    /// Those of the card that receives.
    arriving: CopyStream,
    rank: usize,
    /// The words that say how many pieces have come here, and which message has gone, in bytes from the beginning of a card's part.
    words: [usize; 2],
    slots: Mutex<Slots>,
}

#[derive(Default)]
struct Slots {
    all: [Slot; SLOTS],
    next: usize,
    /// How many pieces of messages have come here; the word that says so counts them.
    pieces: u32,
    /// What was too small. Copies may be under way in it, and to free it would wait for cards.
    outgrown: Vec<Host>,
}

#[derive(Default)]
struct Slot {
    memory: Option<Host>,
    bytes: usize,
    /// The number of the last message that it was for.
    last: Option<u32>,
}

impl Staging {
    /// That of messages for the card `gpu`, which has the place `rank` among `peers`. The `words` are for what has come here, which is that card's, and for
    /// what has gone, which is the other's.
    ///
    /// # Errors
    ///
    /// As [`CopyStream::new`].
    pub fn new(
        gpu: &Gpu,
        peers: &Arc<Peers>,
        [rank, lane]: [usize; 2],
        words: [usize; 2],
    ) -> Result<Self, String> {
        let arriving = CopyStream::new(gpu, peers, [rank, lane], words[0])?;
        Ok(Self { arriving, rank, words, slots: Mutex::default() })
    }

    /// Has `leaving`, of the card `from`, bring the message of this number, whose `parts` lie in that card's memory, and takes it from here to its `places`;
    /// the word `arrived` of the other card then says so.
    ///
    /// # Errors
    ///
    /// What the driver says.
    pub fn take(
        &self,
        (leaving, from): (&CopyStream, usize),
        parts: &[Lying],
        places: &[Lying],
        (number, arrived): (u32, usize),
    ) -> Result<(), DriverError> {
        let Self { arriving, rank, words: [staged, gone], .. } = self;
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let (here, earlier) = slots.take(parts, number)?;
        if let Some(earlier) = earlier {
            leaving.wait(from, *gone, earlier)?;
        }
        for ((part, here), place) in parts.iter().zip(&here).zip(places) {
            let each = (PIECE / part.rows.bytes.max(1)).max(1);
            for first in (0..part.rows.rows).step_by(each) {
                let rows = first..(first + each).min(part.rows.rows);
                let [part, here, place] = [part, here, place].map(|all| all.slice(rows.clone()));
                slots.pieces = slots.pieces.wrapping_add(1);
                leaving.copy_rows(&part, &here)?;
                leaving.tell(*rank, *staged, slots.pieces)?;
                arriving.wait(*rank, *staged, slots.pieces)?;
                arriving.copy_rows(&here, &place)?;
            }
        }
        arriving.tell(*rank, arrived, number)?;
        arriving.tell(from, *gone, number)
    }

    /// Waits until all is gone.
    pub fn drain(&self) {
        self.arriving.drain();
    }
}

impl Slots {
    /// Where the rows of these parts come without gaps, for the message of this number, and the number of the message before it in that memory.
    fn take(
        &mut self,
        parts: &[Lying],
        number: u32,
    ) -> Result<(Vec<Lying>, Option<u32>), DriverError> {
        let bytes = |part: &Lying| (part.rows.rows * part.rows.bytes).next_multiple_of(ALIGNED);
        let all: usize = parts.iter().map(bytes).sum();
        let slot = &mut self.all[self.next];
        self.next = (self.next + 1) % SLOTS;
        if slot.bytes < all {
            let larger = Host::new(all)?;
            self.outgrown.extend(slot.memory.replace(larger));
            (slot.bytes, slot.last) = (all, None);
        }
        let mut address = slot.memory.as_ref().map_or(0, Host::address);
        let place = |part: &Lying| {
            let rows = PitchedRows { pitch: part.rows.bytes, ..part.rows };
            let place = Lying { address, rows };
            address += bytes(part) as u64;
            place
        };
        let places = parts.iter().map(place).collect();
        Ok((places, slot.last.replace(number)))
    }
}

impl std::fmt::Debug for Staging {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Staging({:?})", self.arriving)
    }
}
