//! SIGINT, SIGTERM and SIGHUP end a run after it has saved.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

#[cfg(target_os = "linux")]
use signal_hook::consts::SIGHUP;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// A signal that asks the run to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGINT: Ctrl-C.
    Interrupt,
    /// SIGTERM: `kill`, a batch system, a shutdown.
    Terminate,
    /// SIGHUP: the terminal is gone.
    Hangup,
}

impl Signal {
    /// Each of them, the first asked for first.
    pub const ALL: [Self; 3] = [Self::Interrupt, Self::Terminate, Self::Hangup];

    /// The program's exit code after it has saved: 128 and the signal's number, as shells have it.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Interrupt => 130,
            Self::Terminate => 143,
            Self::Hangup => 129,
        }
    }

    /// `SIGINT`, `SIGTERM` or `SIGHUP`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
            Self::Hangup => "SIGHUP",
        }
    }
}

/// Whether the run was asked to end. Clones share the answer.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    /// Which of [`Signal::ALL`] have come.
    noted: [Arc<AtomicBool>; Signal::ALL.len()],
    /// Signals have the effect again that they have in other programs.
    released: Arc<AtomicBool>,
}

/// What notes signals for whoever asks for as long as the process lasts.
static INSTALLED: OnceLock<Stop> = OnceLock::new();
/// What notes them while a [`Noting`] lives.
static NOTING: OnceLock<Option<Stop>> = OnceLock::new();

impl Stop {
    /// From now on the first SIGINT or SIGTERM is only noted here, and a second one of the same
    /// kind ends the process at once. SIGHUP is noted however often it comes, as the system and a shell
    /// both send it when a terminal is lost; under `nohup` it is ignored as before.
    ///
    /// # Errors
    /// When the system refuses the handlers.
    pub fn install() -> io::Result<Self> {
        let stop = Self::handling()?;
        // The first is the one of the process; there are more in tests only.
        let _ = INSTALLED.set(stop.clone());
        if let Some(Some(before)) = NOTING.get() {
            before.released.store(false, Ordering::Relaxed);
        }
        Ok(stop)
    }

    fn handling() -> io::Result<Self> {
        let stop = Self::default();
        for (number, signal) in [(SIGINT, Signal::Interrupt), (SIGTERM, Signal::Terminate)] {
            let noted = stop.noted(signal);
            // Handlers run in this order, so the first signal finds its flag unset.
            flag::register_conditional_default(number, Arc::clone(noted))?;
            flag::register_conditional_default(number, Arc::clone(&stop.released))?;
            flag::register(number, Arc::clone(noted))?;
        }
        #[cfg(target_os = "linux")]
        if !is_ignored(SIGHUP) {
            flag::register_conditional_default(SIGHUP, Arc::clone(&stop.released))?;
            flag::register(SIGHUP, Arc::clone(stop.noted(Signal::Hangup)))?;
        }
        Ok(stop)
    }

    /// The signal that asked the run to end, if one did; to be asked after every step.
    pub fn requested(&self) -> Option<Signal> {
        Signal::ALL.into_iter().find(|signal| self.noted(*signal).load(Ordering::Relaxed))
    }

    /// Asks the run to end, as `signal` would.
    pub fn request(&self, signal: Signal) {
        self.noted(signal).store(true, Ordering::Relaxed);
    }

    fn noted(&self, signal: Signal) -> &Arc<AtomicBool> {
        let [interrupt, terminate, hangup] = &self.noted;
        match signal {
            Signal::Interrupt => interrupt,
            Signal::Terminate => terminate,
            Signal::Hangup => hangup,
        }
    }
}

/// While it lives, signals are noted where they would have ended the process; then they end it again.
#[derive(Debug)]
pub struct Noting {
    stop: Stop,
    /// Whether nobody else notes them.
    alone: bool,
}

impl Noting {
    /// From now on signals are noted; `None` where the system refuses that.
    pub fn begin() -> Option<Self> {
        if let Some(stop) = INSTALLED.get() {
            return Some(Self { stop: stop.clone(), alone: false });
        }
        let stop = NOTING.get_or_init(|| Stop::handling().ok()).clone()?;
        stop.noted.iter().for_each(|noted| noted.store(false, Ordering::Relaxed));
        stop.released.store(false, Ordering::Relaxed);
        Some(Self { stop, alone: true })
    }

    /// The signal that has come.
    pub fn requested(&self) -> Option<Signal> {
        self.stop.requested()
    }
}

impl Drop for Noting {
    fn drop(&mut self) {
        self.stop.released.store(self.alone, Ordering::Relaxed);
    }
}

/// Whether the process was started with this signal ignored, as `nohup` does.
#[cfg(target_os = "linux")]
fn is_ignored(number: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (number - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_requested_until_something_is() {
        let stop = Stop::default();
        assert_eq!(stop.requested(), None);
        stop.clone().request(Signal::Terminate);
        assert_eq!(stop.requested(), Some(Signal::Terminate));
    }

    #[cfg(unix)]
    mod raised {
        use std::os::unix::process::ExitStatusExt;
        use std::process::{Command, Stdio};

        use super::*;

        const CHILD: &str = "TRAINER_TEST_SIGNAL";

        /// Not a test by itself: what the child process of the test below runs.
        #[test]
        fn the_child_notes_one_signal_and_dies_of_the_second() {
            let Ok(number) = std::env::var(CHILD) else { return };
            let number: i32 = number.parse().expect("a number");
            let stop = Stop::install().expect("installs");
            assert_eq!(stop.requested(), None);
            signal_hook::low_level::raise(number).expect("raises");
            let noted = stop.requested().expect("is noted");
            assert_eq!(i32::from(noted.exit_code()), 128 + number);
            signal_hook::low_level::raise(number).expect("raises");
            unreachable!("the second signal ends the process");
        }

        #[test]
        fn the_first_signal_is_noted_and_the_second_ends_the_process() {
            for number in [SIGINT, SIGTERM] {
                let child = "run::signals::tests::raised::\
                             the_child_notes_one_signal_and_dies_of_the_second";
                let status = Command::new(std::env::current_exe().expect("this program"))
                    .args(["--exact", child])
                    .env(CHILD, number.to_string())
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .status()
                    .expect("starts");
                assert_eq!(status.signal(), Some(number), "{status}");
            }
        }
    }
}
