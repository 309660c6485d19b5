//! Several processes, on one machine or on several, that train one model together.
//!
//! A launcher starts them and tells each its rank in environment variables ([`Launch`]). They [join]
//! at rank 0 over TCP. Whatever they exchange goes through rank 0, which adds in the order of the ranks and
//! sends the sum to all: the bits are the same in every process, and those of as many devices in one process.
//! All call the same exchanges in the same order; each has a number, by which what an attempt that was
//! thrown away has left behind is known.
//!
//! Where a rank fails, is stopped or cannot be reached, all others hear of it, and end.
//!
//! [join]: Processes::join

mod attempt;
mod cards;
mod frame;
mod join;
mod launch;
mod links;
mod nodes;
mod parcel;
mod secret;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub(super) use attempt::Attempt;
pub use cards::{Card, Cards};
pub use join::JoinError;
pub use launch::{Launch, LaunchError, Launcher, Variables};
pub use parcel::{pack, unpack};
pub use secret::Secret;

use frame::{Frame, Kind};
use links::{Hub, Served};

/// A process, as a person finds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Who {
    /// The name of its machine.
    pub host: String,
    /// Its number there.
    pub process: u32,
    /// The cores that it may use, as Linux lists them.
    pub cores: String,
}

impl Who {
    /// This process.
    fn here() -> Self {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname");
        let host = host.map_or_else(|_| "this host".to_owned(), |name| name.trim().to_owned());
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let cores = line.unwrap_or_default().trim().to_owned();
        Self { host, process: std::process::id(), cores }
    }
}

impl fmt::Display for Who {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "process {} on {}", self.process, self.host)
    }
}

/// What has ended another process, and so all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Elsewhere {
    /// The rank.
    pub rank: usize,
    /// Who that is, and what has happened.
    pub message: String,
    /// The exit code that it means.
    pub code: u8,
    /// Whether the rank has told nothing itself.
    pub lost: bool,
}

/// The processes that train one model, seen from one of them. Clones are the same.
#[derive(Clone)]
pub struct Processes {
    hub: Arc<Hub>,
    round: Arc<AtomicU64>,
    /// Whether somebody gave them a secret.
    secret_is_given: bool,
    over_tcp: bool,
}

impl Processes {
    /// Finds the other processes of `launch`, which all must have the same `version`.
    ///
    /// # Errors
    /// When they do not find each other in time, or do not fit together.
    pub fn join(launch: &Launch, version: &str) -> Result<Self, JoinError> {
        join::join(launch, version)
    }

    fn new(hub: Arc<Hub>, launch: &Launch) -> Self {
        let (secret_is_given, over_tcp) = (launch.secret.is_given(), launch.over_tcp);
        Self { hub, round: Arc::default(), secret_is_given, over_tcp }
    }

    /// The place of this process among them, from 0.
    pub fn rank(&self) -> usize {
        self.hub.rank
    }

    /// How many there are.
    pub fn ranks(&self) -> usize {
        self.hub.roster.len()
    }

    /// Whether this is rank 0, which alone writes.
    pub fn is_first(&self) -> bool {
        self.rank() == 0
    }

    /// Each of them, in the order of their ranks.
    pub fn roster(&self) -> &[Who] {
        &self.hub.roster
    }

    /// Whether somebody has asked that cards exchange nothing but over TCP.
    pub fn is_over_tcp(&self) -> bool {
        self.over_tcp
    }

    /// How many of the processes share the cores that this one may use.
    pub fn sharing_cores(&self) -> usize {
        let own = &self.hub.roster[self.rank()];
        let shares = |who: &&Who| who.host == own.host && who.cores == own.cores;
        self.hub.roster.iter().filter(shares).count()
    }

    /// What a person should know of how they are connected.
    pub fn warning(&self) -> Option<String> {
        let mut hosts: Vec<&str> = self.hub.roster.iter().map(|who| who.host.as_str()).collect();
        hosts.sort_unstable();
        hosts.dedup();
        (!self.secret_is_given && hosts.len() > 1).then(|| {
            "TRAINER_SECRET is not set: the processes know each other by the number of their job, which \
             other users of these machines may know too"
                .to_owned()
        })
    }

    /// What every rank brings, in their order, which all get.
    ///
    /// # Errors
    /// When a rank has failed.
    pub fn gather(&self, name: &str, own: &[u8]) -> Result<Vec<Vec<u8>>, Elsewhere> {
        self.exchange(self.next_round(), name, own)
    }

    /// What rank 0 brings, which all get.
    ///
    /// # Errors
    /// When a rank has failed.
    pub fn share(&self, name: &str, of_first: Option<Vec<u8>>) -> Result<Vec<u8>, Elsewhere> {
        let round = self.next_round();
        if self.is_first() {
            let bytes = of_first.unwrap_or_default();
            self.hub.send_all(&Frame::new(Kind::Data, round, name, bytes.clone()));
            return Ok(bytes);
        }
        Ok(self.data(0, round, name)?.to_vec())
    }

