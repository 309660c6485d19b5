//! `trainer run`.

use std::path::PathBuf;

use clap::Args;

use super::overrides::Overrides;
use super::parent::Parent;
use super::{Failure, Kind};
use crate::build::{self, Options};
use crate::run::{FolderMode, Outcome};

/// Trains what a configuration describes
///
/// The run folder, <run.output>/<run.name>/, gets the resolved configuration, the metrics of every
/// epoch (metrics.jsonl, TensorBoard events) and saved states: `best`, `last` and a few before.
/// Ctrl-C saves and ends; --resume goes on, and the result is the same as without the pause.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  trainer run configs/quickstart.toml
  trainer run configs/xray_densenet.toml --set train.batch_size=32 --set train.epochs=5
  trainer run configs/xray_densenet.toml --set 'run.name=\"sgd\"' \\
      --set 'train.optimizer={sgd={lr=0.1,momentum=0.9}}'
  trainer run configs/xray_densenet.toml --resume
  trainer run configs/xray_densenet.toml --init densenet121.pth --device cuda:1")]
pub struct Run {
    /// The configuration, a TOML file
    #[arg(value_name = "CONFIG")]
    config: PathBuf,
    #[command(flatten)]
    overrides: Overrides,
    /// The device, instead of the configuration's `device.use`: auto, cpu, cuda or cuda:N
    ///
    /// `trainer devices` lists what there is.
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Goes on from what the run folder holds
    ///
    /// The newest state that is whole is used. The configuration must be the one the run was
    /// started with, but for what does not change results, such as `train.epochs`, `run.save`, and
    /// `checkpointing`, `offload`, `offload_optimizer` and `budget` under [memory].
    #[arg(long)]
    resume: bool,
    /// Removes what the run folder holds and starts anew
    #[arg(long, conflicts_with = "resume")]
    overwrite: bool,
    /// Starts from the weights in this file: SafeTensors, or a PyTorch state dict
    ///
    /// Names are those of torchvision. Heads that the file does not have, or has with another
    /// number of outputs, keep their random weights, and the program says so.
    #[arg(long, value_name = "WEIGHTS", conflicts_with = "resume")]
    init: Option<PathBuf>,
    #[command(flatten)]
    parent: Parent,
}

/// Trains.
pub fn execute(run: Run) -> Result<(), Failure> {
    run.parent.watch()?;
    // `--device` is the same as `--set device.use=…`, so that the resolved configuration has it.
    let mut set = run.overrides.set;
    set.extend(run.device.map(|device| format!("device.use={}", toml::Value::String(device))));
    let (plan, source) = super::located_for(&run.config, &set, super::is_here)?;
    let mode = match (run.resume, run.overwrite) {
        (true, _) => FolderMode::Resume,
        (_, true) => FolderMode::Overwrite,
        _ => FolderMode::New,
    };
    let training = build::build(plan, &Options { mode, init: run.init });
    let mut training = training.map_err(|error| super::unopened(error, &source))?;
    match training.execute()? {
        Outcome::Ended(_) => Ok(()),
        Outcome::Stopped(signal) => {
            let (name, folder) = (signal.name(), training.folder.path().display());
            let told =
                format!("stopped by {name}; the state is saved in {folder}, go on with --resume");
            Err(Failure::new(Kind::Stopped(signal), told))
        }
    }
}
