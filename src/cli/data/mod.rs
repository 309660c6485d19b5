//! `trainer data`: one file a subcommand.

mod bench;
mod cache;
mod inspect;
mod phantom;
mod preview;
mod random;

use clap::{Args, Subcommand};

use super::{Failure, output};
use crate::data::DataError;

/// Inspects, previews, caches and times a configuration's data, or makes data
#[derive(Debug, Args)]
#[command(arg_required_else_help = true, subcommand_required = true)]
pub struct Data {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Inspect(inspect::Inspect),
    Preview(preview::Preview),
    Cache(cache::Fill),
    Bench(bench::Bench),
    Phantom(phantom::Phantom),
    Random(random::Random),
}

/// Does what is asked for.
pub fn execute(data: &Data) -> Result<(), Failure> {
    match &data.command {
        Command::Inspect(inspect) => inspect::execute(inspect),
        Command::Preview(preview) => preview::execute(preview),
        Command::Cache(fill) => cache::execute(fill),
        Command::Bench(bench) => bench::execute(bench),
        Command::Phantom(phantom) => phantom::execute(phantom),
        Command::Random(random) => random::execute(random),
    }
}

/// What is wrong with the data, with what to do about it.
fn failure(error: DataError) -> Failure {
    let help = error.help();
    Failure::data(error).with_help(help)
}
