//! What takes a card's messages to one of its neighbours in a pipeline.

use std::sync::Arc;

use super::{CopyStream, Peers};
use crate::ops::gpu::Gpu;

/// Copies messages from an outbox in a card's memory into an inbox in the other one's: see `kernels/messages.cuh`.
#[derive(Debug)]
pub(in crate::ops::gpu) struct Outbox {
    copies: CopyStream,
    way: Way,
}

/// Where messages go, and the words that tell of them; all in bytes from the beginning of a card's part.
#[derive(Debug, Clone, Copy)]
pub(in crate::ops::gpu) struct Way {
    pub from: usize,
    pub to: usize,
    /// Where a message lies before it goes, and where it comes.
    pub outbox: usize,
    pub inbox: usize,
    /// Of the card that sends: the number of the message that lies there, and of the last one that has left.
    pub ready: usize,
    pub copied: usize,
    /// Of the one that receives: the number of the message that has come.
    pub arrived: usize,
}

impl Outbox {
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
        Ok(Self { copies: CopyStream::new(gpu, peers, way.from, way.ready)?, way })
    }

    /// Takes message `number`, which has so many bytes, to the other card when it is ready, and then tells both. The kernel that packs it must
    /// have been launched. Returns when the driver has all of it.
    ///
    /// # Errors
    ///
    /// What the driver says.
    pub(in crate::ops::gpu) fn take(&self, number: u32, bytes: usize) -> Result<(), String> {
        let Way { from, to, outbox, inbox, ready, copied, arrived } = self.way;
        let copies = &self.copies;
        let taken = copies.wait(from, ready, number).and_then(|()| {
            copies.copy(to, inbox, copies.place(from, outbox), bytes)?;
            copies.tell(to, arrived, number)?;
            copies.tell(from, copied, number)
        });
        taken.map_err(|error| error.to_string())
    }

    /// Waits until all is gone.
    pub(in crate::ops::gpu) fn drain(&self) {
        self.copies.drain();
    }
}
