//! What goes wrong when states are saved and loaded.

use burn::tensor::{DType, ExecutionError};

use crate::memory::offload::OffloadError;

/// A state that could not be read from the device, or that does not belong to this run.
#[derive(Debug, thiserror::Error)]
pub enum OptimError {
    /// The state could not be moved to the host's memory or back.
    #[error(transparent)]
    Offload(#[from] OffloadError),
    /// Names that the model and the configuration call for are not in the saved state.
    #[error(
        "the saved {what} lacks {}; it was saved under another model or other settings, or is \
         incomplete",
        listed(names)
    )]
    Missing {
        /// Whose state.
        what: &'static str,
        /// The names lacking.
        names: Vec<String>,
    },
    /// Names in the saved state that neither the model nor the configuration knows.
    #[error(
        "the saved {what} holds {}, which this model and configuration do not have; it was saved \
         under another model or other settings",
        listed(names)
    )]
    Foreign {
        /// Whose state.
        what: &'static str,
        /// The names too many.
        names: Vec<String>,
    },
    /// A tensor of another length than its parameter.
    #[error(
        "`{name}` of the saved {what} holds {found} numbers where the model's parameter has \
         {expected}; it was saved under another model"
    )]
    Length {
        /// Whose state.
        what: &'static str,
        /// The tensor.
        name: String,
        /// Its length in the saved state.
        found: usize,
        /// The parameter's length.
        expected: usize,
    },
    /// A tensor that does not hold floating-point numbers.
    #[error("`{name}` of the saved {what} holds {found:?} instead of floating-point numbers")]
    Type {
        /// Whose state.
        what: &'static str,
        /// The tensor.
        name: String,
        /// What it holds.
        found: DType,
    },
    /// The device failed to give back numbers.
    #[error("could not read from the device: {0}")]
    Read(#[from] ExecutionError),
}

/// The first few of `names`, and how many there are besides.
fn listed(names: &[String]) -> String {
    const SHOWN: usize = 3;
    let shown: Vec<String> = names.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
    match names.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
