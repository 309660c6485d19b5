//! A piece of work on several devices at once.

use std::any::Any;
use std::error::Error;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::Seat;
use super::group::{Abandoned, Group};
use super::processes::Elsewhere;
use crate::memory::{OutOfMemory, catch_out_of_memory, fault};
use crate::ops::gpu::{Exchange, Exchanges};

/// Threads that stay, one for each of several cards: all that a thread that is new to CubeCL must make ready
/// is ready. The CPU's devices have new threads, as the pool's would have to share out what the CPU computes.
pub type Threads = rayon::ThreadPool;

/// Threads for so many cards.
///
/// # Errors
/// When the system has no more.
pub fn threads(cards: usize) -> Result<Threads, rayon::ThreadPoolBuildError> {
    rayon::ThreadPoolBuilder::new()
        .num_threads(cards)
        .thread_name(|card| format!("card {card}"))
        .build()
}

/// What the cards of a grid exchange by.
#[derive(Debug, Clone, Copy, Default)]
pub struct GridExchanges<'a> {
    /// The sums over those of each row.
    pub rows: &'a [Exchanges],
    /// The messages between those of each column, which has one copy of the model.
    pub columns: &'a [Exchanges],
}

impl<'a> GridExchanges<'a> {
    /// Sums over cards, each of which has the whole model.
    pub fn of_row(rows: &'a [Exchanges]) -> Self {
        Self { rows, columns: &[] }
    }

    fn all(self) -> impl Iterator<Item = &'a Exchanges> {
        self.rows.iter().chain(self.columns)
    }

    /// Begins an attempt at a piece of work, which `work` tells from others.
    pub fn begin(self, work: &str) {
        self.all().for_each(|exchanges| exchanges.begin(work.to_owned()));
    }
}

/// Why no device has done its work.
#[derive(Debug)]
pub enum Failure<E> {
    /// A device had no memory left.
    OutOfMemory(OutOfMemory),
    /// The error of the first device that has one.
    Error(E),
    /// A device has waited in vain for the sums of another one.
    Stalled(String),
    /// Another process has failed, and all end.
    Elsewhere(Elsewhere),
}

/// How the work of one device has ended.
pub(super) enum Ended<T, E> {
    Done(T),
    OutOfMemory(OutOfMemory),
    Error(E),
    /// It waited for another one, which has failed.
    Abandoned,
    Panicked(Box<dyn Any + Send>),
}

