//! A device that runs out of memory at a chosen operation, and a layer that gives no numbers, for tests.
//!
//! The executor asks [`check`] before every operation of a schedule, and before every stage of an
//! evaluation. Nothing happens unless a test
//! has [armed](strike_after) this thread.

use std::cell::Cell;

use super::OutOfMemory;

thread_local! {
    /// How many operations may still succeed, and how many were asked about, while armed. Each thread
    /// has its own, so that one replica of several can be made to fail.
    static LEFT: Cell<Option<usize>> = const { Cell::new(None) };
    static ASKED: Cell<usize> = const { Cell::new(0) };
    /// Which of several devices is to fail, where their threads are started by this one.
    static RANK: Cell<usize> = const { Cell::new(0) };
    /// The layer that gives no numbers.
    static SPOILED: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Whether what `layer` gives is to be replaced by NaN.
pub fn spoils(layer: &str) -> bool {
    SPOILED.get() == Some(layer)
}

/// Lets `layer` give NaN on this thread, and on that of device `rank` of several, which this thread starts; with
/// none, all layers give what they compute again.
pub fn spoil(rank: usize, layer: Option<&'static str>) {
    RANK.set(rank);
    SPOILED.set(layer);
}

/// Fails, when its turn has come, as an allocation of this operation would: by unwinding with
/// [`OutOfMemory`] to [`catch_out_of_memory`](super::catch_out_of_memory).
pub fn check() {
    ASKED.set(ASKED.get() + 1);
    match LEFT.get() {
        None => {}
        Some(0) => {
            LEFT.set(None);
            OutOfMemory { wanted: None }.throw()
        }
        Some(left) => LEFT.set(Some(left - 1)),
    }
}

/// A failure that waits for its turn; dropped, it will not come.
#[derive(Debug)]
pub struct Armed(());

/// Lets `operations` more operations of this thread succeed and the next fail; those after it succeed
/// again.
pub fn strike_after(operations: usize) -> Armed {
    LEFT.set(Some(operations));
    ASKED.set(0);
    Armed(())
}

/// [`strike_after`] on the thread that device `rank` of several will have, which this thread starts.
pub fn strike_rank_after(rank: usize, operations: usize) -> Armed {
    RANK.set(rank);
    strike_after(operations)
}

/// What waits on a thread, on its way to that of a device, and back.
#[derive(Debug, Clone, Copy)]
pub struct Handed {
    left: Option<usize>,
    asked: usize,
    spoiled: Option<&'static str>,
}

/// What waits on this thread, and for which device.
pub fn hand_over() -> (usize, Handed) {
    (RANK.get(), Handed { left: LEFT.take(), asked: ASKED.take(), spoiled: SPOILED.take() })
}

/// Lets what waited on another thread wait on this one.
pub fn take_over(handed: Handed) {
    LEFT.set(handed.left);
    ASKED.set(handed.asked);
    SPOILED.set(handed.spoiled);
}

impl Armed {
    /// Whether the failure has come.
    pub fn has_struck(&self) -> bool {
        LEFT.get().is_none()
    }

    /// Operations asked about since, the failed one included: armed with `usize::MAX`, how many there
    /// are to fail at.
    pub fn asked(&self) -> usize {
        ASKED.get()
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        LEFT.set(None);
        RANK.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::catch_out_of_memory;

    fn operations(count: usize) -> Result<usize, OutOfMemory> {
        let mut done = 0;
        let work = || {
            for _ in 0..count {
                check();
                done += 1;
            }
            Ok::<_, std::fmt::Error>(())
        };
        catch_out_of_memory(work).map(drop)?;
        Ok(done)
    }

    #[test]
    fn the_chosen_operation_fails_once() {
        let counted = strike_after(usize::MAX);
        assert_eq!((operations(5), counted.asked(), counted.has_struck()), (Ok(5), 5, false));
        drop(counted);
        for at in 0..5 {
            let armed = strike_after(at);
            assert_eq!(operations(5), Err(OutOfMemory { wanted: None }));
            assert_eq!((armed.asked(), armed.has_struck()), (at + 1, true));
            assert_eq!(operations(5), Ok(5));
        }
        drop(strike_after(2));
        assert_eq!(operations(5), Ok(5));
    }
}
