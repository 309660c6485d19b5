//! `trainer schema`.

use clap::Args;

use super::{Failure, output};

/// Prints the JSON Schema of configurations, for editors and scripts
///
/// With it an editor completes keys, shows what they mean and marks wrong ones: write the schema
/// to a file and name that file in the first line of a configuration.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  trainer schema > trainer.schema.json
  and as the first line of a configuration:  #:schema trainer.schema.json")]
pub struct Schema {}

/// Prints the schema.
pub fn execute(_: &Schema) -> Result<(), Failure> {
    let schema = schemars::schema_for!(crate::config::Config);
    output::print(&serde_json::to_string_pretty(&schema).map_err(Failure::other)?)
}
