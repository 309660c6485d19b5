//! `trainer data phantom`.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::Args;

use super::failure;
use crate::build::while_drawing;
use crate::cli::{Failure, output};
use crate::data::{self, PhantomSettings, PhantomState};
use crate::screen::counted;

/// Draws synthetic chest-like radiographs in CheXpert's layout
///
/// Every patient has one to four images, frontal (PA or AP) and lateral, as 16-bit PNGs. The table
/// `train.csv` is like CheXpert's, with age, sex and 14 findings. Six of the findings are drawn: an
/// enlarged heart, effusion, a nodule, consolidation, pneumothorax and a device. They must be seen:
/// the mean brightness does not give them away. Some labels are blank or uncertain (-1). The same
/// settings give the same files, byte for byte, on every machine.
///
/// A configuration with [data.phantom] draws its images by itself on first use.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  trainer data phantom --out datasets/phantom --patients 500 --size 128 --seed 7
  trainer data phantom --out datasets/large --patients 50 --size 2000 --seed 7")]
pub struct Phantom {
    /// The folder to make; a folder that holds something else is left as it is
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// How many patients are drawn, each with one to four images
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    patients: u32,
    /// The height and width of the images in pixels, 32 to 3000
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u16).range(SIZES))]
    size: u16,
    /// The least and the largest diameter of nodules in pixels, such as 8,24, and a column with them
    #[arg(long, value_name = "MIN,MAX", value_parser = diameters)]
    nodules: Option<[usize; 2]>,
    /// The seed: another number draws other patients
    #[arg(long, value_name = "K", default_value_t = 0)]
    seed: u64,
}

fn diameters(text: &str) -> Result<[usize; 2], String> {
    let both = text
        .split_once(',')
        .and_then(|(least, most)| Some([least.trim().parse().ok()?, most.trim().parse().ok()?]));
    both.ok_or_else(|| "write the least and the largest in pixels, such as 8,24".to_owned())
}

/// [`data::PHANTOM_SIZES`] as the parser takes them.
const SIZES: RangeInclusive<i64> =
    *data::PHANTOM_SIZES.start() as i64..=*data::PHANTOM_SIZES.end() as i64;

/// Draws the phantom, unless the folder holds it already.
pub fn execute(phantom: &Phantom) -> Result<(), Failure> {
    let Phantom { out, patients, size, nodules, seed } = phantom;
    let settings = PhantomSettings {
        root: out.clone(),
        patients: *patients as usize,
        size: usize::from(*size),
        seed: *seed,
        nodules: *nodules,
    };
    let drawn = while_drawing(|tell| data::ensure_phantom(&settings, tell));
    let (shown, patients) = (out.display(), counted(settings.patients, "patient", "patients"));
    output::print(&match drawn.map_err(failure)? {
        PhantomState::Written => format!("{patients} drawn in {shown}"),
        PhantomState::Found => {
            format!("{shown} holds this phantom already, of {patients}: nothing to do")
        }
    })
}
