//! A panic is a defect of the program: the user gets a short message and where to report it.
//!
//! Three kinds of panics are none: Burn has no other way to say that a card is out of memory, or lost, and the standard
//! library and Rayon have none to say that the system starts no more threads.

use std::any::Any;
use std::backtrace::Backtrace;
use std::panic::{self, UnwindSafe};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{env, thread};

use super::{Failure, Kind};
use crate::memory::{DeviceLost, OutOfMemory, in_payload};
use crate::screen::say;

/// Where defects are reported; from the package's `repository`, else in words.
const REPORT: &str = match option_env!("CARGO_PKG_REPOSITORY") {
    Some(address) if !address.is_empty() => address,
    _ => "the place you have the program from",
};

/// A panic often breaks other threads, whose panics say nothing new: only the first is told. It ends the
/// process, so both are of the process, however many replicas it has.
static TOLD: AtomicBool = AtomicBool::new(false);
static MEANING: OnceLock<Kind> = OnceLock::new();

/// What panics say where the system starts no thread: of `std::thread`, and of Rayon for its threads.
const NO_THREADS: [&str; 2] = ["failed to spawn thread", "ThreadPoolBuildError"];

/// Makes the first panic print a short message: what happened, where in the program, and what to
/// do. A backtrace follows only where `RUST_BACKTRACE` asks for one.
pub fn install_panic_hook() {
    let backtrace = env::var("RUST_BACKTRACE").is_ok_and(|value| value != "0");
    panic::set_hook(Box::new(move |info| {
        let text = text(info.payload());
        if let Some(kind) = meaning(info.payload()) {
            // The first counts.
            let _ = MEANING.set(kind);
        }
        if !TOLD.swap(true, Ordering::SeqCst) || backtrace {
            let place = info.location().map(ToString::to_string).unwrap_or_default();
            let thread = thread::current();
            say(message(text, &place, thread.name().unwrap_or("unnamed")));
        }
        if backtrace {
            say(Backtrace::force_capture());
        }
    }));
}

/// Runs `program`.
///
/// # Errors
/// Where it panicked, what that means; the hook has told the user by then.
pub fn caught(
    program: impl FnOnce() -> Result<(), Failure> + UnwindSafe,
) -> Result<Result<(), Failure>, Kind> {
    panic::catch_unwind(program).map_err(|payload| {
        MEANING.get().copied().or_else(|| meaning(&*payload)).unwrap_or(Kind::Other)
    })
}

/// What a panic means that is no defect.
fn meaning(payload: &(dyn Any + Send)) -> Option<Kind> {
    match DeviceLost::in_text(text(payload)) {
        Some(_) => Some(Kind::DeviceLost),
        None => in_payload(payload).map(|_| Kind::OutOfMemory),
    }
}

fn message(text: &str, place: &str, thread: &str) -> String {
    // Burn's errors carry backtraces below their first paragraph.
    if let Some(lost) = DeviceLost::in_text(text) {
        return format!("error: {lost}\n  = help: {}", DeviceLost::HELP);
    }
    let text = text.split("\nBacktrace").next().unwrap_or(text).trim_end();
    if OutOfMemory::in_text(text).is_some() {
        return format!(
            "error: out of memory: {text}\n  = help: lower `train.batch_size` or \
             `data.image.size`, or end what else uses the card"
        );
    }
    if NO_THREADS.iter().any(|told| text.contains(told)) {
        let why = text.split_once("message: \"").and_then(|(_, rest)| rest.split('"').next());
        let why = why.unwrap_or(text);
        return format!(
            "error: the system starts no more threads ({why})\n  = help: allow more (`ulimit -u` and `-v`, the limit of \
             processes of a container or job), or lower `data.workers`\n  = help: what a run saved is kept; the \
             same command with --resume goes on from it"
        );
    }
    format!(
        "error: the program has a defect and cannot go on: {text}\n  (trainer {}, {place}, thread \
         {thread})\n  = help: what a run saved is kept; the same command with --resume goes on \
         from it\n  = help: please report this message, with the configuration, to {REPORT}",
        env!("CARGO_PKG_VERSION"),
    )
}

fn text(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or("(no message)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_defect_names_its_place_and_where_to_report_it() {
        let shown = message("index out of bounds\nBacktrace:\n 0: main", "src/a.rs:3:5", "loader");
        assert!(shown.starts_with("error: the program has a defect"), "{shown}");
        assert!(shown.contains("index out of bounds\n  (trainer "), "{shown}");
        assert!(shown.contains("src/a.rs:3:5, thread loader"), "{shown}");
        assert!(shown.contains("please report"), "{shown}");
    }

    #[test]
    fn memory_that_is_exhausted_is_no_defect() {
        let shown = message("out of device memory allocating 512 bytes\n", "a.rs:1:1", "main");
        assert!(shown.contains("lower `train.batch_size`"), "{shown}");
        assert!(!shown.contains("defect"), "{shown}");
    }

    #[test]
    fn a_lost_card_is_no_defect() {
        let text = "called `Result::unwrap()` on an `Err` value: cuStreamSynchronize failed with status 214";
        let shown = message(text, "a.rs:1:1", "main");
        assert!(shown.starts_with("error: the GPU is lost: its memory has an error"), "{shown}");
        assert!(shown.contains("--resume") && !shown.contains("defect"), "{shown}");
    }

    #[test]
    fn threads_that_are_refused_are_no_defect() {
        let text = "failed to spawn thread: Os { code: 11, kind: WouldBlock, message: \"Resource \
                    temporarily unavailable\" }";
        let shown = message(text, "a.rs:1:1", "main");
        let expected =
            "error: the system starts no more threads (Resource temporarily unavailable)\n";
        assert!(shown.starts_with(expected) && shown.contains("`ulimit -u`"), "{shown}");
    }

    #[test]
    fn a_panic_is_caught_with_its_meaning() {
        let kind = |text: &'static str| {
            caught(|| panic::resume_unwind(Box::new(text))).map(|_| ()).expect_err("panics")
        };
        assert_eq!(kind("index out of bounds"), Kind::Other);
        assert_eq!(kind("CUDA_ERROR_ILLEGAL_ADDRESS"), Kind::DeviceLost);
        assert_eq!(kind("out of device memory allocating 8 bytes"), Kind::OutOfMemory);
        assert!(matches!(caught(|| Ok(())), Ok(Ok(()))));
    }
}
