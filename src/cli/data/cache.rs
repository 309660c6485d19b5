//! `trainer data cache`.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::failure;
use crate::build;
use crate::cli::overrides::Overrides;
use crate::cli::{Failure, output, planned};
use crate::data::{
    BadImage, Cache, CacheConfig, DiskCacheConfig, Loader, LoaderConfig, OnBadImage,
};
use crate::run::{SignalGuard, Stop, end};
use crate::screen::{Bytes, bar_target};

/// Decodes and resizes a configuration's images into its disk cache, ahead of a run
///
/// Images that the cache holds already are not decoded again, so that a command that was stopped goes
/// on where it ended. A configuration without `data.cache` fills the cache that `cache = "disk"` would use.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  trainer data cache configs/xray_densenet.toml
  trainer data cache configs/xray_densenet.toml --set data.image.size=[1024,1024]")]
pub struct Fill {
    /// The configuration, a TOML file
    #[arg(value_name = "CONFIG")]
    config: PathBuf,
    #[command(flatten)]
    overrides: Overrides,
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

/// What becomes of the work when a signal cuts it off.
const KEPT: &str = "images in the cache stay there, the same command goes on";

/// Fills the cache.
pub fn execute(fill: &Fill) -> Result<(), Failure> {
    let plan = planned(&fill.config, &fill.overrides.set)?;
    let splits = build::open_data(&plan).map_err(failure)?;
    let stop = Stop::install().map_err(Failure::other)?;
    let _watch = SignalGuard::over(&stop, KEPT);
    let disk = match &plan.data.cache.0 {
        CacheConfig::Disk(disk) => disk.clone(),
        CacheConfig::Off(_) | CacheConfig::Memory(_) => DiskCacheConfig::default(),
    };
    let folder = disk.folder.clone();
    let cache = Cache::open(&CacheConfig::Disk(disk), &plan.data.image).map_err(failure)?;
    let cache = Arc::new(cache);
    let sides = [splits.train, splits.validation].map(Arc::new);
    let samples = || sides.iter().flat_map(|side| side.samples().iter().cloned());
    let all: Vec<_> = samples().collect();
    let before = cache.filling(&all);
    cache.check_room(before.missing).map_err(failure)?;
    let bar = ProgressBar::with_draw_target(Some(all.len() as u64), bar_target());
    bar.set_style(
        ProgressStyle::with_template("{bar:40} {pos}/{len} images, {per_sec}, {eta} left")
            .unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    let mut bad: Vec<BadImage> = Vec::new();
    for side in &sides {
        let config = LoaderConfig {
            on_bad_image: OnBadImage::Skip,
            ..LoaderConfig::evaluation(&plan.data, 16, plan.run.seed)
        };
        for batch in Loader::new(side.clone(), config, cache.clone()).epoch(0, 0) {
            let batch = batch.map_err(failure)?;
            bar.inc((batch.indices.len() + batch.skipped.len()) as u64);
            bad.extend(batch.skipped);
            if let Some(warning) = cache.take_warning() {
                bar.finish_and_clear();
                return Err(Failure::data(warning));
            }
            if let Some(signal) = stop.requested() {
                bar.finish_and_clear();
                end(signal, KEPT);
            }
        }
    }
    bar.finish_and_clear();
    let after = cache.filling(&all);
    if fill.json {
        let bad = bad.iter().map(|image| {
            let (path, table) = (image.path.display(), image.table.display());
            json!({
                "path": path.to_string(), "table": table.to_string(), "line": image.line,
                "reason": image.reason,
            })
        });
        let filled = json!({
            "folder": folder.display().to_string(),
            "images": all.len(),
            "kept": after.kept,
            "added": after.kept - before.kept,
            "bytes": after.bytes,
            "not_cached": bad.collect::<Vec<_>>(),
        });
        return output::print(&serde_json::to_string_pretty(&filled).map_err(Failure::other)?);
    }
    let mut text = format!(
        "{} of {} images in the cache at {}: {} were there, {} added, {:.1} MiB in all\n",
        after.kept,
        all.len(),
        folder.display(),
        before.kept,
        after.kept - before.kept,
        Bytes(after.bytes).mebibytes()
    );
    bad.iter().for_each(|image| text += &format!("not cached: {image}\n"));
    output::print(&text)
}
