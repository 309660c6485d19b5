//! A trained model, opened from what its run has saved.

use std::path::Path;

use super::{BuildError, device};
use crate::memory::Chain;
use crate::plan::Plan;
use crate::run::restore_inference;
use crate::run::state::read_state;
use crate::train::Inference;

/// Opens the model of `plan`, the resolved configuration of a run, on the plan's device, with the
/// weights of the saved state in the folder `state` (such as `checkpoints/xray/best`): those that
/// validation has measured, so their average where there is one. Neither data nor optimizer are opened,
/// and the run may be under way.
///
/// # Errors
/// When the device cannot be opened, or the state is damaged or of another model.
pub fn open_inference(plan: &Plan, state: &Path) -> Result<Inference, BuildError> {
    let device = device(plan)?;
    let saved = read_state(state)?;
    let chain = Chain::init(&plan.stages(), &device, plan.run.seed);
    let mut inference = Inference::new(chain, &plan.heads, device, plan.memory.precision);
    restore_inference(&saved, &mut inference)
        .map_err(|source| BuildError::Restore { folder: saved.folder.clone(), source })?;
    Ok(inference)
}
