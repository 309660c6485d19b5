//! Networks as chains of stages; one file each.

pub mod weights;

mod architecture;
mod config;
mod densenet;
#[cfg(feature = "cuda")]
mod fused;
mod heads;
mod layer;

pub use architecture::{ArchitectureFault, DensenetArchitecture};
pub use config::*;
pub use heads::HeadsSpec;
