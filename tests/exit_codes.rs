//! Protects the exit codes of README.md: they hold where nothing can be written, and a progress line that
//! cannot be written ends no training.
#![cfg(target_os = "linux")]

#[path = "exit_codes/ended.rs"]
mod ended;
#[path = "exit_codes/phases.rs"]
mod phases;
mod support;

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// Where what the program says is lost.
#[derive(Debug, Clone, Copy)]
enum Lost {
    FullDisk,
    ClosedPipe,
    Terminal,
}

const LOST: [Lost; 3] = [Lost::FullDisk, Lost::ClosedPipe, Lost::Terminal];

impl Lost {
    fn open(self) -> OwnedFd {
        match self {
            Self::FullDisk => File::options().write(true).open("/dev/full").expect("opens").into(),
            Self::ClosedPipe => {
                let (reader, writer) = std::io::pipe().expect("a pipe");
                drop(reader);
                writer.into()
            }
            Self::Terminal => {
                let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
                grantpt(&terminal).and_then(|()| unlockpt(&terminal)).expect("it may be opened");
                let name = ptsname(&terminal, Vec::new()).expect("it has a name");
                let screen = File::options().write(true).open(name.to_str().expect("is UTF-8"));
                // The terminal is lost when its other side is closed.
                screen.expect("it opens").into()
            }
        }
    }
}

