//! What processes that train one model must see or decide alike.

use super::snapshot::chain_tensors;
use super::{Run, RunError, Signal, Stop};
use crate::data::SharedBatch;
use crate::memory::Chain;
use crate::parallel::processes::{Elsewhere, Processes};
use crate::train::TrainError;

impl Run {
    /// The signal that asks this process, or one that trains with it, to stop before it takes `batch`.
    ///
    /// # Errors
    /// When processes have not read the same images, or one has failed.
    pub(super) fn asked_to_stop(&self, batch: &SharedBatch) -> Result<Option<Signal>, RunError> {
        match (&self.trainer.processes, batch) {
            (None, _) => Ok(self.stop.requested()),
            // All hear of it when this one ends.
            (Some(_), Err(_)) => Ok(None),
            (Some(processes), Ok(batch)) => Ok(stop_of_all(processes, &self.stop, &batch.indices)?),
        }
    }

    /// Sees that all processes have the same weights at the end of an epoch, and have decided the same.
    ///
    /// # Errors
    /// When one has not, or has failed.
    pub(super) fn agree_after_epoch(&self) -> Result<(), RunError> {
        let Some(processes) = &self.trainer.processes else { return Ok(()) };
        let state = &self.state;
        let decided = (&state.best, &state.stopping, &state.schedule, &state.ended);
        let mut seen = weights(&self.trainer.first().replica.inference.chain)
            .map_err(|error| self.step_error(error))?;
        seen.extend(serde_json::to_vec(&decided).unwrap_or_default());
        let what = format!(
            "weights or metrics after epoch {}\nProcessors of different kinds round otherwise: train on \
             machines of one kind.",
            state.epoch
        );
        Ok(processes.agree(&what, &seen)?)
    }
}

/// The first signal that any process was sent.
fn stop_of_all(
    processes: &Processes,
    stop: &Stop,
    images: &[usize],
) -> Result<Option<Signal>, Elsewhere> {
    let noted = |signal: Signal| Signal::ALL.iter().position(|other| *other == signal);
    let number = stop.requested().and_then(noted).map_or(0, |place| place + 1);
    let mut own = vec![number as u8];
    let mut hasher = blake3::Hasher::new();
    for image in images {
        hasher.update(&(*image as u64).to_le_bytes());
    }
    own.extend(hasher.finalize().as_bytes());
    let all = processes.gather("batch", &own)?;
    if let Some(rank) = all.iter().position(|other| other.get(1..) != all[0].get(1..)) {
        let [first, other] = [&processes.roster()[0], &processes.roster()[rank]];
        let message = format!(
            "rank 0 ({first}) and rank {rank} ({other}) have read different images: one of them cannot read \
             all that the other can\nLet all machines see the same files."
        );
        return Err(Elsewhere { rank, message, code: 3, lost: true });
    }
    let asked = |other: &Vec<u8>| {
        let place = usize::from(*other.first()?).checked_sub(1)?;
        Signal::ALL.get(place).copied()
    };
    Ok(all.iter().find_map(asked))
}

/// What tells the weights of two models apart.
///
/// # Errors
/// When the device fails.
pub fn weights(chain: &Chain) -> Result<Vec<u8>, TrainError> {
    let mut hasher = blake3::Hasher::new();
    for tensor in chain_tensors(chain)? {
        let bytes: Vec<u8> = tensor.data.iter().flat_map(|value| value.to_le_bytes()).collect();
        hasher.update(tensor.name.as_bytes()).update(&bytes);
    }
    Ok(hasher.finalize().as_bytes().to_vec())
}
