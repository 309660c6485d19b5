//! One combination, measured by a child process, `trainer bench`, or trained by one, `trainer run`.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::folder::{Files, SweepError, SweepFolder};
use super::row::{Row, Status};
use super::{Planned, Sweep, Work, trained};
use crate::plan::{DevicePlan, Plan};
use crate::run::{Signal, Stop};

/// The exit code of memory with nothing left to try.
const OUT_OF_MEMORY: i32 = 4;
const SIGHUP: i32 = 1;
const SIGINT: i32 = 2;
const SIGABRT: i32 = 6;
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

/// How Rust says that an allocation failed, before it ends the process.
const ABORTED: &str = "memory allocation of ";

/// How a child ended.
pub(super) enum Ended {
    /// By itself.
    Row(Box<Row>),
    /// Because the sweep was asked to stop.
    Stopped(Signal),
}

/// What the child prints.
#[derive(Debug, Deserialize)]
struct Printed {
    device: String,
    loss: Option<f64>,
    ours: Figures,
}

#[derive(Debug, Deserialize)]
struct Figures {
    ms: f64,
    images_per_second: f64,
    live: Option<u64>,
    peak: Option<u64>,
    reserved: Option<u64>,
    smi: Option<u64>,
    #[serde(default)]
    predicted_peak: Option<u64>,
    #[serde(default)]
    recomputed_percent: Option<f64>,
}

/// A combination to be done.
pub(super) struct Task<'a> {
    /// Its number, from 0.
    pub(super) number: usize,
    pub(super) of: &'a Planned,
    files: Files,
    /// What is done, but for the device.
    plan: Plan,
}

impl<'a> Task<'a> {
    /// The combination `number`, which leaves its files in `folder`.
    pub(super) fn new(sweep: &'a Sweep, folder: &SweepFolder, number: usize) -> Self {
        let of = &sweep.combinations[number];
        let plan = match sweep.work {
            Work::Steps { .. } => of.plan.clone(),
            Work::Epochs(_) => folder.trained_plan(of),
        };
        Self { number, of, files: folder.files(of), plan }
    }
}

/// Measures or trains what `task` says, on `device` if there is one. The child reads the resolved configuration, so that it does what was planned
/// even when the user's file has changed since.
pub(super) fn measure(
    sweep: &Sweep,
    task: &Task<'_>,
    device: Option<DevicePlan>,
    stop: &Stop,
) -> Result<Ended, SweepError> {
    let Task { of, files, plan, .. } = task;
    let mut plan = plan.clone();
    plan.devices = device.map_or(plan.devices, |device| vec![device]);
    if matches!(sweep.work, Work::Epochs(_)) {
        trained::wait_until_free(&files.run, stop)?;
    }
    if let Some(signal) = stop.requested() {
        return Ok(Ended::Stopped(signal));
    }
    let at = |path: &Path| SweepError::at("write", path);
    std::fs::write(&files.config, plan.to_toml()?).map_err(at(&files.config))?;
    let told = fresh(&files.log).map_err(at(&files.log))?;
    let printed = fresh(&files.printed).map_err(at(&files.printed))?;
    let mut command = Command::new(&sweep.program);
    match sweep.work {
        Work::Steps { steps, synthetic } => {
            command.arg("bench").arg(&files.config).args(["--steps", &steps.to_string()]);
            command.args((!synthetic).then_some("--data"));
        }
        Work::Epochs(_) => {
            // A run that was killed before it saved anything has nothing to go on from.
            let goes_on = trained::can_go_on(&files.run);
            let mode = if goes_on { "--resume" } else { "--overwrite" };
            command.arg("run").arg(&files.config).arg(mode);
        }
    }
    command.args(["--with-parent", &std::process::id().to_string()]);
    // What it says is read, and kept in a file.
    command.env("NO_COLOR", "1");
    command.stdin(Stdio::null()).stdout(printed).stderr(told);
    let mut child = command.spawn().map_err(SweepError::at("start", &sweep.program))?;
    let waited = wait(&mut child, stop, matches!(sweep.work, Work::Epochs(_)));
    let waited = waited.map_err(SweepError::at("wait for", &sweep.program))?;
    Ok(match waited {
        Err(signal) => Ended::Stopped(signal),
        Ok(status) => Ended::Row(Box::new(row(sweep, of, status, files))),
    })
}

