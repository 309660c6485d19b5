//! `trainer sweep`.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use super::named_devices::{Queue, check_on_each};
use super::overrides::{Overrides, assignment};
use super::{Failure, Kind, output};
use crate::config::{self, DeviceUse};
use crate::plan;
use crate::run::Stop;
use crate::screen::{
    Frame, bar_target, counted, say, stderr_columns, stdout_columns, tell_progress, wrapped,
};
use crate::sweep::{
    self, Outcome, Row, Shard, Status, Sweep as Measurement, SweepFolder, Told, Work,
};

/// Measures a configuration in many combinations of values, each in a process of its own
///
/// Every combination takes the first steps of training, or with --epochs is trained and evaluated. One
/// that runs out of memory becomes a row of the table that says so, and the others are still measured.
/// The table is saved after every row as sweep.md, sweep.csv and sweep.json in
/// <run.output>/<run.name>-sweep/, with a page, report.html. A sweep that was stopped goes on when it is started again.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  trainer sweep configs/xray_densenet.toml --grid train.batch_size=8,16,32,64
  trainer sweep configs/xray_densenet.toml --steps 50 \\
      --grid memory.precision=fp32,bf16 --grid memory.dense_layers=keep,share
  trainer sweep configs/xray_densenet.toml --epochs 3 \\
      --grid train.optimizer.adamw.lr=1e-4,3e-4,1e-3
  trainer sweep configs/xray_densenet.toml --synthetic --reference 2 \\
      --grid 'memory.checkpointing=\"none\",\"every\",{sequential={segments=4}}'
  trainer sweep configs/xray_densenet.toml --devices all --epochs 3 \\
      --grid train.optimizer.adamw.lr=1e-4,3e-4,1e-3")]
pub struct Sweep {
    /// The configuration, a TOML file
    #[arg(value_name = "CONFIG")]
    config: PathBuf,
    /// The values that one key takes; with several --grid every combination is measured
    ///
    /// The values are the elements of a TOML array, without its brackets: `train.batch_size=8,16` or
    /// `memory.checkpointing="none",{sequential={segments=4}}`. The key that is given first varies
    /// slowest.
    #[arg(long = "grid", value_name = "KEY=V1,V2,…", required = true, value_parser = assignment)]
    grid: Vec<String>,
    #[command(flatten)]
    overrides: Overrides,
    /// How many steps each combination takes; times are the median over the second half
    #[arg(long, value_name = "N", default_value = "20")]
    steps: NonZero<usize>,
    /// Trains each combination for N epochs instead, and reports validation
    ///
    /// A row then has the watched metric's best and last value, the time and the peak. Each
    /// combination has a run folder in the sweep's folder, under runs/. A sweep that was stopped
    /// goes on inside the epoch.
    #[arg(long, value_name = "N", conflicts_with_all = ["steps", "synthetic"])]
    epochs: Option<NonZero<usize>>,
    /// Measures on one made-up batch that stays on the device, without opening the data
    ///
    /// Otherwise the steps are those that `trainer run` begins with, loading included, and the loss is
    /// that of the last step's batch.
    #[arg(long)]
    synthetic: bool,
    #[command(flatten)]
    queue: Queue,
    /// Does only every Nth combination, beginning with the Ith, for a scheduler's job array
    ///
    /// `--shard $SLURM_ARRAY_TASK_ID/4` in an array of jobs numbered from 1 to 4. Shards may run at once on
    /// several machines that share the sweep's folder: each writes its own table there, in shards/I-of-N/.
    /// The same command without --shard then gathers their rows, and does what is missing.
    #[arg(long, value_name = "I/N")]
    shard: Option<Shard>,
    /// The row, counted from 1, whose memory is 100%; the first that fits unless given
    #[arg(long, value_name = "ROW")]
    reference: Option<NonZero<usize>>,
    /// The sweep's folder, instead of <run.output>/<run.name>-sweep/
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Deletes what the folder holds and measures all combinations anew
    #[arg(long)]
    overwrite: bool,
    /// Prints the rows as JSON once all are measured
    #[arg(long)]
    json: bool,
}

