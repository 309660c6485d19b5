//! What a plan names and this machine lacks, found before device and data are opened.

use super::find_devices;
use crate::memory::offload::{OffloadError, Store};
use crate::plan::{DevicePlan, Plan};

/// Something that a plan names is not there.
#[derive(Debug)]
pub struct NotHere {
    /// The key that names it.
    pub key: &'static str,
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub help: &'static str,
}

/// Looks whether the precision's kernels and the folder of an offload to disk are there.
///
/// # Errors
/// What is not.
pub fn check_here(plan: &Plan) -> Result<(), NotHere> {
    let chooses = plan.device() == DevicePlan::Auto;
    if plan.memory.precision.needs_gpu() && chooses && find_devices().cards.is_err() {
        let name = plan.memory.precision.name();
        return Err(NotHere {
            key: "memory.precision",
            message: format!("the precision \"{name}\" needs a GPU, and there is none here"),
            help: "write \"fp32\" (or \"bf16\")",
        });
    }
    Store::open(&plan.memory.offload()).map(drop).map_err(|error| NotHere {
        key: "memory.offload.disk.path",
        message: match error {
            OffloadError::Open { folder, source } => {
                format!("no file can be made in `{}`: {source}", folder.display())
            }
            other => other.to_string(),
        },
        help: "write an existing folder on a fast disk that this program may write into",
    })
}
