//! The `trainer` program: parses, calls the library, prints what went wrong, sets the exit code.

use std::ffi::{c_int, c_long};
use std::process::ExitCode;

use mimalloc::MiMalloc;
use trainer::cli;
use trainer::memory::measure::Counting;
use trainer::screen::say_drawn;

// Batches of tens of megabytes come and go: the system's allocator gives each back and takes it
// anew, page by page, which costs more than to fill it. Counted, for what a run says of its memory.
#[global_allocator]
static ALLOCATOR: Counting<MiMalloc> = Counting::new(MiMalloc);

#[expect(unsafe_code, reason = "mimalloc's C interface")]
unsafe extern "C" {
    /// Of mimalloc: sets an option that the environment does not set.
    fn mi_option_set_default(option: c_int, value: c_long);
}

/// `mi_option_purge_delay`: milliseconds after which freed memory goes back to the system.
const PURGE_DELAY: c_int = 15;

/// A step frees and asks for the same hundreds of megabytes; on a CPU it may take longer than the second that
/// mimalloc waits. A sixth of the time went into pages that the system clears again.
fn keep_freed_memory() {
    // SAFETY: sets a number of the allocator's while there is no other thread that could read it.
    #[expect(unsafe_code, reason = "mimalloc's C interface")]
    unsafe {
        mi_option_set_default(PURGE_DELAY, 60_000);
    }
}

fn main() -> ExitCode {
    keep_freed_memory();
    cli::install_panic_hook();
    cli::guard_memory();
    let kind = match cli::caught(|| cli::parse()?.map_or(Ok(()), cli::execute)) {
        Ok(Ok(())) => return ExitCode::SUCCESS,
        Ok(Err(failure)) => {
            let told = failure.render(cli::colours());
            if !told.is_empty() {
                say_drawn(&told);
            }
            failure.kind()
        }
        // The hook has told the user.
        Err(kind) => kind,
    };
    ExitCode::from(kind.exit_code())
}
