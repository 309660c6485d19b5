//! A device that runs out of memory at a chosen operation, and a layer that gives no numbers, for tests.
//!
//! The executor asks [`check`] before every operation of a schedule, and before every stage of an
//! evaluation. Nothing happens unless a test
//! has [armed](strike_after) this thread.

use std::cell::Cell;

use super::OutOfMemory;

thread_local! {
    /// What waits on this thread. Each has its own, so that one replica of several can be made to fail.
    static WAITING: Cell<Waiting> =
        const { Cell::new(Waiting { left: None, asked: 0, spoiled: None }) };
    /// Which of several devices is to fail, where their threads are started by this one.
    static RANK: Cell<usize> = const { Cell::new(0) };
}

/// What waits on a thread, on its way to that of a device, and back.
#[derive(Debug, Clone, Copy, Default)]
pub struct Waiting {
    /// How many operations may still succeed, and how many were asked about, while armed.
    left: Option<usize>,
    asked: usize,
    /// The layer that gives no numbers.
    spoiled: Option<&'static str>,
}

/// Whether what `layer` gives is to be replaced by NaN.
pub fn spoils(layer: &str) -> bool {
    WAITING.get().spoiled == Some(layer)
}

/// Lets `layer` give NaN on this thread, and on that of device `rank` of several, which this thread starts; with
/// none, all layers give what they compute again.
pub fn spoil(rank: usize, layer: Option<&'static str>) {
    RANK.set(rank);
    WAITING.set(Waiting { spoiled: layer, ..WAITING.get() });
}

/// Fails, when its turn has come, as an allocation of this operation would: by unwinding with
/// [`OutOfMemory`] to [`catch_out_of_memory`](super::catch_out_of_memory).
pub fn check() {
    let Waiting { left, asked, spoiled } = WAITING.get();
    let still = left.and_then(|left| left.checked_sub(1));
    WAITING.set(Waiting { left: still, asked: asked + 1, spoiled });
    if left == Some(0) {
        OutOfMemory { wanted: None }.throw()
    }
}

/// A failure that waits for its turn; dropped, it will not come.
#[derive(Debug)]
pub struct Armed(());

/// Lets `operations` more operations of this thread succeed and the next fail; those after it succeed
/// again.
pub fn strike_after(operations: usize) -> Armed {
    WAITING.set(Waiting { left: Some(operations), asked: 0, ..WAITING.get() });
    Armed(())
}

/// [`strike_after`] on the thread that device `rank` of several will have, which this thread starts.
pub fn strike_rank_after(rank: usize, operations: usize) -> Armed {
    RANK.set(rank);
    strike_after(operations)
}

/// What waits on this thread, and for which device.
pub fn hand_over() -> (usize, Waiting) {
    (RANK.get(), WAITING.take())
}

/// Lets what waited on another thread wait on this one.
pub fn take_over(handed: Waiting) {
    WAITING.set(handed);
}

impl Armed {
    /// Whether the failure has come.
    pub fn has_struck(&self) -> bool {
        WAITING.get().left.is_none()
    }

    /// Operations asked about since, the failed one included: armed with `usize::MAX`, how many there
    /// are to fail at.
    pub fn asked(&self) -> usize {
        WAITING.get().asked
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        WAITING.set(Waiting { left: None, ..WAITING.get() });
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
