//! What takes a card's messages to one of its neighbours in a pipeline.

use std::sync::Arc;

use super::Peers;
use super::copies::{CopyStream, PitchedRows};
use crate::ops::gpu::{Buffer, Gpu};

/// Copies messages from where they lie in a card's memory into an inbox in the other one's: see `kernels/messages.cuh`.
#[derive(Debug)]
pub(in crate::ops::gpu) struct Outgoing {
    copies: CopyStream,
    way: Way,
}

/// Where messages go, and the words that tell of them; all in bytes from the beginning of a card's part.
#[derive(Debug, Clone, Copy)]
pub(in crate::ops::gpu) struct Way {
    pub from: usize,
    pub to: usize,
    /// Messages of another lane do not wait for these.
    pub lane: usize,
    /// Where a message comes.
    pub inbox: usize,
    /// Of the card that sends: the number of the last message that is there, of the last one that has left, and of the last one that
    /// the other card has taken out.
    pub ready: usize,
    pub copied: usize,
    pub taken: usize,
    /// Of the one that receives: the number of the message that has come.
    pub arrived: usize,
}

impl Outgoing {
    /// That of the card `gpu`.
    ///
    /// # Errors
    ///
    /// As [`CopyStream::new`].
    pub(in crate::ops::gpu) fn new(
        gpu: &Gpu,
        peers: &Arc<Peers>,
        way: Way,
    ) -> Result<Self, String> {
        Ok(Self { copies: CopyStream::new(gpu, peers, [way.from, way.lane], way.ready)?, way })
    }

    /// Takes message `number`, which are these rows of each of `parts`, to the other card when they are there, and when that one has taken out the
    /// message `before` where there is one; and then tells both. The kernel that tells of the rows must have been launched. Nothing may write into the
    /// parts, or free their memory, before they have left. Returns when the driver has all of it.
    ///
    /// # Errors
    ///
    /// What has failed that was to make the rows, and what the driver says.
    pub(in crate::ops::gpu) fn take(
        &self,
        gpu: &Gpu,
        parts: &[(&Buffer, PitchedRows)],
        number: u32,
        before: Option<u32>,
    ) -> Result<(), String> {
        // Asking waits each time.
        let mut known: Vec<(u64, &Buffer)> = Vec::new();
        let mut address = |part| {
            let beside = known.last().and_then(|(address, last): &(u64, &Buffer)| {
                address.checked_add_signed(Buffer::behind(part, last)?)
            });
            let address = beside.map_or_else(|| part.address(gpu.client()), Ok)?;
            known.push((address, part));
            Ok::<u64, String>(address)
        };
        let parts = parts
            .iter()
            .map(|(part, rows)| Ok((address(part)?, *rows)))
            .collect::<Result<Vec<_>, String>>()?;
        let Way { from, to, inbox, ready, copied, taken, arrived, .. } = self.way;
        let copies = &self.copies;
        let asked = copies.wait(from, ready, number).and_then(|()| {
            before.map_or(Ok(()), |before| copies.wait(from, taken, before))?;
            let mut inbox = inbox;
            for (address, rows) in parts {
                copies.copy_rows(to, inbox, address, rows)?;
                inbox += rows.rows * rows.bytes;
            }
            copies.tell(to, arrived, number)?;
            copies.tell(from, copied, number)
        });
        asked.map_err(|error| error.to_string())
    }

    /// Waits until all is gone.
    pub(in crate::ops::gpu) fn drain(&self) {
        self.copies.drain();
    }
}