fn trainer(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trainer"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// A run of two epochs, to be stopped or not.
fn tiny(folder: &Path) -> (PathBuf, PathBuf) {
    let config = support::write_config(folder, &folder.join("data"));
    (config, folder.join("tiny"))
}

fn shown(path: &Path) -> &str {
    path.to_str().expect("is UTF-8")
}

fn code(status: ExitStatus) -> String {
    status.code().map_or(status.to_string(), |code| code.to_string())
}

/// Waits until `is` holds, or the program has ended.
fn wait_until(case: &str, child: &mut Child, is: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is() {
        assert!(begin.elapsed() < Duration::from_secs(120), "{case}: it never came to that");
        if let Some(status) = child.try_wait().expect("can be asked") {
            panic!("{case}: it has ended before: {status}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn errors_keep_their_exit_codes_where_their_messages_are_lost() {
    let folder = tempfile::tempdir().expect("a folder");
    let (config, _) = tiny(folder.path());
    let config = shown(&config);
    let gone = folder.path().join("gone").display().to_string();
    let text = fs::read_to_string(config).expect("reads");
    let (head, tail) = text.split_once("[data.phantom]").expect("has a phantom");
    let tail = &tail[tail.find("[model").expect("has a model")..];
    let csv = format!(
        "{head}[data.csv]\ntable = \"{gone}/t.csv\"\nimage = \"file\"\npatient = \"p\"\n{tail}"
    );
    let missing = folder.path().join("missing.toml");
    fs::write(&missing, csv).expect("writes");
    let cases: [(&[&str], &str); 5] = [
        (&["run", config, "--set", "train.epochs=0"], "2"),
        (&["check", &gone], "2"),
        (&["run", "--nonsense"], "2"),
        (&["run", shown(&missing)], "3"),
        (&["eval", &gone], "5"),
    ];
    for (arguments, expected) in cases {
        for lost in LOST {
            let status = trainer(arguments).stderr(lost.open()).status().expect("starts");
            assert_eq!(code(status), expected, "{arguments:?} {lost:?}");
        }
    }
}

#[test]
fn a_training_whose_progress_cannot_be_written_is_the_same_training() {
    let folder = tempfile::tempdir().expect("a folder");
    let whole = folder.path().join("whole");
    fs::create_dir(&whole).expect("is made");
    let data = folder.path().join("data");
    let config = support::write_config(&whole, &data);
    assert!(trainer(&["run", shown(&config)]).status().expect("starts").success());
    let expected = support::Result::of(&whole.join("tiny"));
    for (number, lost) in LOST.into_iter().enumerate() {
        for quiet in [&[][..], &["--quiet"]] {
            let folder = folder.path().join(format!("{number}-{}", quiet.len()));
            fs::create_dir(&folder).expect("is made");
            let config = support::write_config(&folder, &data);
            let mut command = trainer(&["run", shown(&config)]);
            let status = command.args(quiet).stdout(lost.open()).stderr(lost.open()).status();
            assert_eq!(code(status.expect("starts")), "0", "{lost:?} {quiet:?}");
            let found = support::Result::of(&folder.join("tiny"));
            found.assert_equals(&expected, &format!("{lost:?} {quiet:?}"));
        }
    }
}

#[test]
fn a_result_that_cannot_be_written_to_standard_output_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let (config, run) = tiny(folder.path());
    let config = shown(&config);
    assert!(trainer(&["run", config]).status().expect("starts").success());
    let images = folder.path().join("data").display().to_string();
    let cases: [&[&str]; 8] = [
        &["predict", shown(&run), &images],
        &["predict", shown(&run), &images, "--format", "jsonl"],
        &["eval", shown(&run), "--json"],
        &["run", config, "--overwrite", "--json"],
        &["check", config],
        &["schema"],
        &["--help"],
        &["--version"],
    ];
    for arguments in cases {
        for lost in [Lost::FullDisk, Lost::Terminal] {
            let output = trainer(arguments).stdout(lost.open()).stderr(Stdio::piped()).output();
            let output = output.expect("starts");
            let told = String::from_utf8_lossy(&output.stderr);
            assert_eq!(code(output.status), "1", "{arguments:?} {lost:?}: {told}");
            assert!(told.contains("standard output"), "{arguments:?} {lost:?}: {told}");
        }
        // A reader that has gone has what it wanted.
        let status = trainer(arguments).stdout(Lost::ClosedPipe.open()).status().expect("starts");
        assert_eq!(code(status), "0", "{arguments:?}");
    }
}

#[test]
fn a_stopped_training_saves_and_says_so_by_its_exit_code_whoever_listens() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    for (signal, expected) in signals() {
        for lost in LOST {
            let folder = folder.path().join(format!("{expected}-{lost:?}"));
            fs::create_dir(&folder).expect("is made");
            let config = support::write_config(&folder, &data);
            let mut command = trainer(&["run", shown(&config), "--set", "train.epochs=500"]);
            let mut child =
                command.stdout(lost.open()).stderr(lost.open()).spawn().expect("starts");
            wait_until(expected, &mut child, || folder.join("tiny/last").exists());
            kill_process(Pid::from_child(&child), signal).expect("is sent");
            if signal == Signal::HUP {
                // The system and the shell both send it.
                let _ = kill_process(Pid::from_child(&child), signal);
            }
            assert_eq!(code(child.wait().expect("ends")), expected, "{lost:?}");
            let state = fs::read_to_string(folder.join("tiny/last/manifest.json"));
            let reason = signal_name(signal);
            assert!(state.expect("reads").contains("\"interrupted\""), "{reason} {lost:?}");
            let told = fs::read_to_string(folder.join("tiny/metrics.jsonl")).expect("reads");
            assert!(told.contains(&format!("\"signal\":\"{reason}\"")), "{reason} {lost:?}");
        }
    }
}

/// Those that end a run, with its exit codes. Where who runs the tests ignores SIGHUP, as `nohup` does, the
/// program inherits that, and is not sent it.
fn signals() -> Vec<(Signal, &'static str)> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let is_ignored = |signal: Signal| ignored.unwrap_or(0) >> (signal.as_raw() - 1) & 1 == 1;
    let all = [(Signal::INT, "130"), (Signal::TERM, "143"), (Signal::HUP, "129")];
    all.into_iter().filter(|(signal, _)| !is_ignored(*signal)).collect()
}

fn signal_name(signal: Signal) -> &'static str {
    match signal {
        Signal::INT => "SIGINT",
        Signal::TERM => "SIGTERM",
        _ => "SIGHUP",
    }
}

#[test]
fn a_training_under_nohup_outlives_its_terminal() {
    let folder = tempfile::tempdir().expect("a folder");
    let (config, run) = tiny(folder.path());
    let mut command = Command::new("nohup");
    command.arg(env!("CARGO_BIN_EXE_trainer")).args(["run", shown(&config)]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let mut child = command.spawn().expect("starts");
    wait_until("nohup", &mut child, || run.join("last").exists());
    kill_process(Pid::from_child(&child), Signal::HUP).expect("is sent");
    assert_eq!(code(child.wait().expect("ends")), "0");
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn is_drawing(folder: &Path) -> bool {
    names(folder)
        .iter()
        .any(|name| name.starts_with("data.partial-") && folder.join(name).join("train").is_dir())
}

fn nothing_is_left(folder: &Path) {
    let mut left = names(folder);
    left.sort();
    left.retain(|name| name != "tiny-sweep");
    assert_eq!(left, ["tiny.toml"], "{}", folder.display());
}

/// Radiographs that take minutes to draw.
const MANY: [&str; 4] = ["--set", "data.phantom.patients=4000", "--set", "data.phantom.size=300"];

/// `command` in `folder`, with the configuration there and more.
fn tiny_command(folder: &Path, command: &[&str], more: &[&str]) -> Command {
    let (config, _) = tiny(folder);
    let mut all = trainer(command);
    all.arg(config).args(more);
    all
}

/// The folder of the run that a sweep begins with.
fn first_run(folder: &Path) -> PathBuf {
    let runs = folder.join("tiny-sweep/runs");
    let first = names(&runs).into_iter().min().unwrap_or_default();
    runs.join(first)
}
