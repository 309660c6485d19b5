//! `trainer devices`.

use clap::Args;

use super::{Failure, output};
use crate::build;

/// Lists the devices that a run can compute on
///
/// The name in the first column is what `device.use` in a configuration and `--device` take.
/// "auto" is the first CUDA card, and the CPU where there is none.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  trainer devices
  trainer run configs/quickstart.toml --device cuda:1

CUDA's driver, its compiler NVRTC and its headers are loaded when they are first used: a program
built with CUDA also runs where they are missing. CUDA_PATH names the toolkit's folder,
LD_LIBRARY_PATH those of its libraries, CUDA_VISIBLE_DEVICES the cards to show.")]
pub struct Devices {}

/// Prints the devices.
pub fn execute(_: &Devices) -> Result<(), Failure> {
    output::print(&build::find_devices().to_string())
}
