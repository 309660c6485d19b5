//! Work of which nothing is lost when it is cut off: a signal ends it within a second.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::signals::{Signal, Stop};
use crate::screen::say;

/// How often it is looked whether a signal has come.
const PAUSE: Duration = Duration::from_millis(20);
/// How long the work has to undo what it has begun.
const GRACE: Duration = Duration::from_millis(700);

/// While it lives, a signal that [`Stop`] notes ends the process, after what heeds the signal by itself has had
/// the time for that.
#[derive(Debug)]
pub struct SignalGuard {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl SignalGuard {
    /// Watches over work; `kept` says what becomes of it when it is cut off, as `nothing was changed`.
    ///
    /// Where no thread can be started, signals are only noted, as without it.
    pub fn over(stop: &Stop, kept: &'static str) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let (stop, ended) = (stop.clone(), Arc::clone(&over));
        let watching = move || {
            while !ended.load(Ordering::Relaxed) {
                if let Some(signal) = stop.requested() {
                    let begin = Instant::now();
                    while begin.elapsed() < GRACE {
                        if ended.load(Ordering::Relaxed) {
                            return;
                        }
                        thread::sleep(PAUSE);
                    }
                    end(signal, kept);
                }
                thread::park_timeout(PAUSE);
            }
        };
        let thread = thread::Builder::new().name("signals".to_owned()).spawn(watching);
        Self { over, thread: thread.ok() }
    }
}

impl Drop for SignalGuard {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// Ends the process as `signal` asks, with a word about what is `kept`. No destructor runs: threads that
/// compute are not waited for.
pub fn end(signal: Signal, kept: &str) -> ! {
    say(format_args!("stopped by {}; {kept}", signal.name()));
    signal_hook::low_level::exit(signal.exit_code().into())
}
