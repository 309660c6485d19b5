//! `trainer devices`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::ProgressBar;

use super::overrides::Overrides;
use super::{Failure, output};
use crate::build;

/// Lists the devices that a run can compute on
///
/// The first column holds the names that `device.use` in a configuration and `--device` take. "auto"
/// is the first CUDA card, or the CPU where there is none.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  trainer devices
  trainer devices --warm configs/xray_densenet.toml
  trainer run configs/quickstart.toml --device cuda:1

CUDA's driver, its compiler NVRTC and its headers are loaded when they are first used, so a program
built with CUDA also runs where they are missing. CUDA_PATH names the toolkit's folder,
LD_LIBRARY_PATH names the folders of its libraries, and CUDA_VISIBLE_DEVICES the cards to show.")]
pub struct Devices {
    /// Compiles all kernels that this configuration needs and keeps them for later runs
    #[arg(long, value_name = "CONFIG")]
    warm: Option<PathBuf>,
    #[command(flatten)]
    overrides: Overrides,
}

/// Prints the devices, or compiles ahead.
pub fn execute(devices: &Devices) -> Result<(), Failure> {
    let Some(config) = &devices.warm else {
        return output::print(&build::find_devices().to_string());
    };
    let (plan, source) = super::located_for(config, &devices.overrides.set, build::check_here)?;
    let start = Instant::now();
    let opened = build::Bench::new(&plan);
    let mut bench = opened.map_err(|error| super::unopened(error, &source))?;
    let bar = ProgressBar::new_spinner();
    bar.set_message("one step and one evaluation on made-up images");
    bar.enable_steady_tick(Duration::from_millis(100));
    bench.step()?;
    bench.evaluate().map_err(Failure::other)?;
    bar.finish_and_clear();
    let seconds = start.elapsed().as_secs_f64();
    output::print(&format!("{} is warm after {seconds:.1} s", bench.device()))
}
