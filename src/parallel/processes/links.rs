//! The connections between rank 0 and the others, and what has come over them.
//!
//! Each connection has a thread that reads and one that writes, so that both ends may send at once however
//! much it is. A third thread listens whether anything is heard of the others.

use std::collections::VecDeque;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};

use super::frame::{Frame, Kind};
use super::{Elsewhere, Who};
use crate::screen::tell_progress;

/// Signs of life within the time that may pass without one.
const BEATS: u32 = 10;
/// How long what is left may take to be sent, at the end.
const FLUSH: Duration = Duration::from_secs(3);
/// After this time somebody may want to know for whom rank 0 waits.
const LONG: Duration = Duration::from_secs(60);

/// What all threads of a process know.
pub(super) struct Hub {
    /// Every rank.
    pub roster: Vec<Who>,
    pub rank: usize,
    state: Mutex<State>,
    changed: Condvar,
    begin: Instant,
    /// When each rank was last heard of, in milliseconds since then.
    heard: Vec<AtomicU64>,
    /// To each rank with which there is a connection.
    senders: Mutex<Vec<Option<Sender<Frame>>>>,
    card: OnceLock<Served>,
}

/// What is done for the process's card by the threads that read, whatever the others wait for.
pub(super) struct Served {
    /// Ends its waiting for others, as one of them has failed.
    pub stop: Box<dyn Fn() + Send + Sync>,
    /// Gives it what another process's card has for it.
    pub deliver: Box<Deliver>,
}

/// Is given a message.
type Deliver = dyn Fn(&[u8]) + Send + Sync;

#[derive(Default)]
struct State {
    inbox: Vec<VecDeque<Frame>>,
    /// Who has said that it ends.
    gone: Vec<bool>,
    /// Whose connection is closed.
    closed: Vec<bool>,
    /// Why all end: what was heard first.
    failure: Option<Elsewhere>,
    /// What the first rank itself failed with.
    of_first: Option<Elsewhere>,
    leaving: bool,
    /// Connections on which something may still be sent.
    sending: usize,
}

