//! `trainer run`.

mod folds;
mod processes;

use std::path::PathBuf;

use clap::Args;

use self::folds::Fold;
use super::named_devices::Queue;
use super::overrides::{self, Overrides};
use super::parent::Parent;
use super::{Failure, Kind, located_for, unopened};
use crate::build::{self, Among, Options};
use crate::parallel::processes::{Launch, Processes};
use crate::plan::Plan;
use crate::run::{FolderMode, Outcome, SignalGuard};

/// Trains what a configuration describes
///
/// The run folder, <run.output>/<run.name>/, receives the resolved configuration, the metrics of
/// every epoch (metrics.jsonl and TensorBoard events) and saved states: `best`, `last` and a few older
/// ones. Ctrl-C saves the state and ends the run. --resume goes on from there; the result is the same
/// as without the pause. --fold chooses which folds of `data.validation.folds` are trained. Processes
/// that torchrun, srun or mpirun starts share each batch.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  trainer run configs/quickstart.toml
  trainer run configs/xray_densenet.toml --set train.batch_size=32 --set train.epochs=5
  trainer run configs/xray_densenet.toml --set 'run.name=\"sgd\"' \\
      --set 'train.optimizer={sgd={lr=0.1,momentum=0.9}}'
  trainer run configs/xray_densenet.toml --resume
  trainer run configs/xray_densenet.toml --init densenet121.pth --device cuda:1
  trainer run configs/xray_densenet.toml --set data.validation.folds=5 --fold all
  trainer run configs/folds.toml --fold all --devices cuda:0,cuda:1")]
pub struct Run {
    /// The configuration, a TOML file
    #[arg(value_name = "CONFIG")]
    config: PathBuf,
    #[command(flatten)]
    overrides: Overrides,
    /// Runs on this device instead of the configuration's `device.use`: auto, cpu, cuda, cuda:N or all
    ///
    /// Write several devices that share each batch with commas: `--device cuda:0,cuda:1`.
    /// `trainer devices` lists the devices of this machine.
    #[arg(long, value_name = "DEVICE", value_delimiter = ',')]
    device: Vec<String>,
    /// Goes on with the run in the run folder
    ///
    /// It goes on from the newest intact state. The configuration must be the one that the run was
    /// started with. A few keys may differ, such as `train.epochs`, `run.save`, and `checkpointing`, `offload`,
    /// `offload_optimizer` and `budget` under [memory]; README.md lists them all.
    #[arg(long)]
    resume: bool,
    /// Trains one fold of `data.validation.folds`, counted from 1, or `all`, one after another
    ///
    /// Each fold has a run folder of its own in <run.output>/<run.name>/: fold-1, fold-2 and so on. With
    /// `all`, folds.json and a table at the end give the metrics of each fold, their mean and standard
    /// deviation; --resume goes on in the fold that was stopped and skips those that have ended. With
    /// --devices each device trains one fold at a time.
    #[arg(long, value_name = "N|all", value_parser = folds::which)]
    fold: Option<Fold>,
    #[command(flatten)]
    queue: Queue,
    /// Deletes what the run folder holds and starts anew
    #[arg(long, conflicts_with = "resume")]
    overwrite: bool,
    /// Starts from the weights in this file: SafeTensors, or a PyTorch state dict
    ///
    /// The same as `--set model.init=WEIGHTS`. Names are those of torchvision. Heads that the file
    /// does not have, or has with another number of outputs, keep their random weights; the first
    /// convolution is adapted to another number of channels. The program prints what it loaded.
    #[arg(long, value_name = "WEIGHTS", conflicts_with = "resume")]
    init: Option<PathBuf>,
    /// Prints JSON in place of the closing table: the last event of metrics.jsonl, or folds.json
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    parent: Parent,
}

/// Trains.
pub fn execute(run: Run) -> Result<(), Failure> {
    run.parent.watch()?;
    match processes::launch()? {
        None => train(run, None),
        Some(_) if run.fold == Some(Fold::All) => {
            let help = "start one job for each fold, with --fold 1, --fold 2 and so on";
            let told = "several processes cannot train all folds";
            Err(Failure::configuration(told).with_help(Some(help.to_owned())))
        }
        Some(launch) => {
            processes::execute(&launch, |processes| train(run, Some((&launch, processes))))
        }
    }
}

fn train(run: Run, among: Option<(&Launch, &Processes)>) -> Result<(), Failure> {
    // The same as `--set`, so that the resolved configuration has them.
    let mut set = run.overrides.set;
    set.extend(match run.device.len() {
        0 => None,
        1 => run
            .device
            .first()
            .map(|name| format!("device.use={}", toml::Value::from(name.as_str()))),
        _ => Some(format!("device.use={}", toml::Value::from(run.device))),
    });
    set.extend(run.init.as_deref().map(overrides::init));
    let among = match among {
        None => None,
        Some((launch, processes)) => {
            let (device, names) = processes::device(launch, &run.config, &set)?;
            set.push(names);
            Some(Among { processes, device })
        }
    };
    let mode = match (run.resume, run.overwrite) {
        (true, _) => FolderMode::Resume,
        (_, true) => FolderMode::Overwrite,
        _ => FolderMode::New,
    };
    match run.fold {
        Some(Fold::All) => {
            let devices = run.queue.open()?;
            return folds::execute(&run.config, &set, mode, run.json, devices);
        }
        _ if run.queue.is_given() => {
            let told = "--devices trains one fold on each device, and needs --fold all";
            let help = "several devices that share each batch are written --device cuda:0,cuda:1";
            return Err(Failure::configuration(told).with_help(Some(help.to_owned())));
        }
        Some(Fold::One(fold)) => set.push(format!("data.validation.fold={fold}")),
        None => {}
    }
    let check = |plan: &Plan| plan.check_fold_named().and_then(|()| build::check_here(plan));
    let (plan, source) = located_for(&run.config, &set, check)?;
    let training = build::build_of(plan, &Options { mode }, among);
    let mut training = training.map_err(|error| unopened(error, &source))?;
    if run.json && training.keeper.is_some() {
        training.reports.close_in_json();
    }
    match training.execute()? {
        Outcome::Ended(_) => {
            let (plan, folder) = (training.plan.clone(), training.folder.clone());
            let meter = training.meter.clone();
            let writes = training.keeper.is_some();
            let kept = "the run has ended and is saved; `trainer report` draws what its page lacks";
            let _watch = SignalGuard::over(&training.stop, kept);
            // Its memory is needed for the pictures.
            drop(training);
            if writes {
                super::report::finish_page(&plan, &folder, &meter);
            }
            among.map_or(Ok(()), |among| processes::end_together(among.processes))
        }
        Outcome::Stopped(signal) => {
            let (name, folder) = (signal.name(), training.folder.display());
            let told =
                format!("stopped by {name}; the state is saved in {folder}, go on with --resume");
            among.map_or(Ok(()), |among| processes::end_together(among.processes))?;
            Err(Failure::new(Kind::Stopped(signal), told))
        }
    }
}
