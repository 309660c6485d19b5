//! The host's memory on the way of messages between cards that do not reach each other's.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::DriverError;

use super::Peers;
use super::copies::CopyStream;
use super::peers::Host;
use crate::ops::gpu::Gpu;
use crate::ops::gpu::messages::{Lying, PitchedRows};

/// Bytes of a piece of a message, at most.
const PIECE: usize = 8 << 20;
/// How many pieces there is room for: some come while others go on.
const PLACES: u32 = 4;

/// Where messages wait in the host's memory, piece by piece: a copy engine of the card that sends brings them, and one of the card that receives takes them.
pub(super) struct Staging {
    /// Those of the card that receives.
    arriving: CopyStream,
    rank: usize,
    /// The words that say how many pieces have come here, and how many have gone, in bytes from the beginning of a card's part.
    words: [usize; 2],
    /// A ring of places.
    memory: Host,
    /// How many pieces there have been.
    pieces: Mutex<u32>,
}

impl Staging {
    /// That of messages for the card `gpu`, which has the place `rank` among `peers`. The `words` are for what has come here, which is that card's, and for
    /// what has gone, which is the other's.
    ///
    /// # Errors
    ///
    /// As [`CopyStream::new`], and where the driver has no such memory.
    pub fn new(
        gpu: &Gpu,
        peers: &Arc<Peers>,
        [rank, lane]: [usize; 2],
        words: [usize; 2],
    ) -> Result<Self, String> {
        let arriving = CopyStream::new(gpu, peers, [rank, lane], words[0])?;
        let memory = Host::new(PLACES as usize * PIECE).map_err(|error| error.to_string())?;
        Ok(Self { arriving, rank, words, memory, pieces: Mutex::default() })
    }

    /// Has `leaving`, of the card `from`, bring a message whose `parts` lie in that card's memory, and takes it from here to its `places`; the word `arrived`
    /// of the other card then has the message's number.
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
        let mut count = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        for (part, place) in parts.iter().zip(places) {
            let [part, place] = Lying::in_one_row([part, place]);
            for (rows, bytes) in pieces(part.rows.rows, part.rows.bytes) {
                let [part, place] = [part, place].map(|all| all.slice(rows.clone(), bytes.clone()));
                let here = self.place(*count, part.rows);
                *count = count.wrapping_add(1);
                leaving.wait(from, *gone, count.wrapping_sub(PLACES))?;
                leaving.copy_rows(&part, &here)?;
                leaving.tell(*rank, *staged, *count)?;
                arriving.wait(*rank, *staged, *count)?;
                arriving.copy_rows(&here, &place)?;
                arriving.tell(from, *gone, *count)?;
            }
        }
        arriving.tell(*rank, arrived, number)
    }

    /// Where a piece of so many rows lies here, without gaps, before which there were `earlier` ones.
    fn place(&self, earlier: u32, rows: PitchedRows) -> Lying {
        let address = self.memory.address() + u64::from(earlier % PLACES) * PIECE as u64;
        Lying { address, rows: PitchedRows { pitch: rows.bytes, ..rows } }
    }

    /// Waits until all is gone.
    pub fn drain(&self) {
        self.arriving.drain();
    }
}

/// The rows of each piece of so many, and its bytes of each row.
fn pieces(rows: usize, bytes: usize) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
    let length = bytes.clamp(1, PIECE);
    let each = PIECE / length;
    let columns =
        move || (0..bytes).step_by(length).map(move |from| from..(from + length).min(bytes));
    (0..rows).step_by(each).flat_map(move |first| {
        columns().map(move |columns| (first..(first + each).min(rows), columns))
    })
}

impl std::fmt::Debug for Staging {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Staging({:?})", self.arriving)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each byte is in one piece, in order, and no piece is larger than its place.
    #[test]
    fn pieces_are_all_of_a_message() {
        for (rows, bytes) in
            [(0, 5), (5, 0), (1, 1), (7, PIECE / 3), (3, PIECE), (2, 2 * PIECE + 5), (1 << 20, 24)]
        {
            let mut next = (0, 0);
            for (piece, columns) in pieces(rows, bytes) {
                assert_eq!((piece.start, columns.start), next, "{rows} {bytes}");
                assert!((1..=PIECE).contains(&(piece.len() * columns.len())), "{rows} {bytes}");
                next =
                    if columns.end == bytes { (piece.end, 0) } else { (piece.start, columns.end) };
            }
            assert_eq!(next, (if bytes == 0 { 0 } else { rows }, 0), "{rows} {bytes}");
        }
    }
}
