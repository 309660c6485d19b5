//! `trainer data inspect`.

use std::path::PathBuf;

use clap::Args;
use indicatif::ProgressBar;
use serde_json::json;

use super::failure;
use crate::cli::overrides::Overrides;
use crate::cli::{Failure, output, planned};
use crate::data::{self, ImageCounts, Inspection, SplitCounts};
use crate::model::HeadConfig;
use crate::plan::Plan;

/// Counts what a configuration's data hold, and says what a run sees of them
///
/// It counts patients, the labels of each head in each split, and the sizes and depths of the images.
/// It lists images that cannot be read, and images that have the same pixels, also across splits.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  trainer data inspect configs/xray_densenet.toml
  trainer data inspect configs/xray_densenet.toml --tables-only
  trainer data inspect configs/xray_densenet.toml --json > data.json")]
pub struct Inspect {
    /// The configuration, a TOML file
    #[arg(value_name = "CONFIG")]
    config: PathBuf,
    /// Reads only the tables, no image
    #[arg(long)]
    tables_only: bool,
    /// Prints JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    overrides: Overrides,
}

/// Looks and prints.
pub fn execute(inspect: &Inspect) -> Result<(), Failure> {
    let plan = planned(&inspect.config, &inspect.overrides.set)?;
    let heads: Vec<HeadConfig> = plan.heads.iter().map(|head| head.to_config()).collect();
    let bar = ProgressBar::new(0);
    let found =
        data::inspect(&plan.data, &heads, plan.run.seed, !inspect.tables_only, |at, all| {
            bar.set_length(all as u64);
            bar.set_position(at as u64);
        });
    bar.finish_and_clear();
    let found = found.map_err(failure)?;
    let seen = seen(&plan, &found);
    if inspect.json {
        let mut value = serde_json::to_value(&found).map_err(Failure::other)?;
        value["run"] = seen;
        return output::print(&serde_json::to_string_pretty(&value).map_err(Failure::other)?);
    }
    let mut text = String::new();
    found.splits.iter().for_each(|split| text += &split_table(split, &heads));
    if let Some(images) = &found.images {
        text += &image_lines(images);
    }
    text += &format!(
        "\nA run sees {} training batches an epoch, each {} (the last may be smaller), and {} \
         validation images.\n",
        seen["batches_per_epoch"],
        seen["batch"],
        found.splits.get(1).map_or(0, |split| split.images),
    );
    output::print(&text)
}

/// What the run would see.
fn seen(plan: &Plan, found: &Inspection) -> serde_json::Value {
    let images = found.splits.first().map_or(0, |split| split.images);
    let size = plan.train.batch_size;
    let batches = if plan.data.drop_last { images / size } else { images.div_ceil(size) };
    let [height, width] = plan.data.image.size;
    json!({
        "batch": [size, plan.data.image.channels, height, width],
        "batches_per_epoch": batches,
    })
}

fn split_table(split: &SplitCounts, heads: &[HeadConfig]) -> String {
    let mut text =
        format!("{}: {} images of {} patients\n", split.split, split.images, split.patients);
    let widest =
        heads.iter().flat_map(|head| &head.labels).map(|label| label.chars().count()).max();
    let wide = widest.unwrap_or(0).max(20);
    for head in heads {
        text += &format!(
            "  {:<wide$} {:>9} {:>9} {:>9} {:>9} {:>11}\n",
            format!("[{}]", head.name),
            "positive",
            "negative",
            "uncertain",
            "missing",
            "positive*"
        );
        for label in &head.labels {
            let Some(counts) = split.heads.get(&head.name).and_then(|labels| labels.get(label))
            else {
                continue;
            };
            text += &format!(
                "  {label:<wide$} {:>9} {:>9} {:>9} {:>9} {:>11.1}\n",
                counts.positive,
                counts.negative,
                counts.uncertain,
                counts.missing,
                counts.used_positive
            );
        }
    }
    text + "  * as the loss counts them, uncertain labels by their policy\n\n"
}

fn image_lines(images: &ImageCounts) -> String {
    let mut text = String::from("sizes:");
    for size in images.sizes.iter().take(8) {
        text += &format!(" {}×{} ({})", size.width, size.height, size.images);
    }
    let more = images.sizes.len().saturating_sub(8);
    if more > 0 {
        text += &format!(" and {more} more");
    }
    text += "\ndepths:";
    for depth in &images.depths {
        text += &format!(" {} bits ({})", depth.bits, depth.images);
    }
    text += &format!("\nunreadable: {}\n", images.unreadable.len());
    for image in &images.unreadable {
        let data::Listed { split, path, table, line } = &image.listed;
        text += &format!(
            "  {} ({split}: {}, line {line}): {}\n",
            path.display(),
            table.display(),
            image.reason
        );
    }
    let across = images.duplicates.iter().filter(|group| group.across_splits).count();
    text += &format!(
        "same pixels more than once: {} ({across} across splits)\n",
        images.duplicates.len()
    );
    for group in &images.duplicates {
        let files: Vec<String> = group
            .images
            .iter()
            .map(|image| format!("{} ({}, line {})", image.path.display(), image.split, image.line))
            .collect();
        text += &format!("  {}\n", files.join(" = "));
    }
    text
}
