//! A piece of work that all processes do at once, and in which they exchange sums.

use std::collections::BTreeMap;
use std::error::Error;
use std::panic;
use std::sync::Arc;
use std::time::Duration;

use burn::tensor::{DType, Device, Tensor, TensorData};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::frame::{DONE, Frame, Kind};
use super::{Elsewhere, Processes, pack, unpack};
use crate::memory::OutOfMemory;
use crate::ops::gpu::Exchanges;
use crate::parallel::Seat;
use crate::parallel::group::Abandoned;
use crate::parallel::member::add_all;
use crate::parallel::on_ranks::{Ended, Failure, caught};

/// How long a rank that has failed may take to say so in full.
const WORDS: Duration = Duration::from_secs(5);
const FAILED: &str = "failed";

/// One process's place in a piece of work that all do at once.
#[derive(Debug)]
pub(in crate::parallel) struct Attempt {
    processes: Processes,
    round: u64,
    /// Where sums are put.
    device: Device,
}

/// How the work of a rank has ended, as the others are told it.
#[derive(Debug, Clone, Serialize, Deserialize)]
enum Outcome {
    Done,
    OutOfMemory(Option<u64>),
    Failed(String),
    /// Another rank has failed.
    Abandoned,
}

impl Attempt {
    pub fn rank(&self) -> usize {
        self.processes.rank()
    }

    pub fn ranks(&self) -> usize {
        self.processes.ranks()
    }

    /// The sum over the first `ranks` ranks, in their order.
    pub fn sum(&self, name: &str, ranks: usize, value: Tensor<1>) -> Tensor<1> {
        let own = BTreeMap::from([((), value)]);
        let sums = self.through_first(name, ranks, own);
        sums.into_values().next().unwrap_or_else(|| self.lose(name))
    }

    /// The sums over all ranks, in their order, of the tensors of each name.
    pub fn sum_all<K: Ord + Clone + Serialize + DeserializeOwned>(
        &self,
        values: BTreeMap<K, Tensor<1>>,
    ) -> BTreeMap<K, Tensor<1>> {
        self.through_first("sums", self.ranks(), values)
    }

    /// Rank 0 adds up, and all get what it has found.
    fn through_first<K: Ord + Clone + Serialize + DeserializeOwned>(
        &self,
        name: &str,
        ranks: usize,
        values: BTreeMap<K, Tensor<1>>,
    ) -> BTreeMap<K, Tensor<1>> {
        let Self { processes: Processes { hub, .. }, round, .. } = self;
        let frame = |body| Frame::new(Kind::Data, *round, name, body);
        if self.rank() > 0 {
            hub.send(0, frame(encoded(values)));
            return self.decoded(name, &self.data(0, name));
        }
        let mut all = vec![values];
        for rank in 1..ranks {
            let data = self.data(rank, name);
            all.push(self.decoded(name, &data));
        }
        let sums = add_all(all);
        let frame = frame(encoded(sums.clone()));
        (1..ranks).for_each(|rank| hub.send(rank, frame.clone()));
        sums
    }

    /// What every rank brings, in their order.
    pub fn gather(&self, name: &str, own: &[u8]) -> Vec<Vec<u8>> {
        let Self { processes: Processes { hub, .. }, round, .. } = self;
        let frame = |body| Frame::new(Kind::Data, *round, name, body);
        if self.rank() > 0 {
            hub.send(0, frame(own.to_vec()));
            return super::values(&self.data(0, name));
        }
        let mut all = vec![own.to_vec()];
        (1..self.ranks()).for_each(|rank| all.push(self.data(rank, name).to_vec()));
        hub.send_all(&frame(pack(all.iter().map(|bytes| ("", bytes.as_slice())))));
        all
    }

    /// The entries that every rank brings, in their order.
    pub fn gather_values<K: Ord + Serialize + DeserializeOwned, V: Serialize + DeserializeOwned>(
        &self,
        name: &str,
        own: BTreeMap<K, V>,
    ) -> Vec<BTreeMap<K, V>> {
        // JSON has no names but texts.
        let own = serde_json::to_vec(&own.into_iter().collect::<Vec<_>>()).unwrap_or_default();
        let read = |bytes: &Vec<u8>| {
            let entries: Vec<(K, V)> = serde_json::from_slice(bytes).ok()?;
            Some(entries.into_iter().collect())
        };
        let all: Option<Vec<_>> = self.gather(name, &own).iter().map(read).collect();
        all.unwrap_or_else(|| self.lose(name))
    }

