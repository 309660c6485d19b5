//! `trainer data preview`.

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueEnum};

use super::super::overrides::Overrides;
use super::super::{planned, whole};
use super::{Failure, output};
use crate::build;
use crate::data::{self, Cache, CacheConfig, DataError, LoaderConfig, PreviewSettings, Sampler};
use crate::screen::counted;

/// Draws images with their labels into one PNG, as the model sees them
///
/// Every training image is drawn as it is and, beside that, as several epochs change it. These are
/// exactly the changes of [data.augment] that a run gets in those epochs. With mixup or cutmix the
/// images of the sheet are mixed with one another. The text below each image gives its file, the
/// range of the numbers that the model gets, and its labels. Soft labels have their value.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  trainer data preview configs/xray_densenet.toml --out preview.png
  trainer data preview configs/xray_densenet.toml --out grid.png --count 12 --epochs 6
  trainer data preview configs/xray_densenet.toml --out clahe.png \\
      --set 'data.augment.clahe={probability=1.0}'
  trainer data preview configs/xray_densenet.toml --out validation.png --split validation")]
pub struct Preview {
    /// The configuration, a TOML file
    #[arg(value_name = "CONFIG")]
    config: PathBuf,
    #[command(flatten)]
    overrides: Overrides,
    /// The PNG to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// How many images are drawn, 1 to 200; the run's seed chooses them
    #[arg(long, value_name = "N", default_value_t = 6,
          value_parser = clap::value_parser!(u16).range(1..=200))]
    count: u16,
    /// In how many epochs each training image is drawn, 1 to 20
    #[arg(long, value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u16).range(1..=20))]
    epochs: u16,
    /// Which images are drawn
    #[arg(long, value_enum, default_value_t = Split::Train)]
    split: Split,
}

/// A side of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Split {
    /// Training images, changed at random
    Train,
    /// Validation images, as they are
    Validation,
}

/// Draws the sheet.
pub fn execute(preview: &Preview) -> Result<(), Failure> {
    let out = &preview.out;
    let is_png = out.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("png"));
    if !is_png {
        let name = out.display();
        let help =
            format!("write a name that ends so: --out {}", out.with_extension("png").display());
        let message = format!("--out {name}: the preview is a PNG");
        return Err(Failure::configuration(message).with_help(Some(help)));
    }
    let plan = planned(&preview.config, &preview.overrides.set)?;
    let failed = |error: DataError| {
        let help = error.help();
        Failure::data(error).with_help(help)
    };
    let splits = build::open_data(&plan).map_err(failed)?;
    let (batch_size, seed) = (plan.train.batch_size, plan.run.seed);
    let (dataset, loader) = match preview.split {
        Split::Train => (
            splits.train,
            LoaderConfig::training(&plan.data, batch_size, seed, Sampler::Sequential),
        ),
        Split::Validation => {
            (splits.validation, LoaderConfig::evaluation(&plan.data, batch_size, seed))
        }
    };
    let (count, epochs) = (usize::from(preview.count), usize::from(preview.epochs));
    let settings = PreviewSettings { loader, count, epochs };
    let cache = match &plan.data.cache.0 {
        CacheConfig::Off(none) => CacheConfig::Memory(*none),
        kept => kept.clone(),
    };
    let cache = Arc::new(Cache::open(&cache, &plan.data.image).map_err(failed)?);
    let drawn = data::preview(Arc::new(dataset), &plan.heads, cache, &settings).map_err(failed)?;
    let written = |source| DataError::Io { action: "write", path: out.clone(), source };
    whole::write(out, &drawn.png).map_err(written).map_err(Failure::other)?;
    let images = counted(drawn.images, "image", "images");
    let size = format!("{}×{} pixels", drawn.width, drawn.height);
    let mut told = format!("{images} in {}, {size}", out.display());
    for skipped in drawn.skipped {
        told += &format!("\nleft out: {skipped}");
    }
    output::print(&told)
}
