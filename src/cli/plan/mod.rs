//! `trainer plan`.

mod text;

use std::path::PathBuf;

use clap::Args;

use super::overrides::Overrides;
use super::{Failure, output};
use crate::build;
use crate::memory::Budget;
use crate::plan::{DevicePlan, Machine, Outlook, Plan};
use crate::screen::{Frame, stdout_columns};

/// Says what memory a configuration takes, and what each strategy would change
///
/// Neither the data nor a device is opened. Bytes of weights, gradients and optimizer state, of each
/// stage's activations, and a table of strategies: policy, precision, micro-batch, offload; with the
/// predicted peak, the operations done twice, the time, and whether it fits.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  trainer plan configs/xray_densenet.toml
  trainer plan configs/xray_densenet.toml --memory 24GiB
  trainer plan configs/experiments/01_large_xrays.toml --set 'memory.budget=\"11GiB\"' --all
  trainer plan configs/xray_densenet.toml --json

Times are those of an H100 (or of four CPU cores) and good for comparing strategies with each other.")]
pub struct Command {
    /// The configuration, a TOML file
    #[arg(value_name = "CONFIG")]
    config: PathBuf,
    #[command(flatten)]
    overrides: Overrides,
    /// The device's memory, such as 24GiB; that of the device here when absent, else 80GiB
    #[arg(long, value_name = "SIZE", value_parser = size)]
    memory: Option<u64>,
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
        _ => Err("write such as 24GiB or 800MiB".to_owned()),
    }
}

/// Prints what the plan comes to.
pub fn execute(command: &Command) -> Result<(), Failure> {
    let plan = super::planned(&command.config, &command.overrides.set)?;
    let (machine, known) = machine(&plan, command.memory);
    let outlook = Outlook::new(&plan, &machine).expect("the policy has been checked");
    if command.json {
        return output::print(&serde_json::to_string(&outlook).map_err(Failure::other)?);
    }
    let page = text::Page { frame: Frame::of_stdout(), columns: stdout_columns() };
    output::print(&text::text(&outlook, &known, command.all, page))
}

/// What is predicted for, and how that is known.
fn machine(plan: &Plan, memory: Option<u64>) -> (Machine, String) {
    let cuda = plan.device != DevicePlan::Cpu;
    let here = build::machine_here(plan.device);
    match (memory, here) {
        (Some(memory), _) => (Machine { cuda, memory }, "as --memory says".to_owned()),
        (None, Some((machine, name))) => (machine, name),
        (None, None) if cuda => {
            let known = "assumed, as no card is here; --memory says another size".to_owned();
            (Machine::ASSUMED, known)
        }
        (None, None) => {
            let machine = Machine { cuda, ..Machine::ASSUMED };
            (machine, "assumed; --memory says another size".to_owned())
        }
    }
}