    /// What every rank brings, in their order, which rank 0 alone gets.
    ///
    /// # Errors
    /// When a rank has failed.
    pub fn collect(&self, name: &str, own: Vec<u8>) -> Result<Option<Vec<Vec<u8>>>, Elsewhere> {
        let round = self.next_round();
        if !self.is_first() {
            self.hub.send(0, Frame::new(Kind::Data, round, name, own));
            return Ok(None);
        }
        let others = (1..self.ranks()).map(|rank| Ok(self.data(rank, round, name)?.to_vec()));
        std::iter::once(Ok(own)).chain(others).collect::<Result<_, _>>().map(Some)
    }

    /// Ends where ranks bring different things; `what` says what of, in the plural.
    ///
    /// # Errors
    /// Which rank has something else than rank 0; also when a rank has failed.
    pub fn agree(&self, what: &str, own: &[u8]) -> Result<(), Elsewhere> {
        let all = self.gather(what, own)?;
        match (1..all.len()).find(|rank| all[*rank] != all[0]) {
            None => Ok(()),
            Some(rank) => {
                let [first, other] = [&self.hub.roster[0], &self.hub.roster[rank]];
                let message =
                    format!("rank 0 ({first}) and rank {rank} ({other}) have different {what}");
                Err(Elsewhere { rank, message, code: 1, lost: true })
            }
        }
    }

    /// What has ended others, or will end them.
    pub fn failure(&self) -> Option<Elsewhere> {
        self.hub.failure()
    }

    /// Waits so long for a failure of any rank, or until this process [leaves](Processes::leave).
    pub fn failure_within(&self, limit: Duration) -> Option<Elsewhere> {
        self.hub.failure_within(limit)
    }

    /// What rank 0 itself has failed with, where it says so in this time.
    pub fn failure_of_first_within(&self, limit: Duration) -> Option<Elsewhere> {
        self.hub.failure_of_first_within(limit)
    }

    /// Takes `message` to the cards of all other processes, which [serve](Processes::serve_card) theirs.
    pub fn carry(&self, message: Vec<u8>) {
        self.hub.send_all(&Frame::new(Kind::Words, 0, "", message));
    }

    /// Serves this process's card whatever it does otherwise: `deliver` gives it what another process has
    /// [carried](Processes::carry), and `stop` ends its waiting for the others when one of them has failed.
    pub fn serve_card(
        &self,
        deliver: impl Fn(&[u8]) + Send + Sync + 'static,
        stop: impl Fn() + Send + Sync + 'static,
    ) {
        self.hub.serve(Served { stop: Box::new(stop), deliver: Box::new(deliver) });
    }

    /// Tells all that this process has failed, and with what; `code` is its exit code.
    pub fn fail(&self, what: &str, code: u8) {
        let (rank, ranks) = (self.rank(), self.ranks());
        let who = &self.hub.roster[rank];
        let message = format!("rank {rank} of {ranks} ({who}) has failed: {what}");
        self.hub.fail(Elsewhere { rank, message, code, lost: false });
    }

    /// Ends the connections. `done` says that nothing is wrong.
    pub fn leave(&self, done: bool) {
        self.hub.leave(done);
    }

    /// Whether this process has [left](Processes::leave).
    pub fn has_left(&self) -> bool {
        self.hub.has_left()
    }

    fn next_round(&self) -> u64 {
        self.round.fetch_add(1, Ordering::Relaxed)
    }

    /// What every rank brings to a round, through rank 0.
    fn exchange(&self, round: u64, name: &str, own: &[u8]) -> Result<Vec<Vec<u8>>, Elsewhere> {
        if !self.is_first() {
            self.hub.send(0, Frame::new(Kind::Data, round, name, own.to_vec()));
            return Ok(values(&self.data(0, round, name)?));
        }
        let mut all = vec![own.to_vec()];
        for rank in 1..self.ranks() {
            all.push(self.data(rank, round, name)?.to_vec());
        }
        let parcel = pack(all.iter().map(|bytes| ("", bytes.as_slice())));
        self.hub.send_all(&Frame::new(Kind::Data, round, name, parcel));
        Ok(all)
    }

    /// What `rank` has sent for a round of exchange.
    fn data(&self, rank: usize, round: u64, name: &str) -> Result<Arc<Vec<u8>>, Elsewhere> {
        let frame = self.hub.wait(rank, |inbox| {
            let inbox = &mut inbox[rank];
            inbox.retain(|frame| frame.round >= round);
            inbox.pop_front()
        })?;
        match frame.kind == Kind::Data && frame.round == round && frame.name == name {
            true => Ok(frame.body),
            false => Err(self.out_of_step(rank, name, &frame)),
        }
    }

    /// Two processes do not do the same: a defect of the program.
    fn out_of_step(&self, rank: usize, name: &str, found: &Frame) -> Elsewhere {
        let message = format!(
            "the processes are out of step: rank {} waits for {name:?}, and rank {rank} is at {:?}",
            self.rank(),
            found.name
        );
        Elsewhere { rank: self.rank(), message, code: 1, lost: true }
    }
}

/// The values of a parcel.
fn values(parcel: &[u8]) -> Vec<Vec<u8>> {
    unpack(parcel).unwrap_or_default().into_iter().map(|(_, bytes)| bytes).collect()
}

impl fmt::Debug for Processes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "rank {} of {}", self.rank(), self.ranks())
    }
}
