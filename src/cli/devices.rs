//! `trainer devices`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::ProgressBar;

use serde_json::{Value, json};

use super::overrides::Overrides;
use super::{Failure, output};
use crate::build::{self, Card, Found};
use crate::screen::bar_target;

/// Lists the devices that a run can compute on
///
/// The first column holds the names that `device.use` in a configuration and `--device` take. "auto"
/// is the first CUDA card, or the CPU where there is none.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  trainer devices
  trainer devices --json
  trainer devices --warm configs/xray_densenet.toml
  trainer run configs/quickstart.toml --device cuda:1

CUDA's driver, its compiler NVRTC and its headers are loaded when they are first used, so a program
built with CUDA also runs where they are missing. CUDA_PATH names the toolkit's folder,
LD_LIBRARY_PATH names the folders of its libraries, and CUDA_VISIBLE_DEVICES the cards to show.")]
pub struct Devices {
    /// Compiles all kernels that this configuration needs and keeps them for later runs
    #[arg(long, value_name = "CONFIG")]
    warm: Option<PathBuf>,
    #[command(flatten)]
    overrides: Overrides,
    /// Prints the list as JSON
    #[arg(long, conflicts_with = "warm")]
    json: bool,
}

/// Prints the devices, or compiles ahead.
pub fn execute(devices: &Devices) -> Result<(), Failure> {
    let Some(config) = &devices.warm else {
        let found = build::find_devices();
        return output::print(&match devices.json {
            true => serde_json::to_string_pretty(&json(&found)).map_err(Failure::other)?,
            false => found.to_string(),
        });
    };
    let (plan, source) = super::located_for(config, &devices.overrides.set, build::check_here)?;
    let start = Instant::now();
    let opened = build::Bench::new(&plan);
    let mut bench = opened.map_err(|error| super::unopened(error, &source))?;
    let bar = ProgressBar::new_spinner();
    bar.set_draw_target(bar_target());
    bar.set_message("one step and one evaluation on made-up images");
    bar.enable_steady_tick(Duration::from_millis(100));
    bench.step()?;
    bench.evaluate().map_err(Failure::other)?;
    bar.finish_and_clear();
    let seconds = start.elapsed().as_secs_f64();
    output::print(&format!("{} is warm after {seconds:.1} s", bench.device()))
}

/// The devices by the names that configurations take.
fn json(found: &Found) -> Value {
    let cpu = found.cpu_threads.map(|threads| json!({ "name": "cpu", "threads": threads }));
    let cards = found.cards.as_deref().unwrap_or_default().iter().map(card_json);
    let devices: Vec<Value> = cpu.into_iter().chain(cards).collect();
    json!({ "devices": devices, "no_gpu": found.cards.as_ref().err().map(ToString::to_string) })
}

fn card_json(card: &Card) -> Value {
    let name = format!("cuda:{}", card.index);
    match &card.details {
        Ok(details) => {
            let (major, minor) = details.compute_capability;
            json!({
                "name": name,
                "model": details.name,
                "memory": details.memory,
                "free": details.free,
                "compute_capability": format!("{major}.{minor}"),
                "problem": null,
            })
        }
        Err(reason) => json!({
            "name": name, "model": null, "memory": null, "free": null, "compute_capability": null,
            "problem": reason,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::CardDetails;

    #[test]
    fn devices_are_told_to_scripts_with_what_keeps_a_card_from_being_used() {
        let details = CardDetails {
            name: "NVIDIA H100 80GB HBM3".to_owned(),
            memory: 85_000_000_000,
            free: 84_400_000_000,
            compute_capability: (9, 0),
        };
        let cards = vec![
            Card { index: 0, details: Ok(details) },
            Card { index: 1, details: Err("in use".to_owned()) },
        ];
        let found = Found { cpu_threads: Some(4), cards: Ok(cards) };
        let card = json!({
            "name": "cuda:0", "model": "NVIDIA H100 80GB HBM3", "memory": 85_000_000_000_u64,
            "free": 84_400_000_000_u64, "compute_capability": "9.0", "problem": null,
        });
        let broken = json!({
            "name": "cuda:1", "model": null, "memory": null, "free": null,
            "compute_capability": null, "problem": "in use",
        });
        let cpu = json!({ "name": "cpu", "threads": 4 });
        assert_eq!(json(&found), json!({ "devices": [cpu, card, broken], "no_gpu": null }));
        let none = Found { cpu_threads: Some(4), cards: Err(build::NoCuda::NoDriver) };
        assert_eq!(json(&none), json!({ "devices": [cpu], "no_gpu": "no CUDA driver found" }));
    }
}