/// Sweeps.
pub fn execute(command: &Sweep) -> Result<(), Failure> {
    let sweep = planned(command)?;
    let stop = Stop::install().map_err(Failure::other)?;
    let path = command.out.clone().unwrap_or_else(|| {
        let run = &sweep.combinations[0].plan.run;
        run.output.join(format!("{}-sweep", run.name))
    });
    let mut folder = SweepFolder::open(&path, &sweep, command.overwrite).map_err(failure)?;
    let mut screen = Screen::new(&sweep, &folder.logs());
    let outcome = sweep.execute(&mut folder, &stop, |told| screen.tell(&told));
    screen.bar.finish_and_clear();
    let (rows, stopped) = match outcome.map_err(failure)? {
        Outcome::Done(rows) => (rows, None),
        Outcome::Stopped(rows, signal) => (rows, Some(signal)),
    };
    if rows.is_empty() && stopped.is_none() {
        // More shards than combinations.
        let of = counted(sweep.combinations.len(), "combination", "combinations");
        let shard = sweep.shard.map_or(String::new(), |shard| format!("{shard} has "));
        tell_progress(&format!("{shard}none of {of}"));
    }
    let shown = show(&sweep.keys, &rows, command.json);
    if let Some(signal) = stopped {
        let (name, done, of) = (signal.name(), rows.len(), sweep.own().count());
        let of = counted(of, "combination", "combinations");
        let told = format!(
            "stopped by {name}; {done} of {of} saved in {}, the same command goes on",
            path.display()
        );
        return Err(Failure::new(Kind::Stopped(signal), told));
    }
    shown?;
    ended(&rows, &folder, command.epochs.is_some())
}

fn planned(command: &Sweep) -> Result<Measurement, Failure> {
    let mut set = command.overrides.set.clone();
    let is_swept = |key: &'static str| {
        move |grid: &&String| grid.split('=').next().map(str::trim) == Some(key)
    };
    let devices = command.queue.open()?;
    if let Some(grid) =
        command.grid.iter().find(is_swept("device.use")).filter(|_| !devices.is_empty())
    {
        let told = format!("--devices and --grid {grid} both say where to measure");
        let help = "leave --devices out to compare devices, or device.use out of the grid";
        return Err(Failure::configuration(told).with_help(Some(help.to_owned())));
    }
    if let Some(epochs) = command.epochs {
        if let Some(grid) = command.grid.iter().find(is_swept("train.epochs")) {
            let told = format!("--epochs {epochs} and --grid {grid} both say how long to train");
            let help =
                "leave train.epochs out of the grid: --epochs is the same for all combinations";
            return Err(Failure::configuration(told).with_help(Some(help.to_owned())));
        }
        set.push(format!("train.epochs={epochs}"));
    }
    let mut grid = config::load_grid(&command.config, &set, &command.grid)?;
    grid.combinations.iter_mut().for_each(|one| super::scale::fill_in(&mut one.loaded));
    let plan = |mut config: config::Config| {
        if let Some(first) = devices.first() {
            config.device.device = DeviceUse::One(first.to_string());
        }
        let plan = plan::plan(config)?;
        command.epochs.map_or(Ok(()), |_| plan.check_fold_named())?;
        check_on_each(&plan, &devices).map(|()| plan)
    };
    let sweep = Measurement::plan(grid, plan)?;
    let reference = command.reference.map(|row| row.get() - 1);
    let count = sweep.combinations.len();
    if reference.is_some_and(|row| row >= count) {
        let message = format!("--reference counts the rows from 1, and there are {count}");
        return Err(Failure::configuration(message));
    }
    let program = std::env::current_exe().map_err(Failure::other)?;
    let work = match command.epochs {
        Some(epochs) => Work::Epochs(epochs.get()),
        None => Work::Steps { steps: command.steps.get(), synthetic: command.synthetic },
    };
    Ok(Measurement { program, work, reference, devices, shard: command.shard, ..sweep })
}

fn failure(error: sweep::SweepError) -> Failure {
    match error {
        sweep::SweepError::Another { .. } => Failure::configuration(error),
        _ => Failure::other(error),
    }
}

/// Rows that failed make the program fail, after all others are measured.
fn ended(rows: &[Row], folder: &SweepFolder, trained: bool) -> Result<(), Failure> {
    const DATA: u8 = 3;
    let failed: Vec<&Row> = rows.iter().filter(|row| row.status == Status::Failed).collect();
    if failed.is_empty() {
        return Ok(());
    }
    let told = format!(
        "{} of {} failed; what each said is in {}, the same command tries them again",
        failed.len(),
        counted(rows.len(), "combination", "combinations"),
        folder.logs().display()
    );
    let of_data = |row: &&&Row| row.exit_code == Some(i32::from(DATA));
    let of_data = failed.iter().filter(of_data).count();
    let help =
        (of_data > 0 && !trained).then(|| "--synthetic measures without the data".to_owned());
    let kind = if of_data == failed.len() { Kind::Data } else { Kind::Other };
    Err(Failure::new(kind, told).with_help(help))
}

