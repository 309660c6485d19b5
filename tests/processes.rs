//! Protects `trainer run` as several processes: the bits of as many devices of one process, whoever starts
//! them, and what happens when one of them fails.

mod support;

use std::collections::BTreeMap;
use std::io::Read;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rand::RngExt;
use support::Result;

#[path = "processes/failures.rs"]
mod failures;

/// Who starts the processes.
#[derive(Debug, Clone, Copy)]
enum By {
    Torchrun,
    OpenMpi,
    Slurm,
}

/// The variables that a process finds.
fn variables(by: By, rank: usize, world: usize, port: u16) -> Vec<(&'static str, String)> {
    let (rank, world, port) = (rank.to_string(), world.to_string(), port.to_string());
    match by {
        By::Torchrun => vec![
            ("RANK", rank.clone()),
            ("WORLD_SIZE", world.clone()),
            ("LOCAL_RANK", rank),
            ("LOCAL_WORLD_SIZE", world),
            ("MASTER_ADDR", "127.0.0.1".to_owned()),
            ("MASTER_PORT", "9".to_owned()),
            ("TRAINER_PORT", port),
            ("TORCHELASTIC_RUN_ID", "none".to_owned()),
        ],
        By::OpenMpi => vec![
            ("OMPI_COMM_WORLD_RANK", rank.clone()),
            ("OMPI_COMM_WORLD_SIZE", world.clone()),
            ("OMPI_COMM_WORLD_LOCAL_RANK", rank),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", world),
            ("MASTER_PORT", port),
        ],
        By::Slurm => vec![
            ("SLURM_JOB_ID", "8123".to_owned()),
            ("SLURM_STEP_ID", "0".to_owned()),
            ("SLURM_PROCID", rank.clone()),
            ("SLURM_LOCALID", rank),
            ("SLURM_NODEID", "0".to_owned()),
            ("SLURM_NTASKS", world.clone()),
            ("SLURM_STEP_NUM_TASKS", world.clone()),
            ("SLURM_STEP_TASKS_PER_NODE", world),
            ("SLURM_STEP_NODELIST", "localhost".to_owned()),
            ("MASTER_PORT", port),
        ],
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
    listener.local_addr().expect("is known").port()
}

fn trainer(config: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trainer"));
    command.arg("run").arg(config).args(more).env_remove("RUST_BACKTRACE");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Processes that train one model.
struct Started(Vec<Child>);

/// How a process has ended, and what it has said.
#[derive(Debug)]
struct Ended {
    status: ExitStatus,
    told: String,
}

impl Started {
    fn new(by: By, world: usize, config: &Path, more: &[&str], set: &[(&str, &str)]) -> Self {
        let port = free_port();
        let start = |rank: usize| {
            let mut command = trainer(config, more);
            command.envs(variables(by, rank, world, port)).envs(set.iter().copied());
            command.spawn().expect("starts")
        };
        Self((0..world).map(start).collect())
    }

    fn kill(&mut self, rank: usize, signal: i32) {
        let process = rustix::process::Pid::from_child(&self.0[rank]);
        let signal = rustix::process::Signal::from_named_raw(signal).expect("a signal");
        rustix::process::kill_process(process, signal).expect("is there");
    }

    fn has_ended(&mut self, rank: usize) -> bool {
        self.0[rank].try_wait().expect("can be asked").is_some()
    }

    /// Waits until rank `rank` has ended, at most for so long.
    fn wait(&mut self, rank: usize, limit: Duration) {
        let begin = Instant::now();
        while !self.has_ended(rank) {
            assert!(begin.elapsed() < limit, "rank {rank} has not ended within {limit:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// How all have ended, which takes at most so long.
    fn end(mut self, limit: Duration) -> Vec<Ended> {
        let begin = Instant::now();
        (0..self.0.len()).for_each(|rank| {
            self.wait(rank, limit.saturating_sub(begin.elapsed()));
        });
        let ended = |mut child: Child| {
            let status = child.wait().expect("has ended");
            let mut told = String::new();
            child.stderr.take().expect("is piped").read_to_string(&mut told).expect("is text");
            Ended { status, told }
        };
        std::mem::take(&mut self.0).into_iter().map(ended).collect()
    }

    /// All end as they should.
    fn succeed(self) -> Vec<Ended> {
        let all = self.end(Duration::from_secs(300));
        all.iter().for_each(|ended| assert!(ended.status.success(), "{all:?}"));
        all
    }
}

/// A test that fails leaves no process behind.
impl Drop for Started {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A configuration in a folder of its own, with the data of all.
fn place(folder: &Path, name: &str) -> PathBuf {
    let place = folder.join(name);
    std::fs::create_dir(&place).expect("is made");
    support::write_config(&place, &folder.join("data"))
}

fn run_of(config: &Path) -> PathBuf {
    config.parent().expect("is in a folder").join("tiny")
}

/// What one process ends with that has so many devices.
fn on_devices(folder: &Path, name: &str, devices: usize, more: &[&str]) -> Result {
    let config = place(folder, name);
    let names: Vec<String> = (0..devices).map(|number| format!("cpu:{number}")).collect();
    let device = if devices == 1 { "cpu".to_owned() } else { names.join(",") };
    let more = [more, &["--device", &device]].concat();
    let output = trainer(&config, &more).output().expect("starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Result::of(&run_of(&config))
}

const GROUP: [&str; 2] = ["--set", "model.densenet.norm=\"group\""];
/// Batches that are shared out unevenly where they are the last of an epoch.
const LARGER: [&str; 2] = ["--set", "train.batch_size=6"];

#[test]
fn several_processes_end_with_the_bits_of_as_many_devices_whoever_starts_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let cases: [(By, usize, &[&str]); 3] =
        [(By::Torchrun, 4, &[]), (By::OpenMpi, 3, &GROUP), (By::Slurm, 2, &LARGER)];
    for (by, world, more) in cases {
        let expected = on_devices(folder.path(), &format!("devices-{world}"), world, more);
        let config = place(folder.path(), &format!("processes-{world}"));
        let all = Started::new(by, world, &config, more, &[]).succeed();
        Result::of(&run_of(&config))
            .assert_equals(&expected, &format!("{by:?}, {world} processes"));
        assert!(all[0].told.contains(&format!("rank 0 of {world}")), "{}", all[0].told);
        // Rank 0 alone speaks, and writes.
        for other in &all[1..] {
            assert_eq!(other.told, "");
        }
    }
}

const SHARDED: [&str; 2] = ["--set", "parallel.data.optimizer=\"sharded\""];

/// They save together, by steps or by the clock of rank 0, what devices save that each keep all of it.
#[test]
fn processes_with_shards_end_with_the_bits_of_devices_without() {
    let folder = tempfile::tempdir().expect("a folder");
    let often = ["--set", "run.save.every_minutes=1e-4", "--set", "run.save.every_steps=0"];
    let cases: [(By, usize, &[&str]); 2] = [(By::Torchrun, 4, &[]), (By::OpenMpi, 3, &often)];
    for (by, world, more) in cases {
        let expected = on_devices(folder.path(), &format!("devices-{world}"), world, &[]);
        let config = place(folder.path(), &format!("processes-{world}"));
        let more = [&SHARDED, more].concat();
        Started::new(by, world, &config, &more, &[]).succeed();
        Result::of(&run_of(&config))
            .assert_equals(&expected, &format!("{by:?}, {world} processes"));
    }
}

/// Weights by their names.
fn weights(config: &Path) -> BTreeMap<String, Vec<f32>> {
    let file = run_of(config).join("last/weights.safetensors");
    let tensors = trainer::model::weights::read(&file).expect("is read").tensors.into_iter();
    tensors.map(|tensor| (tensor.name, tensor.data)).collect()
}

fn assert_near(found: &Path, expected: &Path, what: &str) {
    let (found, expected) = (weights(found), weights(expected));
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    for (name, expected) in expected {
        for (found, expected) in found[&name].iter().zip(&expected) {
            assert!((found - expected).abs() < 1e-5, "{what}: {name}: {found} {expected}");
        }
    }
}

/// Plain steps: those of Adam make much of the last bits of gradients near 0.
const PLAIN: [&str; 2] = ["--set", "train.optimizer={ sgd = { lr = 0.01, momentum = 0.9 } }"];

#[test]
fn a_run_of_four_processes_that_any_is_asked_to_stop_goes_on_on_two_and_on_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let more = [&PLAIN[..], &["--set", "memory.micro_batch=1"]].concat();
    let whole = place(folder.path(), "whole");
    let one = [&PLAIN[..], &["--set", "memory.micro_batch=4"]].concat();
    let output = trainer(&whole, &one).output().expect("starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for (world, asked) in [(2, 3), (1, 0)] {
        let config = place(folder.path(), &format!("on-{world}"));
        let mut four = Started::new(By::OpenMpi, 4, &config, &more, &[]);
        let saved = run_of(&config).join("last");
        let begin = Instant::now();
        while !saved.exists() {
            assert!(begin.elapsed() < Duration::from_secs(120), "nothing is saved");
            std::thread::sleep(Duration::from_millis(2));
        }
        four.kill(asked, 15);
        for (rank, ended) in four.end(Duration::from_secs(60)).iter().enumerate() {
            assert_eq!(ended.status.code(), Some(143), "rank {rank}: {}", ended.told);
            assert_eq!(ended.told.contains("stopped by SIGTERM; the state is saved"), rank == 0);
        }
        let again = [&more[..], &["--resume"]].concat();
        match world {
            1 => {
                let output = trainer(&config, &again).output().expect("starts");
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            }
            _ => drop(Started::new(By::Torchrun, world, &config, &again, &[]).succeed()),
        }
        assert_near(&config, &whole, &format!("on {world}"));
    }
}

/// `mpirun` itself, where it is installed; `.ci/run` installs it.
#[test]
fn mpirun_starts_four_processes_that_train_as_four_devices() {
    let found = Command::new("mpirun").arg("--version").stdout(Stdio::null()).status();
    if !found.is_ok_and(|status| status.success()) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let expected = on_devices(folder.path(), "devices", 4, &[]);
    let config = place(folder.path(), "mpirun");
    let output = Command::new("mpirun")
        .args(["--oversubscribe", "--allow-run-as-root", "-n", "4"])
        .arg(env!("CARGO_BIN_EXE_trainer"))
        .arg("run")
        .arg(&config)
        .output()
        .expect("starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Result::of(&run_of(&config)).assert_equals(&expected, "mpirun -n 4");
}
