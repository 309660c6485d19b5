//! `trainer data phantom`.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::Args;

use super::failure;
use crate::build::Drawing;
use crate::cli::{Failure, output};
use crate::data::{self, PhantomSettings, PhantomState};
use crate::screen::counted;

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
pub struct Phantom {
    /// The folder to make; one that is not empty is left as it is
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// How many patients, each with one to four images
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    patients: u32,
    /// Height and width of the images in pixels, 32 to 3000
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u16).range(SIZES))]
    size: u16,
    /// Another seed gives other patients
    #[arg(long, value_name = "K", default_value_t = 0)]
    seed: u64,
}

/// [`data::PHANTOM_SIZES`] as the parser takes them.
const SIZES: RangeInclusive<i64> =
    *data::PHANTOM_SIZES.start() as i64..=*data::PHANTOM_SIZES.end() as i64;

/// Draws the phantom, unless the folder holds it already.
pub fn execute(phantom: &Phantom) -> Result<(), Failure> {
    let Phantom { out, patients, size, seed } = phantom;
    let settings = PhantomSettings {
        root: out.clone(),
        patients: *patients as usize,
        size: usize::from(*size),
        seed: *seed,
    };
    let mut drawing = Drawing::default();
    let drawn = data::ensure_phantom(&settings, |done, all| drawing.tell(done, all));
    let (shown, patients) = (out.display(), counted(settings.patients, "patient", "patients"));
    output::print(&match drawn.map_err(failure)? {
        PhantomState::Written => format!("{patients} drawn in {shown}"),
        PhantomState::Found => {
            format!("{shown} holds this phantom already, of {patients}: nothing to do")
        }
    })
}
