//! `trainer data`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Failure;

/// Makes data
#[derive(Debug, Args)]
#[command(arg_required_else_help = true, subcommand_required = true)]
pub struct Data {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Phantom(Phantom),
}

/// Draws synthetic chest-like radiographs in CheXpert's layout
///
/// 16-bit PNGs, one to four a patient, frontal (PA or AP) and lateral, with a `train.csv` as
/// CheXpert's: age, sex and 14 findings, of which six are drawn (enlarged heart, effusion, nodule,
/// consolidation, pneumothorax, device) so that they must be seen and cannot be read off the mean
/// brightness. Some labels are blank or uncertain (-1). The same numbers give the same files, byte
/// for byte, on every machine.
///
/// A configuration with [data.phantom] does this by itself on first use.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  trainer data phantom --out datasets/phantom --patients 500 --size 128 --seed 7
  trainer data phantom --out datasets/large --patients 50 --size 2000 --seed 7")]
struct Phantom {
    /// The folder to make; it must not exist or be empty
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// How many patients, each with one to four images
    #[arg(long, value_name = "N")]
    patients: usize,
    /// Height and width of the images in pixels, 32 to 3000
    #[arg(long, value_name = "S")]
    size: usize,
    /// Another seed gives other patients
    #[arg(long, value_name = "K", default_value_t = 0)]
    seed: u64,
}

/// Makes what is asked for.
pub fn execute(data: &Data) -> Result<(), Failure> {
    match &data.command {
        Command::Phantom(phantom) => draw_phantom(phantom),
    }
}

fn draw_phantom(phantom: &Phantom) -> Result<(), Failure> {
    // MERGE: data::write_phantom(&settings, progress).map_err(Failure::data)
    let _ = (&phantom.out, phantom.patients, phantom.size, phantom.seed);
    Err(Failure::other("this build cannot draw phantoms yet"))
}
