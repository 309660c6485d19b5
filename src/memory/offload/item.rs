//! One tensor off the device.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use burn::tensor::{Bytes, TensorData};

use super::OffloadError;
use super::disk::Slot;
use super::tensor::{Form, Values};

/// A tensor off the device, of one stage or of several that keep the same.
#[derive(Debug)]
pub(super) struct Item {
    form: Form,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    away: Away,
    back: Option<Values>,
    /// Whether it has been asked for.
    wanted: bool,
    /// Parcels that it is in and that have not landed.
    tickets: usize,
}

/// Where it is.
#[derive(Debug)]
pub(super) enum Away {
    /// On its way.
    Leaving,
    /// In host memory.
    Host(Bytes),
    /// In the file.
    Disk(Slot),
    /// On its way back, or there.
    Back,
    /// It could not be moved.
    Failed(OffloadError),
}

impl Item {
    /// On its way off the device.
    pub fn leaving(form: Form) -> Self {
        let state = State { away: Away::Leaving, back: None, wanted: false, tickets: 1 };
        Self { form, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// It is where it waits, or could not be moved there.
    pub fn has_left(&self, outcome: Result<Away, OffloadError>) {
        self.state().away = outcome.unwrap_or_else(Away::Failed);
        self.changed.notify_all();
    }

    /// Waits until it has left the device.
    pub fn wait_until_left(&self) -> Result<(), OffloadError> {
        match &self.wait(|state| !matches!(state.away, Away::Leaving)).away {
            Away::Failed(error) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Notes that it is in one more ticket.
    #[cfg(feature = "cuda")]
    pub fn is_shared(&self) {
        self.state().tickets += 1;
    }

    /// Notes that it is wanted; whether nobody has before, so that it has to be brought.
    pub fn is_first_wanted(&self) -> bool {
        !std::mem::replace(&mut self.state().wanted, true)
    }

    /// Brings the bytes to the host, behind the job that moves them away, and gives them to `make`.
    pub fn arrives(&self, make: impl FnOnce(Bytes, &Form) -> Result<Values, OffloadError>) {
        let away = std::mem::replace(&mut self.state().away, Away::Back);
        let bytes = match away {
            Away::Host(bytes) => Ok(bytes),
            away => self.bytes(&away, "it was asked for before it was moved"),
        };
        let outcome = bytes.and_then(|bytes| make(bytes, &self.form));
        let mut state = self.state();
        match outcome {
            Ok(values) => state.back = Some(values),
            Err(error) => state.away = Away::Failed(error),
        }
        drop(state);
        self.changed.notify_all();
    }

    /// What it holds, flat; before anyone has asked for it to come back.
    pub fn read(&self) -> Result<TensorData, OffloadError> {
        let state = self.wait(|state| !matches!(state.away, Away::Leaving));
        Ok(self.form.data(self.bytes(&state.away, "what is on its way back was read")?))
    }

    /// A copy of its bytes, which are `away`; `otherwise` says what is wrong where they are not.
    fn bytes(&self, away: &Away, otherwise: &str) -> Result<Bytes, OffloadError> {
        match away {
            Away::Host(bytes) => Ok(bytes.clone()),
            Away::Disk(slot) => {
                let mut bytes = self.form.room();
                slot.read(&mut bytes).map(|()| bytes)
            }
            Away::Failed(error) => Err(error.clone()),
            Away::Leaving | Away::Back => Err(OffloadError::Thread(otherwise.to_owned())),
        }
    }

    /// What its bytes mean.
    #[cfg(feature = "cuda")]
    pub fn form(&self) -> &Form {
        &self.form
    }

    /// Waits until it is back and gives it to one of the tickets that it is in.
    pub fn take(&self) -> Result<Values, OffloadError> {
        let mut state =
            self.wait(|state| state.back.is_some() || matches!(state.away, Away::Failed(_)));
        state.tickets -= 1;
        let values = match state.tickets {
            0 => state.back.take(),
            _ => state.back.clone(),
        };
        match (values, &state.away) {
            (Some(values), _) => Ok(values),
            (None, Away::Failed(error)) => Err(error.clone()),
            (None, _) => unreachable!("was waited for"),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, until: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let waited = self.changed.wait_while(self.state(), |state| !until(state));
        waited.unwrap_or_else(PoisonError::into_inner)
    }
}
