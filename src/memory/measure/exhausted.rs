//! What becomes of the process where the host's memory is exhausted.

use std::fs::File;
use std::io::{self, Cursor, Write};
use std::os::fd::AsFd;

use signal_hook::consts::SIGABRT;
use signal_hook::low_level;

use super::counting::PROCESS;

/// What can be done, below the error.
const ADVICE: &str = "\n  = help: lower `train.batch_size` or `data.image.size`, or give the process more \
                      memory; `trainer plan CONFIG` says what a step takes\n  = help: what a run saved is \
                      kept; the same command with --resume goes on from it\n";

/// From now on no more than `most` bytes are given out, where that is known, and an allocation that fails ends
/// the process with `code` and advice.
///
/// Rust ends a process whose allocation has failed with SIGABRT, after `memory allocation of N bytes failed`; an
/// allocator must not unwind.
///
/// # Errors
/// When the system refuses the handler.
pub fn end_where_exhausted(most: Option<u64>, code: u8) -> io::Result<()> {
    PROCESS.limit_to(most.unwrap_or(0));
    // Of its own, since the lock of the other may be held by a thread that is gone.
    let stderr = File::from(io::stderr().as_fd().try_clone_to_owned()?);
    let end = move || {
        let Some(bytes) = PROCESS.refused() else { return };
        let mut text = [0; 512];
        let mut cursor = Cursor::new(&mut text[..]);
        let _ = write!(cursor, "error: out of memory: {bytes} bytes were asked for{ADVICE}");
        let length = cursor.position() as usize;
        let _ = (&stderr).write_all(&text[..length]);
        low_level::exit(code.into());
    };
    // SAFETY: the handler reads an atomic, writes into an array on its stack and to a file, and exits: it
    // allocates nothing and takes no lock.
    #[expect(unsafe_code, reason = "it says in words why the process ends")]
    unsafe {
        low_level::register(SIGABRT, end)?;
    }
    Ok(())
}
