//! `trainer export`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::overrides::Overrides;
use super::{Failure, output, trained, whole};
use crate::build::{self, ExportError};
use crate::data::DataError;
use crate::model::onnx::OPSET;
use crate::screen::Bytes;

/// Writes a trained model as a file for other programs: SafeTensors, torchvision, ONNX
///
/// The weights are those that were validated: their moving average if the run keeps one. The metadata of
/// the file hold the heads, labels and preprocessing as JSON, and calibration and thresholds if they were
/// fitted.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  trainer export checkpoints/xray --format onnx
  trainer export checkpoints/xray --format onnx --normalize-inside --out xray.onnx
  trainer export checkpoints/xray/last --format torchvision --out xray.safetensors

docs/weights.md says what each format holds and how PyTorch and onnxruntime read it.")]
pub struct Export {
    /// The folder of a run, whose best state is exported, or of one of its states
    #[arg(value_name = "RUN")]
    run: PathBuf,
    #[command(flatten)]
    overrides: Overrides,
    /// The format of the file
    #[arg(long, value_enum)]
    format: Format,
    /// The file to write; the default is a file in the current folder with the name of the run
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Puts the normalisation of images into the graph (ONNX)
    ///
    /// The inputs are then grey levels, 0 (black) to 1 (white). It needs a normalisation that is the
    /// same for all images, so not `per_image` or `percentile`.
    #[arg(long)]
    normalize_inside: bool,
}

/// What other programs read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// SafeTensors with the names that `model.init` reads
    Safetensors,
    /// SafeTensors with the names of torchvision's DenseNet or ResNet
    Torchvision,
    /// A graph of operations with the weights, for onnxruntime and others
    Onnx,
}

impl Format {
    fn ending(self) -> &'static str {
        match self {
            Self::Safetensors | Self::Torchvision => "safetensors",
            Self::Onnx => "onnx",
        }
    }
}

/// Writes the file and says what it is.
pub fn execute(export: &Export) -> Result<(), Failure> {
    let Export { format, normalize_inside, .. } = *export;
    if normalize_inside && format != Format::Onnx {
        let message =
            "--normalize-inside: only a graph can normalise, and SafeTensors holds weights";
        return Err(Failure::configuration(message)
            .with_help(Some("write --format onnx, or leave --normalize-inside out".to_owned())));
    }
    check_ending(export.out.as_deref(), format.ending())?;
    let (trained, plan, _) = trained::open(&export.run, &export.overrides.set)?;
    let fitted = trained.fitted().map_err(Failure::state)?;
    let (inference, fitted) = (&trained.inference, fitted.as_ref());
    let model = build::Export { plan: &plan, inference, fitted };
    let bytes = match format {
        Format::Safetensors => model.safetensors(),
        Format::Torchvision => model.torchvision(),
        Format::Onnx => model.onnx(normalize_inside),
    };
    let bytes = bytes.map_err(failure)?;
    let named = || PathBuf::from(format!("{}.{}", plan.run.name, format.ending()));
    let out = export.out.clone().unwrap_or_else(named);
    write(&out, &bytes)?;
    let (state, size) = (trained.state.folder.display(), Bytes(bytes.len() as u64));
    let mut told = format!("{} ({size}) from {state}", out.display());
    if format == Format::Onnx {
        let input = if normalize_inside { "levels from 0 to 1" } else { "normalised levels" };
        let names: Vec<&str> = plan.heads.iter().map(|head| head.name.as_str()).collect();
        told += &format!("\nopset {OPSET}; input: {input}; outputs: {}", names.join(", "));
    }
    output::print(&told)
}

/// Refuses a name that says another kind of file.
pub(super) fn check_ending(out: Option<&Path>, ending: &str) -> Result<(), Failure> {
    match out {
        Some(out)
            if out.extension().is_none_or(|extension| !extension.eq_ignore_ascii_case(ending)) =>
        {
            let help = format!(
                "write a name that ends so: --out {}",
                out.with_extension(ending).display()
            );
            let message = format!("--out {}: what is written is a .{ending} file", out.display());
            Err(Failure::configuration(message).with_help(Some(help)))
        }
        _ => Ok(()),
    }
}

/// Writes a file whole or not at all.
pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    whole::write(path, bytes).map_err(|source| {
        Failure::other(DataError::Io { action: "write", path: path.to_owned(), source })
    })
}

fn failure(error: ExportError) -> Failure {
    match &error {
        ExportError::Torchvision(_) | ExportError::ScaleOfImage(_) => Failure::configuration(error),
        _ => Failure::other(error),
    }
}
