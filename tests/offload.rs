//! A run whose activations and optimizer wait elsewhere is the run that it is without.

mod support;

use std::path::{Path, PathBuf};

use support::Result;
use trainer::build::{BuildError, Options, build};
use trainer::memory::offload::OffloadError;
use trainer::report::{Event, Phase, Report, ReportError};
use trainer::run::{FolderMode, Outcome, Run, Signal, Stop};

/// The tiny run with inputs put aside in `scratch` and the optimizer's state in host memory.
fn write(folder: &Path, data: &Path, scratch: &Path) -> PathBuf {
    let path = support::write_config(folder, data);
    let text = std::fs::read_to_string(&path).expect("was written");
    let memory = format!(
        "[memory]\ncheckpointing = \"every\"\noffload_optimizer = true\nmicro_batch = 4\n\
         [memory.offload.disk]\npath = {:?}\n",
        scratch.to_str().expect("UTF-8")
    );
    std::fs::write(&path, text + &memory).expect("is written");
    path
}

fn open(config: &Path, mode: FolderMode) -> std::result::Result<Run, BuildError> {
    let loaded = trainer::config::load(config, &[]).expect("a right configuration");
    let plan = trainer::plan::plan(loaded.config).expect("a right plan");
    build(plan, &Options { mode })
}

/// Asks the run to stop in its second epoch.
struct Asker(Stop, usize);

impl Report for Asker {
    fn event(&mut self, event: &Event) -> std::result::Result<(), ReportError> {
        if matches!(event, Event::Progress(progress) if progress.phase == Phase::Train) {
            self.1 += 1;
            if self.1 == 5 {
                self.0.request(Signal::Terminate);
            }
        }
        Ok(())
    }
}

#[test]
fn a_run_with_everything_moved_away_and_interrupted_is_bit_for_bit_the_plain_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let below = |name: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir(&path).expect("is made");
        path
    };
    let (plain, moved, scratch) = (below("plain"), below("moved"), below("scratch"));
    let data = folder.path().join("data");
    let config = support::write_config(&plain, &data);
    open(&config, FolderMode::New).expect("opens").execute().expect("trains");

    let config = write(&moved, &data, &scratch);
    let mut run = open(&config, FolderMode::New).expect("opens");
    let stop = run.stop.clone();
    run.reports.add(Asker(stop, 0));
    assert_eq!(run.execute().expect("trains"), Outcome::Stopped(Signal::Terminate));
    assert_eq!(std::fs::read_dir(&scratch).expect("reads").count(), 0);
    drop(run);
    let mut run = open(&config, FolderMode::Resume).expect("opens");
    assert!(matches!(run.execute().expect("trains"), Outcome::Ended(_)));
    drop(run);
    let expected = Result::of(&plain.join("tiny"));
    Result::of(&moved.join("tiny")).assert_equals(&expected, "moved away");
}

#[test]
fn offloads_that_free_nothing_on_the_cpu_are_told_of() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = support::write_config_with(
        folder.path(),
        &folder.path().join("data"),
        "[memory]\noffload = \"host\"\noffload_optimizer = true\n",
    );
    drop(open(&config, FolderMode::New).expect("opens"));
    let lines = std::fs::read_to_string(folder.path().join("tiny/metrics.jsonl")).expect("metrics");
    let warnings: Vec<&str> = lines.lines().filter(|line| line.contains("frees nothing")).collect();
    insta::assert_snapshot!(warnings.join("\n"), @r#"
    {"event":"warning","message":"`offload = \"host\"` under [memory] frees nothing: the memory of the CPU is the host's. `[memory.offload.disk]` does."}
    {"event":"warning","message":"`offload_optimizer = true` under [memory] frees nothing: the memory of the CPU is the host's."}
    "#);
}

#[test]
fn a_folder_that_is_not_there_is_named_before_anything_is_trained() {
    let folder = tempfile::tempdir().expect("a folder");
    let scratch = folder.path().join("absent");
    let config = write(folder.path(), &folder.path().join("data"), &scratch);
    let refused = open(&config, FolderMode::New).map(drop).expect_err("there is no folder");
    assert!(matches!(refused, BuildError::Offload(OffloadError::Open { .. })), "{refused}");
    assert!(refused.to_string().contains("absent"), "{refused}");
}