    /// What `rank` has sent. Unwinds where a rank has failed.
    fn data(&self, rank: usize, name: &str) -> Arc<Vec<u8>> {
        let Self { processes, round, .. } = self;
        let is_over = |frame: &Frame| frame.round == *round && frame.is_over();
        let found = processes.hub.wait(rank, |inbox| {
            inbox.iter_mut().for_each(|inbox| inbox.retain(|frame| frame.round >= *round));
            if inbox.iter().flatten().any(is_over) {
                return Some(None);
            }
            inbox[rank].pop_front().map(Some)
        });
        match found {
            Ok(Some(frame)) if frame.kind == Kind::Data && frame.name == name => frame.body,
            Ok(Some(frame)) => {
                panic::resume_unwind(Box::new(processes.out_of_step(rank, name, &frame)))
            }
            Ok(None) => panic::resume_unwind(Box::new(Abandoned)),
            Err(failure) => panic::resume_unwind(Box::new(failure)),
        }
    }

    fn decoded<K: Ord + DeserializeOwned>(
        &self,
        name: &str,
        parcel: &[u8],
    ) -> BTreeMap<K, Tensor<1>> {
        decoded(parcel, &self.device).unwrap_or_else(|| self.lose(name))
    }

    fn lose(&self, name: &str) -> ! {
        let message = format!("what came as {name:?} is no tensor");
        let failure = Elsewhere { rank: self.rank(), message, code: 1, lost: true };
        panic::resume_unwind(Box::new(failure))
    }
}

/// Each tensor with its name, its type and its bytes.
fn encoded<K: Serialize>(values: BTreeMap<K, Tensor<1>>) -> Vec<u8> {
    let parts = values.into_iter().map(|(key, value)| {
        let data = value.into_data();
        let head = serde_json::to_string(&(key, data.dtype())).unwrap_or_default();
        (head, data)
    });
    let parts: Vec<(String, TensorData)> = parts.collect();
    pack(parts.iter().map(|(head, data)| (head.as_str(), data.as_bytes())))
}

fn decoded<K: Ord + DeserializeOwned>(
    parcel: &[u8],
    device: &Device,
) -> Option<BTreeMap<K, Tensor<1>>> {
    let tensor = |(head, bytes): (String, Vec<u8>)| {
        let (key, dtype): (K, DType) = serde_json::from_str(&head).ok()?;
        let length = bytes.len().checked_div(dtype.size())?;
        let data = (bytes.len() == length * dtype.size())
            .then(|| TensorData::from_bytes_vec(bytes, [length], dtype))?;
        Some((key, Tensor::from_data(data, (device, dtype))))
    };
    unpack(parcel)?.into_iter().map(tensor).collect()
}

impl Processes {
    /// Does this process's part of a piece of work that all do at once, on `device`, which computes on
    /// `computes_on`. Either all have done it, or none: what this has changed must be put back by the caller.
    ///
    /// Cards exchange sums by `exchanges`, of which an attempt has [begun](Exchanges::begin). Then `work` must wait for
    /// its card after the last of them.
    ///
    /// # Errors
    /// When any rank runs out of memory, gives an error or ends. A panic of this one is passed on.
    pub fn work<D, T, E: Error>(
        &self,
        device: &mut D,
        computes_on: &Device,
        exchanges: Option<&Exchanges>,
        work: impl FnOnce(&mut D, &Seat) -> Result<T, E>,
    ) -> Result<T, Failure<E>> {
        let (processes, device_of_sums) = (self.clone(), computes_on.clone());
        let attempt = Attempt { processes, round: self.next_round(), device: device_of_sums };
        let round = attempt.round;
        let seat = Seat::of_process(attempt, exchanges.map(|all| all.side(0).clone()));
        let mut ended = caught(|| work(device, &seat));
        if let Some(exchanges) = exchanges {
            if exchanges.is_stopped() && matches!(ended, Ended::Done(_) | Ended::Error(_)) {
                // What the card has gone on with is of no use, and may look like an error of its own.
                ended = Ended::Abandoned;
            }
            if !matches!(ended, Ended::Done(_)) {
                exchanges.stop();
            }
        }
        let outcome = match &ended {
            Ended::Done(_) => Outcome::Done,
            Ended::OutOfMemory(out_of_memory) => Outcome::OutOfMemory(out_of_memory.wanted),
            Ended::Error(error) => Outcome::Failed(error.to_string()),
            Ended::Abandoned => Outcome::Abandoned,
            Ended::Panicked(payload) => match payload.downcast_ref::<Elsewhere>() {
                Some(failure) => return Err(Failure::Elsewhere(failure.clone())),
                None => Outcome::Failed("the program has a defect".to_owned()),
            },
        };
        let all = self.vote(round, outcome).map_err(Failure::Elsewhere)?;
        match ended {
            Ended::Error(error) => return Err(Failure::Error(error)),
            Ended::Panicked(payload) => panic::resume_unwind(payload),
            _ => {}
        }
        let failed = all.iter().enumerate().find_map(|(rank, outcome)| match outcome {
            Outcome::Failed(what) => Some((rank, what)),
            _ => None,
        });
        if let Some((rank, what)) = failed {
            return Err(Failure::Elsewhere(self.words_of(rank, what)));
        }
        let out_of_memory = all.iter().find_map(|outcome| match outcome {
            Outcome::OutOfMemory(wanted) => Some(OutOfMemory { wanted: *wanted }),
            _ => None,
        });
        if let Some(exchanges) = exchanges {
            self.end(exchanges, out_of_memory.is_some())?;
        }
        match (out_of_memory, ended) {
            (Some(out_of_memory), _) => Err(Failure::OutOfMemory(out_of_memory)),
            (None, Ended::Done(done)) => Ok(done),
            (None, _) => Err(Failure::Elsewhere(self.words_of(0, "the processes are out of step"))),
        }
    }

