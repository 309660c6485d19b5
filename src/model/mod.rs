//! Networks as chains of stages; one file each.

mod architecture;
mod config;

pub use architecture::{ArchitectureFault, DensenetArchitecture};
pub use config::*;
