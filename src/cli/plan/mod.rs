//! `trainer plan`.

mod text;

use std::path::PathBuf;

use clap::Args;

use super::overrides::Overrides;
use super::{Failure, output};
use crate::build;
use crate::config::{Config, DeviceUse};
use crate::memory::Budget;
use crate::plan::{DevicePlan, Machine, Plan, PlanSummary};
use crate::screen::{Frame, stdout_columns};

/// Estimates the memory that a configuration takes, and what each strategy would change
///
/// It opens neither the data nor a device. It prints the bytes of weights, gradients, optimizer state
/// and each stage's activations, and a table of strategies: policy, precision, micro-batch and
/// offload. Each row says the estimated peak, the share of operations done twice, the time, and
/// whether the strategy fits.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  trainer plan configs/xray_densenet.toml
  trainer plan configs/xray_densenet.toml --memory 24GiB
  trainer plan configs/xray_densenet.toml --memory 24GiB --devices 4
  trainer plan configs/experiments/01_large_xrays.toml --set 'memory.budget=\"11GiB\"' --all
  trainer plan configs/xray_densenet.toml --json

Times are those of an H100 (or of four CPU cores) and good for comparing strategies with each other.")]
pub struct Command {
    /// The configuration, a TOML file
    #[arg(value_name = "CONFIG")]
    config: PathBuf,
    #[command(flatten)]
    overrides: Overrides,
    /// The device's memory, such as 24GiB: plans for a GPU of that size
    ///
    /// Where the configuration says `device.use = "cpu"`, it is the memory of the CPU. Without this option
    /// the plan is for the device that a run here would use, or for a GPU of 80GiB where the
    /// configuration asks for a GPU and there is none.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    memory: Option<u64>,
    /// Plans for so many devices that share each batch, or the stages of a pipeline, whatever `device.use` says
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    devices: Option<u16>,
    /// Shows every strategy, not only those that are best at something
    #[arg(long)]
    all: bool,
    /// Prints everything as JSON
    #[arg(long)]
    json: bool,
}

fn size(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(Budget::Bytes(bytes)) => Ok(bytes),
        _ => Err("write a size, such as 24GiB or 800MiB".to_owned()),
    }
}

/// Names `count` devices of the kind of the first, of which a pipeline has its stages.
fn spread(devices: &mut DeviceUse, count: u16) {
    // What cannot be read is refused later.
    let Ok(named) = DevicePlan::parse(devices) else { return };
    let kind = if matches!(named[0], DevicePlan::Cpu(_)) { "cpu" } else { "cuda" };
    *devices = DeviceUse::Several((0..count).map(|number| format!("{kind}:{number}")).collect());
}

/// Prints what the plan comes to.
pub fn execute(command: &Command) -> Result<(), Failure> {
    let spread = |config: &mut Config| {
        if let (Some(count @ 2..), Some(_)) = (command.devices, &config.parallel.pipeline) {
            spread(&mut config.device.device, count);
        }
    };
    let (mut plan, source) =
        super::located_as(&command.config, &command.overrides.set, spread, |_| Ok(()))?;
    if let Some(count) = command.devices {
        plan = plan.on_devices(count.into()).map_err(|fault| source.error(fault))?;
    }
    super::warn(&plan);
    let PlannedFor { machine, known, assumed } = planned_for(&plan, command.memory);
    let summary = PlanSummary::new(&plan, &machine).expect("the policy has been checked");
    if command.json {
        return output::print(&serde_json::to_string(&summary).map_err(Failure::other)?);
    }
    let others = (!assumed).then(|| build::in_the_way(&plan.devices)).flatten();
    let known = match others {
        Some(others) => format!("{known}; {others}"),
        None => known,
    };
    let page = text::Page { frame: Frame::of_stdout(), columns: stdout_columns() };
    output::print(&text::text(&summary, &known, assumed, command.all, page))
}

/// The device that a plan is for.
struct PlannedFor {
    machine: Machine,
    /// How its memory is known.
    known: String,
    /// Whether it is not the device that a run on this machine would use.
    assumed: bool,
}

/// The device that a run here would use. Where `--memory` gives a size, or the configuration asks for
/// a GPU that is not here, it is a device of that size or of a common one.
fn planned_for(plan: &Plan, memory: Option<u64>) -> PlannedFor {
    let cpu = build::cpu();
    if let Some(memory) = memory {
        let cuda = !matches!(plan.device(), DevicePlan::Cpu(_));
        let known = "as --memory says".to_owned();
        let machine = Machine { cuda, hopper: cuda, memory, cpu, ..Machine::ASSUMED };
        return PlannedFor { machine, known, assumed: true };
    }
    if let Some((machine, known)) = build::machine_here(&plan.devices) {
        return PlannedFor { machine, known, assumed: false };
    }
    // As a run does, `auto` takes the CPU, unless the precision needs a GPU.
    let takes_cpu = plan.device() == DevicePlan::Auto && !plan.memory.precision.needs_gpu();
    if takes_cpu && let Some((machine, _)) = build::machine_here(&[DevicePlan::Cpu(None)]) {
        let known = "this machine, which has no GPU; --set device.use=cuda plans for one";
        return PlannedFor { machine, known: known.to_owned(), assumed: false };
    }
    let cuda = !takes_cpu && !matches!(plan.device(), DevicePlan::Cpu(_));
    let known = match cuda {
        true => "assumed, as there is no such GPU here; --memory sets another size",
        false => "assumed; --memory sets another size",
    };
    let machine = Machine { cuda, cpu, ..Machine::ASSUMED };
    PlannedFor { machine, known: known.to_owned(), assumed: true }
}
