//! `trainer check`.

use std::path::PathBuf;

use clap::Args;

use super::overrides::Overrides;
use super::{Failure, output};

/// Checks a configuration and prints it with every default filled in
///
/// It opens neither the data nor a device. Its output is itself a configuration: a run of it is
/// the same experiment.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  trainer check configs/xray_densenet.toml
  trainer check configs/xray_densenet.toml --set train.batch_size=32 --set model.densenet.depth=169
  trainer check configs/xray_densenet.toml > resolved.toml

A wrong configuration ends with exit code 2 and a message that shows the line, what is wrong with it
and what to write instead.")]
pub struct Check {
    /// The configuration, a TOML file
    #[arg(value_name = "CONFIG")]
    config: PathBuf,
    #[command(flatten)]
    overrides: Overrides,
    /// Prints the same keys as JSON
    #[arg(long)]
    json: bool,
}

/// Prints the resolved configuration.
pub fn execute(check: &Check) -> Result<(), Failure> {
    let plan = super::planned(&check.config, &check.overrides.set)?;
    super::warn(&plan);
    let toml = plan.to_toml().map_err(Failure::configuration)?;
    if !check.json {
        return output::print(&toml);
    }
    let value: serde_json::Value = toml::from_str(&toml).map_err(Failure::other)?;
    output::print(&serde_json::to_string_pretty(&value).map_err(Failure::other)?)
}