/// Runs `work` on each of `devices`, at once and on a thread for each, with its place in the grid of them; of
/// one device on this thread. `depth` devices after another are a column, which has one copy of the model. Returns what they give in the order of the devices. Either all have done it, or
/// none: what those have changed that did not fail must be put back by the caller.
///
/// Where there are `threads`, which are as many as devices, the work is done on them and not on new ones.
///
/// Cards reach each other by `cards`, of which an attempt has [begun](GridExchanges::begin). Then
/// `work` must wait for its card after the last of what they exchange, or leave it to the card what becomes of sums for
/// which it has waited in vain.
///
/// # Errors
/// When a device runs out of memory, or its work gives an error. A panic of another kind is passed on.
pub fn on_ranks<D: Send, T: Send, E: Error + Send>(
    devices: &mut [D],
    depth: usize,
    threads: Option<&Threads>,
    cards: GridExchanges<'_>,
    work: impl Fn(&mut D, &Seat) -> Result<T, E> + Sync,
) -> Result<Vec<T>, Failure<E>> {
    let group = Arc::new(Group::default());
    let ranks = devices.len();
    let run = |rank: usize, device: &mut D| {
        let [copy, stage] = [rank / depth, rank % depth];
        let row = cards.rows.get(stage).map(|row| row.side(copy).clone());
        let column = cards.columns.get(copy).map(|column| column.side(stage).clone());
        let seat = Seat::in_grid(rank, [ranks, depth], &group, [row, column]);
        let ended = caught(|| {
            let done = work(device, &seat)?;
            seat.column.exchange().into_iter().for_each(Exchange::all_sent);
            Ok(done)
        });
        if matches!(ended, Ended::Done(_)) {
            return ended;
        }
        let first = group.fail();
        if first {
            cards.all().for_each(Exchanges::stop);
        } else if cards.all().next().is_some() && !matches!(ended, Ended::OutOfMemory(_)) {
            // What the others' cards go on with is of no use, and may look like an error of its own.
            return Ended::Abandoned;
        }
        ended
    };
    let run = on_this_stream(run);
    let all: Vec<Ended<T, E>> = match devices {
        [device] => vec![run(0, device)],
        devices => {
            let armed = Mutex::new(fault::hand_over());
            let on_thread = |rank: usize, device: &mut D| {
                let is_armed = lock(&armed).0 == rank;
                if is_armed {
                    fault::take_over(lock(&armed).1);
                }
                let ended = run(rank, device);
                if is_armed {
                    lock(&armed).1 = fault::hand_over().1;
                }
                ended
            };
            let all = match threads {
                Some(threads) => {
                    let places: Vec<Mutex<&mut D>> = devices.iter_mut().map(Mutex::new).collect();
                    threads.broadcast(|thread| {
                        on_thread(thread.index(), &mut lock(&places[thread.index()]))
                    })
                }
                None => thread::scope(|scope| {
                    let on_thread = &on_thread;
                    let ranked = devices.iter_mut().enumerate();
                    let threads: Vec<_> = ranked
                        .map(|(rank, device)| scope.spawn(move || on_thread(rank, device)))
                        .collect();
                    let joined = threads.into_iter().map(|thread| thread.join());
                    joined.map(|ended| ended.unwrap_or_else(Ended::Panicked)).collect()
                }),
            };
            let (_, handed) = *lock(&armed);
            fault::take_over(handed);
            all
        }
    };
    let failed = all.iter().any(|ended| !matches!(ended, Ended::Done(_)));
    // Each is put back, whatever the others have come to.
    let over: Vec<_> = cards.all().map(|exchanges| exchanges.end(failed)).collect();
    let done = decide(all)?;
    over.into_iter().collect::<Result<(), _>>().map(|()| done).map_err(Failure::Stalled)
}

/// How `work` ends.
pub(super) fn caught<T, E: Error>(work: impl FnOnce() -> Result<T, E>) -> Ended<T, E> {
    match panic::catch_unwind(AssertUnwindSafe(|| catch_out_of_memory(work))) {
        Ok(Ok(Ok(done))) => Ended::Done(done),
        Ok(Ok(Err(error))) => Ended::Error(error),
        Ok(Err(out_of_memory)) => Ended::OutOfMemory(out_of_memory),
        Err(payload) if payload.is::<Abandoned>() => Ended::Abandoned,
        Err(payload) => Ended::Panicked(payload),
    }
}

