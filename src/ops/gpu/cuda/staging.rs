//! The host's memory on the way of messages between cards that do not reach each other's.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use cudarc::driver::{CudaEvent, DriverError};

use super::Peers;
use super::copies::CopyStream;
use super::peers::Part;
use crate::ops::gpu::Gpu;
use crate::ops::gpu::gpu::lock;
use crate::ops::gpu::messages::{Lying, PitchedRows};

/// Bytes of a piece of a message, at most.
const PIECE: usize = 8 << 20;
/// How many pieces there is room for: some come while others go on.
const PLACES: usize = 4;

/// Where messages wait in the host's memory, piece by piece: a copy engine of the card that sends brings them, and one of the card that receives takes them.
#[derive(Debug)]
pub(super) struct Staging {
    /// Those of the card that receives.
    arriving: CopyStream,
    rank: usize,
    /// All places, one behind another.
    memory: Part,
    places: [Place; PLACES],
    /// The place of the next piece: they are taken in turn.
    next: Mutex<usize>,
}

/// Room for a piece of a message.
#[derive(Debug)]
struct Place {
    /// Whether the last piece has come.
    come: CudaEvent,
    /// Whether it has gone on.
    gone: CudaEvent,
}

impl Staging {
    /// That of messages from the card of `leaving` to the card `gpu`, which has the place `rank` among `peers`; for the `lane` and the `word`, see [`CopyStream::new`].
    ///
    /// # Errors
    ///
    /// As there, and where the driver has no such memory.
    pub fn new(
        leaving: &CopyStream,
        gpu: &Gpu,
        peers: &Arc<Peers>,
        [rank, lane]: [usize; 2],
        word: usize,
    ) -> Result<Self, String> {
        let arriving = CopyStream::new(gpu, peers, [rank, lane], word)?;
        let place = || Ok(Place { come: leaving.event()?, gone: arriving.event()? });
        let places = || Ok([place()?, place()?, place()?, place()?]);
        let taken = Part::host(PLACES * PIECE).and_then(|memory| Ok((memory, places()?)));
        let (memory, places) = taken.map_err(|error: DriverError| error.to_string())?;
        Ok(Self { arriving, rank, memory, places, next: Mutex::default() })
    }

    /// Has `leaving` bring a message whose `parts` lie in its card's memory, and takes it from here to `there`; the word `arrived` of the other card then has
    /// the message's number.
    ///
    /// # Errors
    ///
    /// What the driver says.
    pub fn take(
        &self,
        leaving: &CopyStream,
        parts: &[Lying],
        there: &[Lying],
        (number, arrived): (u32, usize),
    ) -> Result<(), DriverError> {
        let mut next = lock(&self.next);
        for (part, there) in parts.iter().zip(there) {
            let [part, there] = Lying::in_one_row([part, there]);
            for (rows, bytes) in pieces(part.rows.rows, part.rows.bytes) {
                let [part, there] = [part, there].map(|all| all.slice(rows.clone(), bytes.clone()));
                let (here, Place { come, gone }) =
                    (self.here(*next, part.rows), &self.places[*next]);
                *next = (*next + 1) % PLACES;
                leaving.wait_for(gone)?;
                leaving.copy_rows(&part, &here)?;
                leaving.record(come)?;
                self.arriving.wait_for(come)?;
                self.arriving.copy_rows(&here, &there)?;
                self.arriving.record(gone)?;
            }
        }
        self.arriving.tell(self.rank, arrived, number)
    }

    /// Where a piece of so many rows lies in a place, without gaps.
    fn here(&self, place: usize, rows: PitchedRows) -> Lying {
        let address = self.memory.address() + (place * PIECE) as u64;
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
