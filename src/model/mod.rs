//! Networks as chains of stages; one file each.

pub mod weights;

mod architecture;
mod config;
mod densenet;
mod freeze;
mod fused;
mod fuse;
mod heads;
mod labels;
pub mod layers;
mod network;
pub mod onnx;
mod resnet;
mod sequential;
mod table;

pub use architecture::DensenetArchitecture;
pub use config::*;
pub use freeze::{FreezeAtFirst, FreezeConfig, stages_called};
pub use heads::{HEADS, heads_stage};
pub use labels::MOST_LABELS;
pub use network::{Network, is_part_of};
pub use resnet::ResnetArchitecture;
pub use sequential::*;
pub use table::ModelTable;
