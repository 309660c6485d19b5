//! `trainer import`.

use std::path::PathBuf;

use burn::tensor::DType;
use clap::Args;

use super::overrides::Overrides;
use super::{Failure, export, output};
use crate::build::BuildError;
use crate::model::weights::{self, Adapted, Initial, Mismatch, NamedTensor, initial};

/// Reads weights of torchvision, timm or torchxrayvision for a configuration's model
///
/// It lists what the model takes, what it adapts, and what stays random. With --out it writes a
/// SafeTensors file for `model.init`. Nothing in the file is executed. `trainer run --init FILE` reads
/// the same files in the same way, without an import before it.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  trainer import densenet121.pth --config configs/xray_densenet.toml
  trainer import resnet50.safetensors --config my.toml --out start.safetensors
  trainer import nih-densenet121.pt --config my.toml --json")]
pub struct Import {
    /// The weights: SafeTensors, or what PyTorch saved (.pth, .pt, .ckpt, .bin)
    #[arg(value_name = "WEIGHTS")]
    weights: PathBuf,
    /// The configuration of the model, a TOML file
    #[arg(long, value_name = "CONFIG")]
    config: PathBuf,
    #[command(flatten)]
    overrides: Overrides,
    /// The SafeTensors file to write
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Prints what was taken as JSON
    #[arg(long)]
    json: bool,
}

/// Reads the weights, says what became of them, and writes them.
pub fn execute(import: &Import) -> Result<(), Failure> {
    export::check_ending(import.out.as_deref(), "safetensors")?;
    let mut set = import.overrides.set.clone();
    // As training from the file would have it, its scale of images included.
    set.push(super::overrides::init(&import.weights));
    let plan = super::planned(&import.config, &set)?;
    let parameters = plan.model.parameters(&plan.heads).into_iter();
    let wanted: Vec<(String, Vec<usize>)> = parameters.map(|p| (p.name, p.shape)).collect();
    let image = &plan.data.image;
    let taken = initial(&import.weights, &wanted, &plan.heads).and_then(|(initial, values)| {
        initial.check_scale(&image.normalize, image.channels)?;
        Ok((initial, values))
    });
    let (initial, mut values) = taken.map_err(BuildError::Initial)?;
    if let Some(out) = &import.out {
        let tensors = wanted.iter().filter_map(|(name, shape)| {
            let (name, shape, data) = (name.clone(), shape.clone(), values.remove(name)?);
            Some(NamedTensor { name, shape, data })
        });
        let tensors: Vec<NamedTensor> = tensors.collect();
        let levels = initial.torchxrayvision.then_some(weights::XRV_LEVELS);
        let metadata = levels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
        let bytes = weights::write_with(DType::F32, &tensors, &metadata.collect());
        let bytes = bytes.map_err(Failure::other)?;
        export::write(out, &bytes)?;
    }
    if import.json {
        return output::print(&serde_json::json!(initial).to_string());
    }
    output::print(&list(&initial, wanted.len()))
}

/// What became of every tensor that was not simply taken.
fn list(initial: &Initial, wanted: usize) -> String {
    let Initial { file, tensors, adapted, by_label, unknown_labels, .. } = initial;
    let mut lines = vec![format!("{}: {tensors} of the model's {wanted} tensors", file.display())];
    if initial.torchxrayvision {
        let told =
            "a model of torchxrayvision's, for levels from −1024 to 1024: normalize = \"xrv\"";
        lines.push(told.to_owned());
    }
    lines.extend(adapted.iter().map(|Adapted { name, from, to }| {
        format!("adapted   {name}: from {from} to {to} channels")
    }));
    lines.extend(by_label.iter().map(|head| format!("by label  {head}")));
    lines.extend(unknown_labels.iter().map(|label| format!("no output for the label {label}")));
    lines.extend(initial.unused.iter().map(|name| format!("not used  {name}")));
    lines.extend(initial.missing.iter().map(|name| format!("random    {name}: not in the file")));
    lines.extend(initial.mismatched.iter().map(|Mismatch { name, found, wanted, .. }| {
        format!("random    {name}: {found:?} in the file, {wanted:?} in the model")
    }));
    lines.join("\n")
}
