//! The `trainer` program: parses, calls the library, prints what went wrong, sets the exit code.

use std::process::ExitCode;

use clap::Parser;
use trainer::cli::{self, Cli};

// Batches of tens of megabytes come and go: the system's allocator gives each back and takes it
// anew, page by page, which costs more than to fill it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::install_panic_hook();
    let kind = match cli::caught(|| cli::execute(Cli::parse())) {
        Ok(Ok(())) => return ExitCode::SUCCESS,
        Ok(Err(failure)) => {
            eprintln!("{failure}");
            failure.kind()
        }
        // The hook has told the user.
        Err(kind) => kind,
    };
    ExitCode::from(kind.exit_code())
}
