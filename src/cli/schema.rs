//! `trainer schema`.

use clap::Args;

use super::{Failure, output};

/// Prints all keys of a configuration, as a JSON Schema for editors or as a page to read
///
/// An editor that knows the schema completes keys, shows what they mean and marks wrong ones. Write
/// the schema to a file and name that file in the first line of a configuration.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  trainer schema > trainer.schema.json
  and as the first line of a configuration:  #:schema trainer.schema.json
  trainer schema --markdown | less")]
pub struct Schema {
    /// Prints the page, docs/configuration.md: the type, default, meaning and an example of every key
    #[arg(long)]
    markdown: bool,
}

/// Prints the schema or the reference.
pub fn execute(command: &Schema) -> Result<(), Failure> {
    if command.markdown {
        return output::print(&crate::config::reference());
    }
    let schema = crate::config::schema();
    output::print(&serde_json::to_string_pretty(&schema).map_err(Failure::other)?)
}
