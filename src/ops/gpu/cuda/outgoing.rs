//! What takes a card's messages to one of its neighbours in a pipeline.

use std::sync::Arc;

use super::Peers;
use super::copies::CopyStream;
use crate::ops::gpu::messages::{Lying, PitchedRows};
use crate::ops::gpu::{Buffer, Gpu};

/// Copies messages from where they lie in a card's memory to where they are used in another one's: see `messages.rs`.
#[derive(Debug)]
pub(in crate::ops::gpu) struct Outgoing {
    copies: CopyStream,
    from: usize,
    to: usize,
    /// The words that tell of messages, in bytes from the beginning of a card's part.
    words: [usize; 4],
}

impl Outgoing {
    /// That of the card `gpu`, between these two places of `peers`. Messages of another lane do not wait for these. The `words` are for what has arrived, what there
    /// is room for, what is ready and what has been copied; the first is the other card's.
    ///
    /// # Errors
    ///
    /// As [`CopyStream::new`].
    pub(in crate::ops::gpu) fn new(
        gpu: &Gpu,
        peers: &Arc<Peers>,
        [from, to]: [usize; 2],
        lane: usize,
        words: [usize; 4],
    ) -> Result<Self, String> {
        let [_, _, ready, _] = words;
        Ok(Self { copies: CopyStream::new(gpu, peers, [from, lane], ready)?, from, to, words })
    }

    /// Where rows lie that begin where these buffers of the card do.
    ///
    /// # Errors
    ///
    /// What has failed that was to make them.
    pub(in crate::ops::gpu) fn lying(
        gpu: &Gpu,
        parts: &[(&Buffer, PitchedRows)],
    ) -> Result<Vec<Lying>, String> {
        let mut all: Vec<Lying> = Vec::with_capacity(parts.len());
        for (place, (part, rows)) in parts.iter().enumerate() {
            // Asking waits each time.
            let beside = place
                .checked_sub(1)
                .and_then(|last| all[last].address.checked_add_signed(part.behind(parts[last].0)?));
            let address = beside.map_or_else(|| part.address(gpu.client()), Ok)?;
            all.push(Lying { address, rows: *rows });
        }
        Ok(all)
    }

    /// Takes the message of this number, whose `parts` lie there, to these `places` when it is ready and there was room so often; and then tells both
    /// cards. The kernels that say so must have been launched. Nothing may write into the parts or the places, or free their memory, before the message
    /// has left and come. Returns when the driver has all of it.
    ///
    /// # Errors
    ///
    /// What the driver says.
    pub(in crate::ops::gpu) fn take(
        &self,
        parts: &[Lying],
        places: &[Lying],
        [number, placed]: [u32; 2],
    ) -> Result<(), String> {
        let Self { copies, from, to, words: [arrived, place, ready, copied] } = self;
        let asked = copies.wait(*from, *ready, number).and_then(|()| {
            copies.wait(*from, *place, placed)?;
            parts.iter().zip(places).try_for_each(|(part, place)| copies.copy_rows(part, place))?;
            copies.tell(*to, *arrived, number)?;
            copies.tell(*from, *copied, number)
        });
        asked.map_err(|error| error.to_string())
    }

    /// Waits until all is gone.
    pub(in crate::ops::gpu) fn drain(&self) {
        self.copies.drain();
    }
}
