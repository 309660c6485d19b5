//! `trainer bench`.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;

use super::overrides::Overrides;
use super::{Failure, output};
use crate::build;

/// Measures whole training steps of a configuration's model on one batch that stays on the device
///
/// The data are not opened, unless --data asks for them. Prints one JSON object: the median over
/// the second half of the steps.
#[derive(Debug, Args)]
pub struct Bench {
    /// The configuration, a TOML file
    #[arg(value_name = "CONFIG")]
    config: PathBuf,
    #[command(flatten)]
    overrides: Overrides,
    /// Steps taken in all
    #[arg(long, default_value_t = 30)]
    steps: usize,
    /// Takes the steps that a run of the configuration begins with, on its own data
    #[arg(long)]
    data: bool,
    /// Ends when the process that started it ends, however that does
    #[arg(long)]
    with_parent: bool,
}

/// Takes the steps and prints what they took.
pub fn execute(bench: &Bench) -> Result<(), Failure> {
    let start = Instant::now();
    #[cfg(target_os = "linux")]
    if bench.with_parent {
        let kill = Some(rustix::process::Signal::KILL);
        rustix::process::set_parent_process_death_signal(kill).map_err(Failure::other)?;
    }
    let plan = super::planned(&bench.config, &bench.overrides.set)?;
    let mut steps = match bench.data {
        true => build::Bench::on_data(&plan)?,
        false => build::Bench::new(&plan)?,
    };
    let last = bench.steps.max(1) - 1;
    let mut measured = Vec::new();
    let (mut first, mut tail, mut losses) = (0.0, 0.0, Vec::new());
    for step in 0..=last {
        let before = Instant::now();
        let taken = steps.step()?;
        losses.push(taken.loss);
        let queued = before.elapsed().as_secs_f64();
        steps.wait();
        let seconds = before.elapsed().as_secs_f64();
        if step == last {
            tail = seconds - queued;
        }
        measured.push((seconds, taken.images as f64));
        if step == 0 {
            first = start.elapsed().as_secs_f64();
        }
    }
    let mut second = measured.split_off(measured.len() / 2);
    second.sort_by(|a, b| f64::total_cmp(&(a.0 / a.1), &(b.0 / b.1)));
    let (seconds, images) = second[second.len() / 2];
    let batch = plan.train.batch_size;
    let memory = steps.memory();
    let report = serde_json::json!({
        "case": format!(
            "{}-b{batch}-s{}-{}-train", plan.run.name, plan.data.image.size[0],
            serde_json::to_value(plan.memory.precision).unwrap_or_default().as_str().unwrap_or("")
        ),
        "device": steps.device(),
        "command": std::env::args().collect::<Vec<_>>().join(" "),
        "ours": {
            "ms": seconds * 1e3,
            "images_per_second": images / seconds,
            "live": memory.live,
            "peak": memory.peak,
            "peak_kind": memory.peak_kind,
            "reserved": memory.reserved,
            "smi": memory.smi,
        },
        "seconds_to_first_step": first,
        "ms_after_queued": tail * 1e3,
        "loss": losses.last(),
        "losses": losses,
    });
    output::print(&report.to_string())
}