/// Where rows are told as they come, and shown at the end: percentages are of a row that may come last.
struct Screen {
    bar: ProgressBar,
    count: usize,
    width: usize,
    device: Option<String>,
    /// Where to look on, while a combination is trained.
    logs: Option<PathBuf>,
    /// What is done now.
    doing: Vec<String>,
    /// Whether it was said that the page cannot be written.
    told: bool,
}

impl Screen {
    fn new(sweep: &Measurement, logs: &Path) -> Self {
        let bar = ProgressBar::new_spinner();
        bar.set_draw_target(bar_target());
        // Cut off where the terminal ends.
        if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(100));
        let width = sweep.combinations.iter().map(|one| one.name.len()).max().unwrap_or(0);
        let logs = matches!(sweep.work, Work::Epochs(_)).then(|| logs.to_owned());
        let (count, doing) = (sweep.combinations.len(), Vec::new());
        Self { bar, count, width, device: None, logs, doing, told: false }
    }

    fn tell(&mut self, told: &Told<'_>) {
        match told {
            Told::Begins { of, device } => {
                self.doing.push(of.name.clone());
                // A log says what takes so long.
                if let Some(logs) = self.logs.as_ref().filter(|_| self.bar.is_hidden()) {
                    let on = device.map_or(String::new(), |device| format!(" on {device}"));
                    tell_progress(&format!("training {}{on}, told in {}", of.name, logs.display()));
                }
                self.show_what_is_done();
            }
            Told::Row { number, of, row, kept } => {
                let (width, count) = (self.width, self.count);
                let kept = if *kept { "  (from before)" } else { "" };
                let shown = sweep::summary(row);
                let line = format!("{}/{count}  {:width$}  {shown}{kept}", number + 1, of.name);
                let line = wrapped(&line, stderr_columns().unwrap_or(usize::MAX), 5);
                self.bar.suspend(|| tell_progress(&line));
                self.compare(row);
                self.doing.retain(|name| *name != of.name);
                self.show_what_is_done();
            }
            Told::NoPage(reason) => {
                if !std::mem::replace(&mut self.told, true) {
                    self.bar.suspend(|| say(format_args!("warning: {reason}")));
                }
            }
        }
    }

    fn show_what_is_done(&self) {
        let doing = self.doing.join("; ");
        self.bar.set_message(match &self.logs {
            Some(logs) if !doing.is_empty() => {
                format!("training {doing}, told in {}", logs.display())
            }
            _ => doing,
        });
    }

    /// Rows of two kinds of device do not compare.
    fn compare(&mut self, row: &Row) {
        match (&self.device, &row.device) {
            (Some(before), Some(now)) if kind(before) != kind(now) => self.bar.suspend(|| {
                say(format_args!(
                    "warning: rows before this one are of {before}, this one of {now}"
                ));
            }),
            _ => {}
        }
        self.device = row.device.clone().or(self.device.take());
    }
}

/// What a device is, without which of several it is and how much of its memory is free: `NVIDIA H200` of
/// `cuda:1, NVIDIA H200, 139 GiB of 140 GiB free, …`.
fn kind(device: &str) -> &str {
    match device.split_once(", ") {
        Some((name, rest)) if name.starts_with("cuda:") => rest.split(", ").next().unwrap_or(rest),
        _ => device,
    }
}

/// Prints the rows: as JSON where that is asked for, else as a table that fits the page.
fn show(keys: &[String], rows: &[Row], json: bool) -> Result<(), Failure> {
    if json {
        return output::print(&serde_json::to_string_pretty(rows).map_err(Failure::other)?);
    }
    output::print(&sweep::drawn(keys, rows, Frame::of_stdout(), stdout_columns()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_cards_of_one_model_are_alike() {
        let card = |text: &str| format!("cuda:{text} free, compute capability 9.0");
        let [one, other] =
            ["0, NVIDIA H200, 139 GiB of 140 GiB", "1, NVIDIA H200, 138 GiB of 140 GiB"].map(card);
        assert_eq!(kind(&one), kind(&other));
        assert_ne!(kind(&one), kind(&card("0, NVIDIA H100 80GB HBM3, 78 GiB of 79 GiB")));
        assert_ne!(kind("cpu, 4 threads"), kind("cpu, 8 threads"));
    }
}