impl Hub {
    /// Lets messages come and go over `streams`, each with the rank at its other end.
    pub fn open(
        roster: Vec<Who>,
        rank: usize,
        streams: Vec<(usize, TcpStream)>,
        silence: Duration,
    ) -> io::Result<Arc<Self>> {
        let ranks = roster.len();
        let state = State {
            inbox: (0..ranks).map(|_| VecDeque::new()).collect(),
            gone: vec![false; ranks],
            closed: vec![false; ranks],
            sending: streams.len(),
            ..State::default()
        };
        let hub = Arc::new(Self {
            roster,
            rank,
            state: Mutex::new(state),
            changed: Condvar::new(),
            begin: Instant::now(),
            heard: (0..ranks).map(|_| AtomicU64::new(0)).collect(),
            senders: Mutex::new((0..ranks).map(|_| None).collect()),
            card: OnceLock::new(),
        });
        let others: Vec<usize> = streams.iter().map(|(other, _)| *other).collect();
        // Before anything is read: a rank that is gone already is told of to all others.
        let to_send: Vec<Receiver<Frame>> = others
            .iter()
            .map(|other| {
                let (sender, frames) = unbounded();
                hub.senders()[*other] = Some(sender);
                frames
            })
            .collect();
        for ((other, stream), frames) in streams.into_iter().zip(to_send) {
            let (reading, writing) = (Arc::clone(&hub), Arc::clone(&hub));
            let from = stream.try_clone()?;
            let thread = |name: &str| thread::Builder::new().name(format!("{name} rank {other}"));
            thread("from").spawn(move || reading.read(other, from))?;
            thread("to").spawn(move || writing.write(&stream, &frames, silence / BEATS))?;
        }
        let listening = Arc::downgrade(&hub);
        let listen = move || {
            let tick = (silence / 40).min(Duration::from_millis(500));
            let mut last = Instant::now();
            loop {
                thread::sleep(tick);
                let Some(hub) = listening.upgrade() else { return };
                // This process itself stood still: what others have sent since is read first.
                if last.elapsed() > silence / 2 {
                    hub.others_were_heard(&others);
                }
                last = Instant::now();
                hub.listen(&others, silence);
            }
        };
        thread::Builder::new().name("silence".to_owned()).spawn(listen)?;
        Ok(hub)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn senders(&self) -> MutexGuard<'_, Vec<Option<Sender<Frame>>>> {
        self.senders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a message to `other`.
    pub fn send(&self, other: usize, frame: Frame) {
        if let Some(sender) = &self.senders()[other] {
            // A connection that is closed is told of elsewhere.
            let _ = sender.send(frame);
        }
    }

    /// Sends a message to every rank that there is a connection with.
    pub fn send_all(&self, frame: &Frame) {
        for sender in self.senders().iter().flatten() {
            let _ = sender.send(frame.clone());
        }
    }

    /// Does what is to be done for the process's `card` from now on.
    pub fn serve(&self, card: Served) {
        let _ = self.card.set(card);
        if self.failure().is_some() {
            self.stop_card();
        }
    }

    fn stop_card(&self) {
        if let Some(card) = self.card.get() {
            (card.stop)();
        }
    }

    /// Gives the process's card what has come `from` another rank. Rank 0 has a connection with each, and sends it on.
    fn deliver(&self, from: usize, frame: &Frame) {
        if self.rank == 0 {
            for (other, sender) in self.senders().iter().enumerate() {
                if let Some(sender) = sender.as_ref().filter(|_| other != from) {
                    let _ = sender.send(frame.clone());
                }
            }
        }
        if let Some(card) = self.card.get() {
            (card.deliver)(&frame.body);
        }
    }

    /// Waits for what `take` finds in what has come from each rank.
    ///
    /// # Errors
    /// When a rank has failed, or rank `from` has ended without it. What has come by then is still found.
    pub fn wait<T>(
        &self,
        from: usize,
        mut take: impl FnMut(&mut [VecDeque<Frame>]) -> Option<T>,
    ) -> Result<T, Elsewhere> {
        let mut state = self.lock();
        let mut told = false;
        loop {
            if let Some(found) = take(&mut state.inbox) {
                return Ok(found);
            }
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            if state.gone[from] {
                return Err(self.lost(from, "has ended before the others"));
            }
            if told {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let waited = self.changed.wait_timeout(state, LONG);
            let (next, over) = waited.unwrap_or_else(PoisonError::into_inner);
            state = next;
            told = over.timed_out();
            if told {
                let seconds = LONG.as_secs();
                let (who, ranks) = (&self.roster[from], self.roster.len());
                tell_progress(&format!(
                    "waiting for rank {from} of {ranks} ({who}), which is alive, for {seconds} s"
                ));
            }
        }
    }

    /// What has ended the others, or will end them.
    pub fn failure(&self) -> Option<Elsewhere> {
        self.lock().failure.clone()
    }

    /// Waits for a failure for so long.
    pub fn failure_within(&self, limit: Duration) -> Option<Elsewhere> {
        self.until(limit, |state| state.failure.is_some() || state.leaving).failure.clone()
    }

    /// What rank 0 itself failed with, if it says so in this time.
    pub fn failure_of_first_within(&self, limit: Duration) -> Option<Elsewhere> {
        let known = |state: &State| state.of_first.is_some() || state.closed[0] || state.gone[0];
        self.until(limit, known).of_first.clone()
    }

    fn until(&self, limit: Duration, holds: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let end = Instant::now() + limit;
        let mut state = self.lock();
        while !holds(&state) {
            let Some(left) = end.checked_duration_since(Instant::now()) else { break };
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state
    }

    /// Takes note of a failure, and tells the others of it.
    pub fn fail(&self, failure: Elsewhere) {
        let mut state = self.lock();
        let own = failure.rank == self.rank;
        if state.leaving || (state.failure.is_some() && !own) {
            return;
        }
        let body = serde_json::to_vec(&failure).unwrap_or_default();
        state.failure.get_or_insert(failure);
        // Before this process hears of it, and may leave.
        self.send_all(&Frame::new(Kind::Failed, 0, "", body));
        drop(state);
        self.stop_card();
        self.changed.notify_all();
    }

    /// Ends all connections once everything is sent. With a `word`, the others know that nothing is wrong.
    pub fn leave(&self, word: bool) {
        let mut state = self.lock();
        if std::mem::replace(&mut state.leaving, true) {
            return;
        }
        drop(state);
        self.changed.notify_all();
        if word {
            self.send_all(&Frame::new(Kind::Bye, 0, "", Vec::new()));
        }
        self.senders().iter_mut().for_each(|sender| drop(sender.take()));
        drop(self.until(FLUSH, |state| state.sending == 0));
    }

    pub fn has_left(&self) -> bool {
        self.lock().leaving
    }

    fn read(&self, other: usize, mut stream: TcpStream) {
        loop {
            match Frame::read(&mut stream, || self.was_heard(other)) {
                Ok(Frame { kind: Kind::Beat, .. }) => {}
                Ok(Frame { kind: Kind::Failed, body, .. }) => {
                    let Ok(failure) = serde_json::from_slice::<Elsewhere>(&body) else { continue };
                    if other == 0 && failure.rank == 0 && !failure.lost {
                        self.lock().of_first = Some(failure.clone());
                        self.changed.notify_all();
                    }
                    self.fail(failure);
                }
                Ok(Frame { kind: Kind::Bye, .. }) => {
                    self.lock().gone[other] = true;
                    self.changed.notify_all();
                }
                Ok(frame) if frame.kind == Kind::Words => self.deliver(other, &frame),
                Ok(frame) => {
                    // Its work is of no use any more.
                    if frame.is_over() {
                        self.stop_card();
                    }
                    self.lock().inbox[other].push_back(frame);
                    self.changed.notify_all();
                }
                Err(error) => {
                    self.close(other, &error);
                    return;
                }
            }
        }
    }

    fn close(&self, other: usize, error: &io::Error) {
        let mut state = self.lock();
        state.closed[other] = true;
        let expected = state.leaving || state.gone[other];
        drop(state);
        self.changed.notify_all();
        if !expected {
            let what = match error.kind() {
                io::ErrorKind::InvalidData => format!("has sent something else: {error}"),
                _ => "has ended without a word: it was killed, or its machine has failed or had no memory \
                      left"
                    .to_owned(),
            };
            self.fail(self.lost(other, &what));
        }
    }

    fn write(&self, mut stream: &TcpStream, frames: &Receiver<Frame>, pause: Duration) {
        loop {
            let frame = match frames.recv_timeout(pause) {
                Ok(frame) => frame,
                Err(RecvTimeoutError::Timeout) => Frame::beat(),
                Err(RecvTimeoutError::Disconnected) => break,
            };
            // That the other end is gone is seen where it is read from.
            if frame.write(&mut stream).is_err() {
                break;
            }
        }
        let _ = stream.shutdown(Shutdown::Write);
        self.lock().sending -= 1;
        self.changed.notify_all();
    }

    fn now(&self) -> u64 {
        u64::try_from(self.begin.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn was_heard(&self, other: usize) {
        self.heard[other].store(self.now(), Ordering::Relaxed);
    }

    fn others_were_heard(&self, others: &[usize]) {
        others.iter().for_each(|other| self.was_heard(*other));
    }

    /// Looks whether something was heard of each of the others within `silence`.
    fn listen(&self, others: &[usize], silence: Duration) {
        for &other in others {
            let last = Duration::from_millis(self.heard[other].load(Ordering::Relaxed));
            let since = Duration::from_millis(self.now()).saturating_sub(last);
            let over = { self.lock().gone[other] };
            if since > silence && !over {
                let what = format!(
                    "has sent nothing for {} s: it is stopped, or the network to it is cut",
                    silence.as_secs()
                );
                self.fail(self.lost(other, &what));
            }
        }
    }

    fn lost(&self, rank: usize, what: &str) -> Elsewhere {
        let who = &self.roster[rank];
        let message = format!("rank {rank} of {} ({who}) {what}", self.roster.len());
        Elsewhere { rank, message, code: 1, lost: true }
    }
}
