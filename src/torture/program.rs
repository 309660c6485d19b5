//! The whole program in a process of its own: this test binary again, with a disk that is watched.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use clap::Parser;

use super::support::{Result, write_config};
use crate::cli::{self, Cli};
use crate::disk::watch::{DiskFault, Logged, Watch};

/// The arguments, a line each.
const ARGUMENTS: &str = "TRAINER_TEST_ARGUMENTS";
/// The folder that is watched.
const FOLDER: &str = "TRAINER_TEST_FOLDER";
/// The number of an operation and what happens there, in words.
const FAULT: &str = "TRAINER_TEST_FAULT";

/// Not a test by itself: what the child process runs.
#[test]
#[expect(clippy::print_stdout, clippy::print_stderr, reason = "the parent reads it")]
fn the_program() {
    let Ok(arguments) = std::env::var(ARGUMENTS) else { return };
    let watch = Watch::over(Path::new(&std::env::var(FOLDER).expect("is set")));
    if let Ok(fault) = std::env::var(FAULT) {
        let words: Vec<&str> = fault.split(' ').collect();
        let number = |at: usize| words[at].parse().expect("a number");
        let fault = match words[1] {
            "signal" => DiskFault::Signal,
            "refused" => DiskFault::Refused(number(2)),
            "broken" => DiskFault::Broken(number(2)),
            "room" => DiskFault::Room(words[2].parse().expect("a number")),
            "slow" => DiskFault::Slow(words[2].parse().expect("a number")),
            other => panic!("{other}"),
        };
        watch.strike_after(words[0].parse().expect("a number"), fault);
    }
    cli::install_panic_hook();
    let code = match cli::caught(|| cli::execute(Cli::parse_from(arguments.lines()))) {
        Ok(Ok(())) => 0,
        Ok(Err(failure)) => {
            eprintln!("{}", failure.render(false));
            failure.kind().exit_code()
        }
        Err(kind) => kind.exit_code(),
    };
    let bytes = |logged: &Logged| match logged {
        Logged::Write { bytes, .. } => bytes.len(),
        _ => 0,
    };
    let bytes: usize = watch.log().iter().map(bytes).sum();
    println!("\nwatched {} {} {bytes}", u8::from(watch.struck()), watch.operations());
    std::process::exit(code.into());
}

/// How the program ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub status: ExitStatus,
    pub told: String,
    /// Whether the fault has struck.
    pub struck: bool,
    pub operations: usize,
    /// The bytes that it has written through the layer.
    pub bytes: usize,
}

/// A run, its data and its cache, in a folder.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub folder: PathBuf,
    config: PathBuf,
}

impl Place {
    /// A new one in `parent`; all have the same data.
    pub fn new(parent: &Path, name: &str) -> Self {
        let folder = parent.join(name);
        std::fs::create_dir(&folder).expect("is made");
        let config = write_config(&folder, &parent.join("data"));
        let text = std::fs::read_to_string(&config).expect("reads");
        let text =
            text.replace("patients = 14", "patients = 10").replace("epochs = 3", "epochs = 2");
        let text = format!("{text}\n[data.cache.disk]\nfolder = {:?}\n", folder.join("cache"));
        std::fs::write(&config, text).expect("is written");
        Self { folder, config }
    }

    /// Its run folder.
    pub fn run(&self) -> PathBuf {
        self.folder.join("tiny")
    }

    /// Removes what the program has made.
    pub fn clear(&self) {
        for made in [self.run(), self.folder.join("cache")] {
            if made.exists() {
                std::fs::remove_dir_all(made).expect("is removed");
            }
        }
    }

    /// Starts `trainer run`, with `--resume` where there is a run.
    pub fn start(&self, fault: Option<&str>) -> Child {
        let mut arguments = vec!["trainer", "run", self.config.to_str().expect("UTF-8")];
        arguments.extend(self.run().exists().then_some("--resume"));
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", "torture::program::the_program", "--nocapture"]);
        command.args(["--test-threads", "1"]);
        command.env(ARGUMENTS, arguments.join("\n")).env(FOLDER, &self.folder);
        command.env("NO_COLOR", "1");
        if let Some(fault) = fault {
            command.env(FAULT, fault);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("starts")
    }

    /// Runs it to its end.
    pub fn train(&self, fault: Option<&str>) -> Ended {
        ended(self.start(fault))
    }

    /// Asserts that the run, gone on with until its end, is `expected`.
    pub fn assert_goes_on(&self, expected: &Result, case: &str) {
        let ended = self.train(None);
        assert!(ended.status.success(), "{case}: {}\n{}", ended.status, ended.told);
        Result::of(&self.run()).assert_equals(expected, case);
    }
}

/// Waits for a child that [`Place::start`] has started.
pub(super) fn ended(child: Child) -> Ended {
    let output = child.wait_with_output().expect("ends");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let last = printed.lines().find_map(|line| line.strip_prefix("watched "));
    let numbers: Vec<usize> = last
        .map(|line| line.split(' ').map(|word| word.parse().expect("a number")).collect())
        .unwrap_or_else(|| vec![1, 0, 0]);
    Ended {
        status: output.status,
        told: String::from_utf8_lossy(&output.stderr).into_owned(),
        struck: numbers[0] == 1,
        operations: numbers[1],
        bytes: numbers[2],
    }
}
