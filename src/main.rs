//! The `trainer` program: parses, calls the library, prints what went wrong, sets the exit code.

use std::process::ExitCode;

use mimalloc::MiMalloc;
use trainer::cli;
use trainer::memory::measure::Counting;
use trainer::screen::say_drawn;

// Batches of tens of megabytes come and go: the system's allocator gives each back and takes it
// anew, page by page, which costs more than to fill it. Counted, for what a run says of its memory.
#[global_allocator]
static ALLOCATOR: Counting<MiMalloc> = Counting::new(MiMalloc);

fn main() -> ExitCode {
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