    /// Ends an attempt at what cards exchange in. Where it has `failed`, all count on from the same numbers, and what was
    /// on its way has come when they do.
    fn end<E>(&self, exchanges: &Exchanges, failed: bool) -> Result<(), Failure<E>> {
        exchanges.end(failed).map_err(Failure::Stalled)?;
        if failed {
            let own: Vec<u8> = exchanges.numbers().into_iter().flat_map(u32::to_le_bytes).collect();
            let all = self.gather("numbers", &own).map_err(Failure::Elsewhere)?;
            let numbers = |bytes: &Vec<u8>| {
                let (numbers, _) = bytes.as_chunks::<4>();
                numbers.iter().map(|number| u32::from_le_bytes(*number)).collect()
            };
            exchanges.count_on(&all.iter().map(numbers).collect::<Vec<_>>());
        }
        match self.failure() {
            None => Ok(()),
            Some(failure) => {
                // It may have come before the card could wait again.
                exchanges.stop();
                Err(Failure::Elsewhere(failure))
            }
        }
    }

    /// How the work of each rank has ended.
    fn vote(&self, round: u64, own: Outcome) -> Result<Vec<Outcome>, Elsewhere> {
        let mut abandoned = false;
        let mut abandon = |outcome: &Outcome| {
            if !abandoned && !matches!(outcome, Outcome::Done) {
                self.hub.send_all(&Frame::new(Kind::Abandon, round, "", Vec::new()));
                abandoned = true;
            }
        };
        let broken = || Elsewhere {
            rank: self.rank(),
            message: "a vote that cannot be read".to_owned(),
            code: 1,
            lost: true,
        };
        if !self.is_first() {
            let name = if matches!(own, Outcome::Done) { DONE } else { FAILED };
            let body = serde_json::to_vec(&own).map_err(|_| broken())?;
            self.hub.send(0, Frame::new(Kind::Ended, round, name, body));
            let verdict = self.word(0, round, Kind::Verdict)?;
            return serde_json::from_slice(&verdict).map_err(|_| broken());
        }
        abandon(&own);
        let mut all = vec![own];
        for rank in 1..self.ranks() {
            let word = self.word(rank, round, Kind::Ended)?;
            let outcome = serde_json::from_slice(&word).map_err(|_| broken())?;
            abandon(&outcome);
            all.push(outcome);
        }
        let body = serde_json::to_vec(&all).map_err(|_| broken())?;
        self.hub.send_all(&Frame::new(Kind::Verdict, round, "", body));
        Ok(all)
    }

    /// What `rank` says at the end of a round, after all that is of no use any more.
    fn word(&self, rank: usize, round: u64, kind: Kind) -> Result<Arc<Vec<u8>>, Elsewhere> {
        let frame = self.hub.wait(rank, |inbox| {
            let inbox = &mut inbox[rank];
            inbox.retain(|frame| frame.round > round || frame.kind == kind);
            inbox.pop_front()
        })?;
        Ok(frame.body)
    }

    /// What a rank says that it has failed with; `what` where it says nothing.
    fn words_of(&self, rank: usize, what: &str) -> Elsewhere {
        self.failure_within(WORDS).unwrap_or_else(|| {
            let (ranks, who) = (self.ranks(), &self.roster()[rank]);
            let message = format!("rank {rank} of {ranks} ({who}) has failed: {what}");
            Elsewhere { rank, message, code: 1, lost: true }
        })
    }
}
