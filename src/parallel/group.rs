//! Where the threads of several devices meet.

use std::any::Any;
use std::collections::HashMap;
use std::panic;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Unwinds a device's thread that waits for another one which has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abandoned;

/// The threads of several devices, for one piece of work: they meet under names, and none waits for one
/// that has failed.
#[derive(Debug, Default)]
pub(super) struct Group {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    failed: bool,
    meetings: HashMap<String, Meeting>,
    /// What was left for one rank, by name.
    posted: HashMap<String, Box<dyn Any + Send>>,
}

/// What has been brought to a meeting.
#[derive(Debug, Default)]
struct Meeting {
    /// By rank, until all have arrived.
    brought: HashMap<usize, Box<dyn Any + Send>>,
    /// What was made of it.
    outcome: Option<Box<dyn Any + Send>>,
    /// How many have taken it.
    taken: usize,
}

impl Group {
    /// Waits for the first `ranks` ranks, each of which brings `value` under the name `name`; returns what
    /// `combine` makes of the values in the order of the ranks.
    ///
    /// Unwinds with [`Abandoned`] when a rank has [failed](Group::fail).
    pub fn meet<T: Send + 'static, R: Clone + Send + 'static>(
        &self,
        name: &str,
        (rank, ranks): (usize, usize),
        value: T,
        combine: impl FnOnce(Vec<T>) -> R,
    ) -> R {
        // Those of the meeting before, under the same name, may not all have left.
        let mut state = self.until(self.lock(), |state| !state.has_outcome(name));
        let meeting = state.meetings.entry(name.to_owned()).or_default();
        meeting.brought.insert(rank, Box::new(value));
        if meeting.brought.len() == ranks {
            let mut brought = std::mem::take(&mut meeting.brought);
            let mut of = |rank: usize| *downcast::<T>(brought.remove(&rank), name);
            meeting.outcome = Some(Box::new(combine((0..ranks).map(&mut of).collect())));
            self.changed.notify_all();
        }
        let mut state = self.until(state, |state| state.has_outcome(name));
        let meeting = state.meetings.get_mut(name).expect("it is here");
        meeting.taken += 1;
        let outcome = meeting.outcome.as_ref().and_then(|outcome| outcome.downcast_ref::<R>());
        let outcome = outcome.unwrap_or_else(|| wrong(name)).clone();
        if meeting.taken == ranks {
            state.meetings.remove(name);
            self.changed.notify_all();
        }
        outcome
    }

    /// Leaves `value` for the one rank that [takes](Group::take) it under the name `name`, and goes on.
    pub fn post<T: Send + 'static>(&self, name: String, value: T) {
        let before = self.lock().posted.insert(name, Box::new(value));
        assert!(before.is_none(), "something was left twice under one name");
        self.changed.notify_all();
    }

    /// Waits for what is left under the name `name`.
    ///
    /// Unwinds with [`Abandoned`] when a rank has [failed](Group::fail).
    pub fn take<T: Send + 'static>(&self, name: &str) -> T {
        let mut state = self.until(self.lock(), |state| state.posted.contains_key(name));
        *downcast::<T>(state.posted.remove(name), name)
    }

    /// Says that a rank has failed: whoever waits, or will, unwinds. Returns whether it is the first.
    pub fn fail(&self) -> bool {
        let first = !std::mem::replace(&mut self.lock().failed, true);
        self.changed.notify_all();
        first
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `holds`.
    fn until<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        holds: impl Fn(&State) -> bool,
    ) -> MutexGuard<'a, State> {
        loop {
            if state.failed {
                drop(state);
                panic::resume_unwind(Box::new(Abandoned));
            }
            if holds(&state) {
                return state;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl State {
    fn has_outcome(&self, name: &str) -> bool {
        self.meetings.get(name).is_some_and(|meeting| meeting.outcome.is_some())
    }
}

fn downcast<T: 'static>(value: Option<Box<dyn Any + Send>>, name: &str) -> Box<T> {
    value.and_then(|value| value.downcast().ok()).unwrap_or_else(|| wrong(name))
}

fn wrong(name: &str) -> ! {
    panic!("devices met as {name} for different things")
}

#[cfg(test)]
mod tests {
    use std::panic::AssertUnwindSafe;
    use std::thread;

    use super::*;

    fn in_threads<T: Send>(ranks: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
        thread::scope(|scope| {
            let work = &work;
            let threads: Vec<_> = (0..ranks).map(|rank| scope.spawn(move || work(rank))).collect();
            threads.into_iter().map(|thread| thread.join().expect("ends")).collect()
        })
    }

    #[test]
    fn all_get_the_values_in_the_order_of_the_ranks_however_often_they_meet() {
        let group = Group::default();
        let found = in_threads(4, |rank| {
            let meet = |turn: usize| {
                group.meet("value", (rank, 4), (rank, turn), |values: Vec<(usize, usize)>| values)
            };
            (0..200).map(meet).collect::<Vec<_>>()
        });
        let expected: Vec<Vec<(usize, usize)>> =
            (0..200).map(|turn| (0..4).map(|rank| (rank, turn)).collect()).collect();
        assert!(found.into_iter().all(|found| found == expected));
    }

    #[test]
    fn what_is_left_for_a_rank_waits_for_it_and_nobody_waits_who_leaves_it() {
        let group = Group::default();
        for turn in 0..3_usize {
            group.post(format!("to 1, {turn}"), turn);
        }
        let found = in_threads(2, |rank| match rank {
            0 => group.take::<usize>("to 0"),
            _ => {
                let sum = (0..3).map(|turn| group.take::<usize>(&format!("to 1, {turn}"))).sum();
                group.post("to 0".to_owned(), sum);
                sum
            }
        });
        assert_eq!(found, [3, 3]);
    }

    #[test]
    fn nobody_waits_for_a_rank_that_has_failed() {
        let group = Group::default();
        let found = in_threads(3, |rank| {
            if rank == 1 {
                group.fail();
                return None;
            }
            let met = panic::catch_unwind(AssertUnwindSafe(|| match rank {
                0 => group.meet("value", (rank, 3), rank, |values: Vec<usize>| values),
                _ => group.take("what nobody leaves"),
            }));
            Some(met.expect_err("unwinds").is::<Abandoned>())
        });
        assert_eq!(found, [Some(true), None, Some(true)]);
    }
}
