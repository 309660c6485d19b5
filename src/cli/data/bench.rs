//! `trainer data bench`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;

use super::failure;
use crate::build;
use crate::cli::overrides::Overrides;
use crate::cli::{Failure, output, planned};
use crate::data::{self, Cache, CacheConfig, LoaderConfig, Rates};
use crate::screen::counted;

/// Times how fast a configuration's training images are loaded
///
/// It times each stage on one core, then the whole loader with all its threads: with every image
/// decoded (cold), and with every image in the cache (cached). After the first epoch the system has the
/// files in its memory.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  trainer data bench configs/quickstart.toml
  trainer data bench configs/xray_densenet.toml --set data.workers=4 --seconds 10 --json")]
pub struct Bench {
    /// The configuration, a TOML file
    #[arg(value_name = "CONFIG")]
    config: PathBuf,
    /// How many seconds each figure is measured for
    #[arg(long, value_name = "N", default_value_t = 3.0)]
    seconds: f64,
    /// Prints JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    overrides: Overrides,
}

/// Measures and prints.
pub fn execute(bench: &Bench) -> Result<(), Failure> {
    let plan = planned(&bench.config, &bench.overrides.set)?;
    let splits = build::open_data(&plan).map_err(failure)?;
    let train = Arc::new(splits.train);
    let sampler = plan.data.sampler.0.init(&train, &plan.heads);
    let (seed, batch) = (plan.run.seed, plan.train.batch_size);
    let config = LoaderConfig::training(&plan.data, batch, seed, sampler);
    let kept = match &plan.data.cache.0 {
        CacheConfig::Off(none) => CacheConfig::Memory(*none),
        other => other.clone(),
    };
    let cache = Cache::open(&kept, &plan.data.image).map_err(failure)?;
    let each = Duration::from_secs_f64(bench.seconds.clamp(0.01, 600.0));
    let rates = data::bench(&train, &config, cache, each).map_err(failure)?;
    if bench.json {
        return output::print(&serde_json::to_string_pretty(&rates).map_err(Failure::other)?);
    }
    output::print(&table(&rates, &kept))
}

fn table(rates: &Rates, kept: &CacheConfig) -> String {
    let cache = if matches!(kept, CacheConfig::Memory(_)) { "memory" } else { "disk" };
    let threads = counted(rates.workers, "thread", "threads");
    let rows = [
        ("read, one core".to_owned(), rates.read),
        ("decode, one core".to_owned(), rates.decode),
        ("resize, one core".to_owned(), rates.resize),
        ("change and scale, one core".to_owned(), rates.prepare),
        (format!("loader, {threads}, cold"), rates.cold),
        (format!("loader, {threads}, cached ({cache})"), rates.cached),
    ];
    let lines = rows.iter().map(|(name, rate)| format!("{name:<40} {rate:>10.0} images/s\n"));
    lines.collect()
}
