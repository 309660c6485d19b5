//! `trainer data random`.

use std::num::NonZero;
use std::path::PathBuf;

use clap::Args;

use super::failure;
use crate::cli::overrides::Overrides;
use crate::cli::{Failure, output, planned_for};
use crate::data::{self, RandomSettings};

/// Writes random images and targets into the arrays that a configuration names
///
/// They serve to measure what does not depend on the data: memory and speed. Images and numbers are
/// uniform from 0 to 1; findings and classes are equally likely. Sizes, channels, heads and file names
/// come from the configuration, which must have [data.arrays]. The same seed gives the same files.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  trainer data random configs/experiments/11_cnn_regression.toml --samples 8766")]
pub struct Random {
    /// The configuration, a TOML file
    #[arg(value_name = "CONFIG")]
    config: PathBuf,
    #[command(flatten)]
    overrides: Overrides,
    /// How many images are written
    #[arg(long, value_name = "N")]
    samples: NonZero<usize>,
    /// The seed of the random numbers
    #[arg(long, value_name = "K", default_value_t = 0)]
    seed: u64,
}

/// Writes the arrays.
pub fn execute(random: &Random) -> Result<(), Failure> {
    let Random { config, overrides, samples, seed } = random;
    let plan =
        planned_for(config, &overrides.set, |plan| data::check_random(&plan.data).map(drop))?;
    let settings = RandomSettings { samples: samples.get(), seed: *seed };
    let written = data::write_random(&plan.data, &plan.heads, settings).map_err(failure)?;
    let name = |file: &PathBuf| file.display().to_string();
    let files: Vec<String> = written.iter().map(name).collect();
    output::print(&format!("{samples} random samples in {}", files.join(", ")))
}