/// `run` on threads of their own as if on this one: CubeCL gives every thread a stream of work of its own,
/// and all that is computed on a device is to be on one.
fn on_this_stream<D, T>(
    run: impl Fn(usize, &mut D) -> T + Sync,
) -> impl Fn(usize, &mut D) -> T + Sync {
    #[cfg(feature = "cuda")]
    let stream = burn::backend::StreamId::current();
    move |rank, device| {
        #[cfg(feature = "cuda")]
        return stream.executes(|| run(rank, device));
        #[cfg(not(feature = "cuda"))]
        run(rank, device)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn decide<T, E>(all: Vec<Ended<T, E>>) -> Result<Vec<T>, Failure<E>> {
    let (mut done, mut error, mut out_of_memory) = (Vec::with_capacity(all.len()), None, None);
    for ended in all {
        match ended {
            Ended::Done(value) => done.push(value),
            Ended::Panicked(payload) => panic::resume_unwind(payload),
            Ended::Error(found) => error = error.or(Some(found)),
            Ended::OutOfMemory(found) => out_of_memory = out_of_memory.or(Some(found)),
            Ended::Abandoned => {}
        }
    }
    match (error, out_of_memory) {
        (Some(error), _) => Err(Failure::Error(error)),
        (None, Some(out_of_memory)) => Err(Failure::OutOfMemory(out_of_memory)),
        (None, None) => Ok(done),
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::super::Member;
    use super::*;

    fn met(member: &Member) -> Vec<usize> {
        use burn::tensor::Tensor;
        let device = burn::tensor::Device::flex();
        let own = Tensor::from_data([member.rank() as f32 + 1.0], &device);
        let sum = member.sum("value", member.ranks(), own);
        vec![sum.into_scalar::<f32>() as usize]
    }

    #[test]
    fn all_work_at_once_and_their_outcomes_are_in_order() {
        for ranks in 1..5 {
            let mut devices: Vec<usize> = (0..ranks).collect();
            let outcome =
                on_ranks(&mut devices, 1, None, GridExchanges::default(), |device, seat| {
                    assert_eq!((*device, seat.row.ranks()), (seat.row.rank(), ranks));
                    *device += 10;
                    Ok::<_, fmt::Error>((*device, met(&seat.row)))
                });
            let sum = ranks * (ranks + 1) / 2;
            let expected: Vec<_> = (0..ranks).map(|rank| (rank + 10, vec![sum])).collect();
            assert_eq!(outcome.expect("is done"), expected);
        }
    }

    /// Copies add up what has one place in them, and each copy hands on to the next place.
    #[test]
    fn rows_and_columns_of_a_grid_meet_apart_from_each_other() {
        for (copies, depth) in (1..4).flat_map(|copies| (1..4).map(move |depth| (copies, depth))) {
            let mut devices: Vec<usize> = (0..copies * depth).collect();
            let outcome = on_ranks(
                &mut devices,
                depth,
                None,
                GridExchanges::default(),
                |device, Seat { row, column }| {
                    assert_eq!((row.ranks(), column.ranks()), (copies, depth));
                    assert_eq!(row.rank() * depth + column.rank(), *device);
                    let seen = |member: &Member| member.gather("value", *device);
                    Ok::<_, fmt::Error>([seen(row), seen(column)])
                },
            );
            for (device, [row, column]) in outcome.expect("is done").into_iter().enumerate() {
                let (copy, stage) = (device / depth, device % depth);
                let expected: Vec<usize> = (0..copies).map(|copy| copy * depth + stage).collect();
                assert_eq!(row, expected);
                assert_eq!(column, (copy * depth..(copy + 1) * depth).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn one_device_without_memory_stops_all_of_them() {
        let outcome = on_ranks(&mut [0; 4], 1, None, GridExchanges::default(), |_, seat| {
            if seat.row.rank() == 2 {
                OutOfMemory { wanted: Some(64) }.throw();
            }
            Ok::<_, fmt::Error>(met(&seat.row))
        });
        let wanted = OutOfMemory { wanted: Some(64) };
        assert!(matches!(outcome, Err(Failure::OutOfMemory(found)) if found == wanted));
    }

    #[test]
    fn an_error_comes_before_what_it_has_caused() {
        let outcome =
            on_ranks(&mut [0; 3], 1, None, GridExchanges::default(), |_, seat| {
                match seat.row.rank() {
                    1 => Err(fmt::Error),
                    _ => Ok(met(&seat.row)),
                }
            });
        assert!(matches!(outcome, Err(Failure::Error(fmt::Error))));
    }

    #[test]
    fn a_panic_is_passed_on() {
        let all = || {
            on_ranks(&mut [0; 3], 1, None, GridExchanges::default(), |_, seat| {
                if seat.row.rank() == 1 {
                    panic::resume_unwind(Box::new("index"));
                }
                Ok::<_, fmt::Error>(met(&seat.row))
            })
        };
        let payload = panic::catch_unwind(AssertUnwindSafe(all)).expect_err("panics");
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"index"));
    }
}
