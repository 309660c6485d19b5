//! Which threads get the cores first.

/// What Linux calls niceness: such a thread gets a tenth of the time of one that computes, where both want the same core.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 10;

/// Lets other threads have the cores first, now that this one prepares what is needed later. The threads that launch a GPU's
/// kernels are milliseconds ahead of it: where they wait for a core that long, it stands still.
///
/// Where the system has no such thing for single threads, nothing happens.
pub(crate) fn come_second() {
    #[cfg(target_os = "linux")]
    // `None` is this thread alone. All that a refusal costs is time.
    let _ = rustix::process::setpriority_process(None, NICENESS);
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_comes_second_alone() {
        let niceness = || rustix::process::getpriority_process(None).expect("is known");
        let before = niceness();
        let second = std::thread::spawn(move || {
            come_second();
            niceness()
        });
        assert_eq!(second.join().expect("ends"), before.max(NICENESS));
        assert_eq!(niceness(), before);
    }
}
