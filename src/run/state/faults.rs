//! A disk that stops working at a chosen operation.

use std::cell::Cell;
use std::io;

/// What happens at the chosen operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The process is gone: neither that operation nor any later one happens.
    Killed,
    /// The disk is full for that one operation.
    Full,
}

/// Counts operations and fails the chosen one.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    done: Cell<usize>,
    plan: Cell<Option<(usize, Fault)>>,
    struck: Cell<bool>,
}

impl Faults {
    /// Lets `operations` more operations succeed, then strikes.
    pub fn strike_after(&self, operations: usize, fault: Fault) {
        self.plan.set(Some((self.done.get() + operations, fault)));
        self.struck.set(false);
    }

    /// Lets everything succeed again.
    pub fn clear(&self) {
        self.plan.set(None);
    }

    /// Whether the fault has struck.
    pub fn struck(&self) -> bool {
        self.struck.get()
    }

    pub fn before_operation(&self) -> io::Result<()> {
        let number = self.done.replace(self.done.get() + 1);
        match self.plan.get() {
            Some((at, Fault::Killed)) if number >= at => {
                self.struck.set(true);
                Err(io::Error::other("killed by the test"))
            }
            Some((at, Fault::Full)) if number == at => {
                self.struck.set(true);
                Err(io::ErrorKind::StorageFull.into())
            }
            _ => Ok(()),
        }
    }
}