/// A new file in place of the one at `path`: a child of a sweep that was killed may still write to that.
pub(super) fn fresh(path: &Path) -> std::io::Result<File> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => File::create(path),
    }
}

/// Waits for the child, or ends it when a signal asks the sweep to stop. One that `saves` is asked to
/// end, and given the time to save.
pub(super) fn wait(
    child: &mut Child,
    stop: &Stop,
    saves: bool,
) -> std::io::Result<Result<ExitStatus, Signal>> {
    let mut ended = None;
    // Ctrl-C reaches the child too, and it may end before the signal is noted here.
    let mut patience = 10;
    loop {
        if let Some(signal) = stop.requested() {
            if ended.is_none() {
                end(child, saves)?;
            }
            return Ok(Err(signal));
        }
        ended = ended.or(child.try_wait()?);
        if let Some(status) = ended {
            let asked = matches!(signal_of(status), Some(SIGHUP | SIGINT | SIGTERM));
            if !asked || patience == 0 {
                return Ok(Ok(status));
            }
            patience -= 1;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Asks the child to end. One that `saves` has the time for it, another only to undo what it has begun.
#[cfg(unix)]
fn end(child: &mut Child, saves: bool) -> std::io::Result<()> {
    use rustix::process::{Pid, Signal, kill_process};
    const GRACE: Duration = Duration::from_millis(800);
    kill_process(Pid::from_child(child), Signal::TERM)?;
    let begin = Instant::now();
    while child.try_wait()?.is_none() {
        if !saves && begin.elapsed() > GRACE {
            child.kill()?;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

#[cfg(not(unix))]
fn end(child: &mut Child, _: bool) -> std::io::Result<()> {
    child.kill()?;
    child.wait().map(drop)
}

#[cfg(unix)]
fn signal_of(status: ExitStatus) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&status)
}

#[cfg(not(unix))]
fn signal_of(_: ExitStatus) -> Option<i32> {
    None
}

fn row(sweep: &Sweep, of: &Planned, status: ExitStatus, files: &Files) -> Row {
    let log = read(&files.log);
    let (status, code) = (verdict(status.code(), signal_of(status), &log), status.code());
    let mut row = Row::new(of.set.clone(), status);
    match status {
        Status::Ok => {
            let filled = match sweep.work {
                Work::Steps { .. } => fill_in(&mut row, &read(&files.printed)),
                Work::Epochs(_) => trained::fill_in(&mut row, &files.run),
            };
            if let Err(error) = filled {
                row.status = Status::Failed;
                row.message = Some(format!("it ended without its figures: {error}"));
            }
        }
        Status::OutOfMemory => {
            row.oversubscribed = asked_for(&log);
            row.message = Some(message(&log).unwrap_or_else(|| {
                "ended by the system (SIGKILL), as Linux does when memory runs out".to_owned()
            }));
        }
        Status::Failed => {
            row.exit_code = code;
            row.message = Some(said(&files.log));
        }
    }
    row
}

/// The error that a child has told in the log at `path`.
pub(super) fn said(path: &Path) -> String {
    message(&read(path)).unwrap_or_else(|| "it ended without a word".to_owned())
}

fn read(path: &Path) -> String {
    std::fs::read(path).map_or(String::new(), |text| String::from_utf8_lossy(&text).into_owned())
}

/// Fills in `row` from what `trainer bench` has printed.
fn fill_in(row: &mut Row, printed: &str) -> Result<(), String> {
    let Printed { device, loss, ours } =
        serde_json::from_str(printed).map_err(|error| error.to_string())?;
    (row.device, row.loss) = (Some(device), loss);
    (row.live, row.peak, row.predicted_peak) = (ours.live, ours.peak, ours.predicted_peak);
    (row.reserved, row.smi) = (ours.reserved, ours.smi);
    row.recomputed_percent = ours.recomputed_percent;
    row.ms_per_step = Some(ours.ms);
    row.images_per_second = Some(ours.images_per_second);
    Ok(())
}

/// What exit code, signal and messages mean.
fn verdict(code: Option<i32>, signal: Option<i32>, log: &str) -> Status {
    match (code, signal) {
        (Some(0), _) => Status::Ok,
        (Some(OUT_OF_MEMORY), _) | (_, Some(SIGKILL)) => Status::OutOfMemory,
        (_, Some(SIGABRT)) if asked_for(log).is_some() => Status::OutOfMemory,
        _ => Status::Failed,
    }
}

/// The bytes of the allocation that failed.
fn asked_for(log: &str) -> Option<u64> {
    let phrases = ["out of device memory allocating ", ABORTED];
    phrases.iter().find_map(|phrase| {
        let (_, after) = log.split_once(phrase)?;
        let (number, rest) = after.split_once(' ')?;
        rest.starts_with("bytes").then(|| number.parse().ok()).flatten()
    })
}

/// The first error of a log up to its advice; without one, the last line.
fn message(log: &str) -> Option<String> {
    let lines: Vec<&str> = log.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    let begins = |line: &&str| line.starts_with("error") || line.starts_with(ABORTED);
    let error = lines.iter().position(begins);
    let shown = match error {
        Some(first) => {
            // Advice, the program's own or Rust's.
            let ends = |line: &&&str| {
                let line = line.trim_start();
                ["= help", "note: ", "stack backtrace"].iter().any(|ends| line.starts_with(ends))
            };
            let lines: Vec<&str> =
                lines[first..].iter().take_while(|line| !ends(line)).copied().collect();
            lines.join("\n")
        }
        None => (*lines.last()?).to_owned(),
    };
    let shown = shown.strip_prefix("error: ").unwrap_or(&shown);
    Some(shown.chars().take(500).collect())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn what_a_child_of_before_writes_is_in_no_file_of_now() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("printed");
        let mut before = fresh(&path).expect("is made");
        let mut now = fresh(&path).expect("is made");
        before.write_all(b"before").expect("is written");
        now.write_all(b"now").expect("is written");
        assert_eq!(std::fs::read(&path).expect("is read"), b"now");
    }

    #[test]
    fn memory_runs_out_in_many_ways() {
        let aborted = "memory allocation of 68719476736 bytes failed\n";
        assert_eq!(verdict(Some(0), None, ""), Status::Ok);
        assert_eq!(verdict(Some(4), None, ""), Status::OutOfMemory);
        assert_eq!(verdict(None, Some(SIGKILL), ""), Status::OutOfMemory);
        assert_eq!(verdict(None, Some(SIGABRT), aborted), Status::OutOfMemory);
        assert_eq!(verdict(None, Some(SIGABRT), "assertion failed"), Status::Failed);
        for code in [1, 2, 3, 5] {
            assert_eq!(verdict(Some(code), None, aborted), Status::Failed, "{code}");
        }
    }

    #[test]
    fn the_bytes_that_were_asked_for_are_found() {
        let cuda =
            "error: out of memory: out of device memory allocating 400556032 bytes\n  = help";
        assert_eq!(asked_for(cuda), Some(400_556_032));
        assert_eq!(asked_for("memory allocation of 12 bytes failed"), Some(12));
        assert_eq!(asked_for("memory allocation of many things"), None);
    }

    #[test]
    fn the_message_is_the_error_without_its_advice() {
        let log =
            "warning: slow\nerror: out of memory: here\n  because: of this\n  = help: buy more";
        assert_eq!(message(log).as_deref(), Some("out of memory: here\n  because: of this"));
        let log = "memory allocation of 12 bytes failed\nnote: run with `RUST_BACKTRACE=1`\n";
        assert_eq!(message(log).as_deref(), Some("memory allocation of 12 bytes failed"));
        assert_eq!(message("one\n\ntwo\n").as_deref(), Some("two"));
        assert_eq!(message("\n"), None);
    }
}
