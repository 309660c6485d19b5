//! `trainer run`, killed with SIGKILL at random moments and resumed each time, ends as if it had
//! never been killed, and its folder can always be read.

mod support;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rand::RngExt;
use support::Result;

const KILLS: usize = 24;

fn trainer(config: &Path, resume: bool) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trainer"));
    command.arg("run").arg(config).args(resume.then_some("--resume"));
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

#[test]
fn a_run_killed_again_and_again_ends_as_one_never_killed() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let whole = folder.path().join("whole");
    let killed = folder.path().join("killed");
    std::fs::create_dir(&whole).expect("is made");
    std::fs::create_dir(&killed).expect("is made");
    let config = support::write_config(&whole, &data);
    let begin = Instant::now();
    let output = trainer(&config, false).output().expect("runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let length = begin.elapsed();
    let expected = Result::of(&whole.join("tiny"));

    let config = support::write_config(&killed, &data);
    let run = killed.join("tiny");
    let mut random = trainer::random::stream(11, "kills", &[]);
    let mut kills = 0;
    let mut ended = false;
    let mut attempts = 0;
    while kills < KILLS || !ended {
        attempts += 1;
        assert!(attempts < 400, "{kills} kills only");
        if ended {
            // Enough kills make one training longer than another: start again from nothing.
            std::fs::remove_dir_all(&run).expect("is removed");
            ended = false;
        }
        let mut child = trainer(&config, run.exists()).spawn().expect("starts");
        let patience = if kills < KILLS {
            Duration::from_secs_f64(length.as_secs_f64() * random.random_range(0.02..0.6))
        } else {
            Duration::from_secs(120)
        };
        let deadline = Instant::now() + patience;
        let status = loop {
            match child.try_wait().expect("can be asked") {
                Some(status) => break Some(status),
                None if Instant::now() >= deadline => break None,
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        match status {
            Some(status) => {
                let output = child.wait_with_output().expect("ends");
                let told = String::from_utf8_lossy(&output.stderr);
                assert!(status.success(), "after {kills} kills: {status}\n{told}");
                Result::of(&run).assert_equals(&expected, &format!("after {kills} kills"));
                ended = true;
            }
            None => {
                child.kill().expect("is killed");
                child.wait().expect("ends");
                kills += 1;
            }
        }
    }
}
