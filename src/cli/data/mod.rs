//! `trainer data`; one file a subcommand.

mod phantom;
mod preview;

use clap::{Args, Subcommand};

use super::{Failure, output};

/// Makes data and shows them
#[derive(Debug, Args)]
#[command(arg_required_else_help = true, subcommand_required = true)]
pub struct Data {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Phantom(phantom::Phantom),
    Preview(preview::Preview),
}

/// Does what is asked for.
pub fn execute(data: Data) -> Result<(), Failure> {
    match data.command {
        Command::Phantom(phantom) => phantom::execute(&phantom),
        Command::Preview(preview) => preview::execute(&preview),
    }
}
