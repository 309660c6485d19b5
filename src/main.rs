//! The `trainer` program: parses, calls the library, prints what went wrong, sets the exit code.

use std::process::ExitCode;

use clap::Parser;
use trainer::cli::{self, Cli};

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
