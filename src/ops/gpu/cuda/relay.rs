//! What goes between the cards of processes that reach no memory of each other's.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};

use super::Peers;

/// Takes words to all other processes, which [deliver](Relay::deliver) them to their cards.
pub type Carry = Box<dyn Fn(Vec<u8>) + Send + Sync>;

/// So long after a word has come further ones are waited for, which then go with it.
const TOGETHER: Duration = Duration::from_micros(10);
/// So long a card's words are looked at without a pause.
const EAGER: Duration = Duration::from_millis(2);
const PAUSE: Duration = Duration::from_micros(50);
/// Bytes in front of the values of a message: the place of the first word, and the exchange's number.
const HEAD: usize = 12;

/// Carries what this process's card writes for the others from the host's memory to their processes, and what
/// those send to where this card reads it. The kernels are those of cards that reach each other's memory.
#[derive(Debug)]
pub(in crate::ops::gpu) struct Relay {
    peers: Arc<Peers>,
    rank: usize,
    /// 64-bit words that cards exchange by.
    words: usize,
    jobs: Sender<Job>,
}

/// What the thread is asked for that looks at what the card writes.
enum Job {
    /// To send these words as soon as they bear this number.
    Send(Range<usize>, u32),
    /// To say that all before is done.
    Say(Sender<()>),
}

impl Relay {
    /// That of rank `rank`, whose parts are [apart](Peers::apart) from those of the others.
    pub(in crate::ops::gpu) fn new(
        peers: &Arc<Peers>,
        rank: usize,
        words: usize,
        carry: Carry,
    ) -> Result<Self, String> {
        let (jobs, asked) = unbounded();
        let relay = Self { peers: Arc::clone(peers), rank, words, jobs };
        let (peers, other) = (Arc::clone(peers), usize::from(rank == 0));
        let work = move || send_all(&peers, other, &asked, &carry);
        let thread = thread::Builder::new().name("relay".to_owned()).spawn(work);
        thread.map(|_| relay).map_err(|error| error.to_string())
    }

    /// Sends the words of `places` to the others when the card has written them under `number`.
    pub(in crate::ops::gpu) fn send(&self, places: Range<usize>, number: u32) {
        let _ = self.jobs.send(Job::Send(places, number));
    }

    /// Waits until nothing is left to send.
    pub(in crate::ops::gpu) fn drain(&self) {
        let (sender, done) = bounded(1);
        if self.jobs.send(Job::Say(sender)).is_ok() {
            let _ = done.recv();
        }
    }

    /// Gives the card what another process has sent.
    pub(in crate::ops::gpu) fn deliver(&self, message: &[u8]) {
        let Some((head, values)) = message.split_at_checked(HEAD) else { return };
        let (at, number) = head.split_at(8);
        let at = at.iter().rev().fold(0, |at, byte| at << 8 | u64::from(*byte));
        let number = number.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
        let (values, _) = values.as_chunks::<4>();
        let end = usize::try_from(at).ok().and_then(|at| at.checked_add(values.len()));
        if end.is_none_or(|end| end > self.words) {
            return;
        }
        for (place, value) in values.iter().enumerate() {
            let word = number << 32 | u64::from(u32::from_le_bytes(*value));
            self.peers.word_of(self.rank, at as usize + place).store(word, Ordering::Release);
        }
    }
}

/// Sends what `jobs` ask for, in their order, from the part of card `other`.
fn send_all(peers: &Peers, other: usize, jobs: &Receiver<Job>, carry: &Carry) {
    for job in jobs {
        match job {
            Job::Say(sender) => drop(sender.send(())),
            Job::Send(places, number) => send(peers, other, places, number, carry),
        }
    }
}

/// Sends the words as they come. The first may have to be there before the card writes the last: blocks of a grid
/// that is larger than what runs at once begin when others have ended.
fn send(peers: &Peers, other: usize, mut left: Range<usize>, number: u32, carry: &Carry) {
    let value = |at: usize| {
        let word = peers.word_of(other, at).load(Ordering::Acquire);
        ((word >> 32) as u32 == number).then_some(word as u32)
    };
    let (mut message, mut last) = (Vec::new(), Instant::now());
    while !left.is_empty() {
        let begin = left.start;
        while let Some(value) = left.clone().next().and_then(value) {
            if message.is_empty() {
                message.extend((left.start as u64).to_le_bytes());
                message.extend(number.to_le_bytes());
            }
            message.extend(value.to_le_bytes());
            left.start += 1;
        }
        if left.start > begin {
            last = Instant::now();
        }
        let waited = last.elapsed();
        if !message.is_empty() && (left.is_empty() || waited > TOGETHER) {
            carry(std::mem::take(&mut message));
        }
        if waited > EAGER {
            if peers.is_over() {
                return;
            }
            thread::sleep(PAUSE);
        } else {
            std::hint::spin_loop();
        }
    }
}
