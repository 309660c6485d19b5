//! `trainer run` as one of several processes that a launcher has started.

use std::any::Any;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{env, fs, process, thread};

use serde_json::json;

use crate::build::{find_devices, share_cores};
use crate::cli::{Failure, Kind, colours};
use crate::config;
use crate::fault::Fault;
use crate::parallel::processes::{Elsewhere, JoinError, Launch, Processes};
use crate::plan::DevicePlan;
use crate::run::RunError;
use crate::screen::{be_quiet, say_drawn, tell_progress};

/// Where torchrun looks for what a process has failed with.
const ERROR_FILE: &str = "TORCHELASTIC_ERROR_FILE";
/// How long this process may go on when another one has failed.
const LATE: Duration = Duration::from_secs(20);
/// How long rank 0 may take to say that it has failed with the same.
const SAME: Duration = Duration::from_secs(2);
/// As long as any run.
const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// The launch that this process belongs to, where there are others.
pub(super) fn launch() -> Result<Option<Launch>, Failure> {
    let named = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    let variables = env::vars_os().filter_map(named).collect();
    Launch::find(&variables).map_err(Failure::configuration)
}

/// The device of this process of `launch`, and what is set in place of the devices that the configuration at `path`
/// names: one for each process, called by its rank.
pub(super) fn device(
    launch: &Launch,
    path: &Path,
    set: &[String],
) -> Result<(DevicePlan, String), Failure> {
    let given = config::load(path, set)?.config.device.device;
    let cards = find_devices().cards.map_err(|reason| reason.to_string()).map(|cards| {
        let usable = cards.into_iter().filter(|card| card.details.is_ok());
        usable.map(|card| card.index).collect()
    });
    let device = DevicePlan::of_process(&given, launch, &cards)
        .map_err(|Fault { message, help, .. }| Failure::configuration(message).with_help(help))?;
    let kind = match device {
        DevicePlan::Cpu(_) => "cpu",
        DevicePlan::Auto | DevicePlan::Cuda(_) => "cuda",
    };
    let names: Vec<String> = (0..launch.world).map(|rank| format!("{kind}:{rank}")).collect();
    Ok((device, format!("device.use={}", toml::Value::from(names))))
}

/// Does `work` as one of the processes of `launch`. Where any of them fails, all end.
pub(super) fn execute(
    launch: &Launch,
    work: impl FnOnce(&Processes) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let processes = Processes::join(launch, env!("CARGO_PKG_VERSION")).map_err(|error| {
        let failure = unjoined(error);
        write_error_file(&failure.render(false));
        of_rank(launch.rank, failure)
    })?;
    match processes.is_first() {
        true => tell_progress(&launch.told()),
        false => be_quiet(),
    }
    share_cores(processes.sharing_cores());
    watch(processes.clone());
    match panic::catch_unwind(AssertUnwindSafe(|| work(&processes))) {
        Ok(Ok(())) => Ok(()),
        // All were asked to stop.
        Ok(Err(failure)) if processes.has_left() => {
            Err(if processes.is_first() { failure } else { failure.told() })
        }
        Ok(Err(failure)) => Err(ended(&processes, failure)),
        Err(payload) => {
            processes.fail(&panicked(&*payload), Kind::Other.exit_code());
            processes.leave(false);
            panic::resume_unwind(payload)
        }
    }
}

/// Waits until rank 0 has written everything: launchers end the others when one process has ended.
pub(super) fn end_together(processes: &Processes) -> Result<(), Failure> {
    processes.share("end", processes.is_first().then(Vec::new)).map_err(RunError::from)?;
    processes.leave(true);
    Ok(())
}

fn unjoined(error: JoinError) -> Failure {
    let kind = match &error {
        JoinError::Secret { .. } | JoinError::Disagree(_) => Kind::Configuration,
        _ => Kind::Other,
    };
    Failure::new(kind, error)
}

/// What this process ends with, when the others have been told.
fn ended(processes: &Processes, failure: Failure) -> Failure {
    let rank = processes.rank();
    if let Some(elsewhere) = failure.elsewhere() {
        // Who has told it itself has written it too.
        if elsewhere.lost {
            write_error_file(&elsewhere.message);
        }
        let failure = caused(rank, elsewhere);
        processes.leave(false);
        return failure;
    }
    let told = failure.render(false);
    let told = told.strip_prefix("error: ").unwrap_or(&told);
    write_error_file(told);
    processes.fail(told, failure.kind().exit_code());
    // All have the same configuration and the same data: one message is enough.
    let same = rank > 0
        && processes
            .failure_of_first_within(SAME)
            .is_some_and(|first| first.message.ends_with(told));
    processes.leave(false);
    if same { failure.told() } else { of_rank(rank, failure) }
}

/// What this process tells of the failure of another one.
fn caused(rank: usize, elsewhere: &Elsewhere) -> Failure {
    let kind = Kind::of_code(Some(i32::from(elsewhere.code)));
    let message = match rank {
        0 => elsewhere.message.clone(),
        _ => elsewhere.message.lines().next().unwrap_or_default().to_owned(),
    };
    of_rank(rank, Failure::new(kind, message))
}

/// Rank 0 speaks for all; what others say has their rank before it.
fn of_rank(rank: usize, failure: Failure) -> Failure {
    if rank == 0 { failure } else { failure.of_rank(rank) }
}

/// Ends this process where another one has failed and this one does not come to hear of it, in a long step or
/// waiting for a disk. What is saved stays as it is.
fn watch(processes: Processes) {
    thread::spawn(move || {
        let Some(elsewhere) = processes.failure_within(FOREVER) else { return };
        thread::sleep(LATE);
        if elsewhere.lost {
            write_error_file(&elsewhere.message);
        }
        let failure = caused(processes.rank(), &elsewhere);
        say_drawn(&failure.render(colours()));
        process::exit(i32::from(failure.kind().exit_code()));
    });
}

fn panicked(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("(no message)");
    format!("the program has a defect and cannot go on: {text}")
}

/// Writes what this process has failed with where torchrun asks for it, in its form
/// (`torch.distributed.elastic.multiprocessing.errors`).
fn write_error_file(message: &str) {
    let Some(file) = env::var_os(ERROR_FILE).filter(|file| !file.is_empty()) else { return };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let told = json!({
        "message": {
            "message": message,
            // What torchrun shows of it.
            "extraInfo": { "py_callstack": message, "timestamp": now.to_string() },
        }
    });
    // It is told on standard error too.
    let _ = fs::write(file, told.to_string());
}
