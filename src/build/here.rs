//! What a plan names and this machine lacks, found before device and data are opened.

use super::find_devices;
use crate::fault::{Fault, fault};
use crate::memory::offload::{OffloadError, Store};
use crate::plan::{DevicePlan, Plan};

/// Looks whether the precision's kernels and the folder of an offload to disk are there.
///
/// # Errors
/// What is not.
pub fn check_here(plan: &Plan) -> Result<(), Fault> {
    let chooses = plan.device() == DevicePlan::Auto;
    plan.memory.precision.check_device(|| chooses && find_devices().cards.is_err())?;
    Store::open(&plan.memory.offload()).map(drop).map_err(|error| {
        let message = match error {
            OffloadError::Open { folder, source } => {
                format!("no file can be made in `{}`: {source}", folder.display())
            }
            other => other.to_string(),
        };
        let help = "write an existing folder on a fast disk that this program may write into";
        fault("memory.offload.disk.path", message, help)
    })
}
