//! What takes a card's messages to one of its neighbours in a pipeline.

use std::sync::Arc;

use super::Peers;
use super::copies::CopyStream;
use super::staging::Staging;
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
    /// The way that they take where the card does not reach the other one's memory.
    staging: Option<Staging>,
}

impl Outgoing {
    /// That of the first of the cards `gpus` to the second, which have these two places among `peers`. Messages of another lane do not wait for these. The
    /// `words` are for what has arrived, which is the other card's, what there is room for, what is ready, and what has been copied. Where the cards are `apart`,
    /// messages go through the host's memory.
    ///
    /// # Errors
    ///
    /// As [`CopyStream::new`].
    pub(in crate::ops::gpu) fn new(
        gpus: [&Gpu; 2],
        peers: &Arc<Peers>,
        [from, to]: [usize; 2],
        (lane, apart): (usize, bool),
        words: [usize; 4],
    ) -> Result<Self, String> {
        let [arrived, _, ready, _] = words;
        let copies = CopyStream::new(gpus[0], peers, [from, lane], ready)?;
        // A card has two lanes for what it sends.
        let staging = || Staging::new(&copies, gpus[1], peers, [to, lane + 2], arrived);
        let staging = apart.then(staging).transpose()?;
        Ok(Self { copies, from, to, words, staging })
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
        let Self { copies, from, to, words: [arrived, place, ready, copied], staging } = self;
        let asked = copies.wait(*from, *ready, number).and_then(|()| {
            copies.wait(*from, *place, placed)?;
            match staging {
                Some(staging) => staging.take(copies, parts, places, (number, *arrived))?,
                None => {
                    let mut both = parts.iter().zip(places);
                    both.try_for_each(|(part, place)| copies.copy_rows(part, place))?;
                    copies.tell(*to, *arrived, number)?;
                }
            }
            copies.tell(*from, *copied, number)
        });
        asked.map_err(|error| error.to_string())
    }

    /// Waits until all is gone.
    pub(in crate::ops::gpu) fn drain(&self) {
        self.copies.drain();
        if let Some(staging) = &self.staging {
            staging.drain();
        }
    }
}
