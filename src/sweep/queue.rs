//! A queue: every device takes the next task as soon as it is free.
//!
//! ```text
//! a thread a device:    take the next task, do it, send what became of it; until none is left
//! the calling thread:   is told all of it, and alone saves and prints
//! ```

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use crate::plan::DevicePlan;
use crate::run::{Signal, Stop};

/// What works at once: `devices`, or one process where its configuration says.
pub(super) fn lanes(devices: &[DevicePlan]) -> Vec<Option<DevicePlan>> {
    match devices.is_empty() {
        true => vec![None],
        false => devices.iter().copied().map(Some).collect(),
    }
}

/// What is told of a task.
pub(super) enum Event<R> {
    /// A device has taken it.
    Begins,
    /// It is done, with this result.
    Ended(R),
}

/// Does `tasks`, one a device at a time, in their order. Where `work` breaks, no further task is begun; those
/// that others have begun go on to their end.
///
/// # Errors
/// That of `tell`, which runs on the calling thread. Tasks that run then are asked to stop, and waited for.
pub(super) fn each<T: Sync, D: Copy + Send, R: Send, E>(
    tasks: &[T],
    devices: &[D],
    stop: &Stop,
    work: impl Fn(&T, D) -> ControlFlow<R, R> + Sync,
    mut tell: impl FnMut(&T, D, Event<R>) -> Result<(), E>,
) -> Result<(), E> {
    let next = AtomicUsize::new(0);
    let (sender, events) = mpsc::channel();
    thread::scope(|scope| {
        for device in devices.iter().copied().take(tasks.len()) {
            let (sender, next, work) = (sender.clone(), &next, &work);
            scope.spawn(move || {
                while let Some(task) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if sender.send((task, device, Event::Begins)).is_err() {
                        return;
                    }
                    let (ControlFlow::Continue(result) | ControlFlow::Break(result)) =
                        match work(task, device) {
                            ControlFlow::Break(result) => {
                                next.store(tasks.len(), Ordering::Relaxed);
                                ControlFlow::Break(result)
                            }
                            more @ ControlFlow::Continue(_) => more,
                        };
                    if sender.send((task, device, Event::Ended(result))).is_err() {
                        return;
                    }
                }
            });
        }
        // It ends when the last thread does.
        drop(sender);
        let told = events.iter().try_for_each(|(task, device, event)| tell(task, device, event));
        if told.is_err() {
            next.store(tasks.len(), Ordering::Relaxed);
            stop.request(Signal::Terminate);
        }
        told
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Barrier;

    use super::*;

    fn all(devices: &[usize], breaks_at: usize) -> Vec<usize> {
        let tasks: Vec<usize> = (0..20).collect();
        let mut ended = Vec::new();
        let work = |task: &usize, _| match *task == breaks_at {
            true => ControlFlow::Break(*task),
            false => ControlFlow::Continue(*task),
        };
        let tell = |task: &usize, _, event| {
            if let Event::Ended(result) = event {
                assert_eq!(*task, result);
                ended.push(result);
            }
            Ok::<(), ()>(())
        };
        assert_eq!(each(&tasks, devices, &Stop::default(), work, tell), Ok(()));
        ended
    }

    #[test]
    fn every_task_is_done_once_however_many_devices_there_are() {
        let order: Vec<usize> = (0..20).collect();
        assert_eq!(all(&[0], 99), order);
        for devices in [&[0, 1][..], &[0, 1, 2], &[0; 40]] {
            let ended = all(devices, 99);
            assert_eq!(ended.len(), 20);
            assert_eq!(ended.into_iter().collect::<BTreeSet<_>>(), order.iter().copied().collect());
        }
    }

    #[test]
    fn nothing_is_begun_after_a_break() {
        assert_eq!(all(&[0], 3), [0, 1, 2, 3]);
        assert!(all(&[0, 1], 0).contains(&0));
    }

    #[test]
    fn devices_work_at_once() {
        // Neither passes the barrier alone.
        let (barrier, mut devices) = (Barrier::new(2), BTreeSet::new());
        let work = |_: &usize, device: usize| {
            barrier.wait();
            ControlFlow::Continue(device)
        };
        let tell = |_: &usize, device, event| {
            if let Event::Ended(result) = event {
                assert_eq!(device, result);
                devices.insert(result);
            }
            Ok::<(), ()>(())
        };
        assert_eq!(each(&[0, 1], &[5, 6], &Stop::default(), work, tell), Ok(()));
        assert_eq!(devices, BTreeSet::from([5, 6]));
    }

    #[test]
    fn an_error_of_the_calling_thread_asks_the_others_to_stop() {
        let stop = Stop::default();
        let work = |task: &usize, _: usize| {
            while *task == 1 && stop.requested().is_none() {
                thread::yield_now();
            }
            ControlFlow::Continue(())
        };
        let tell = |task: &usize, _, event| match event {
            Event::Ended(()) if *task == 0 => Err("the disk is full"),
            _ => Ok(()),
        };
        assert_eq!(each(&[0, 1, 2, 3], &[0, 1], &stop, work, tell), Err("the disk is full"));
        assert_eq!(stop.requested(), Some(Signal::Terminate));
    }
}
