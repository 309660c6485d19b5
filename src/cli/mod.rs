//! The command line; one file a subcommand.
//!
//! A subcommand is a struct that clap fills and a function `execute` that calls the library and
//! prints. Standard output carries what was asked for (a resolved configuration, a schema, a list);
//! progress and errors go to standard error.

mod bench;
mod check;
mod colour;
mod compare;
mod completions;
mod data;
mod devices;
mod error;
mod eval;
mod export;
mod import;
mod init;
mod list;
mod man;
mod named_devices;
mod output;
mod overrides;
mod panic;
mod parent;
mod plan;
mod report;
mod predict;
mod run;
mod scale;
mod schema;
mod sweep;
mod trace;
mod trained;
mod whole;

use std::io::Write;
use std::path::Path;

use clap::{Parser, Subcommand};

use crate::build::{self, BuildError};
use crate::config::{self, Config, Loaded, Source};
use crate::fault::Fault;
use crate::plan::Plan;
use crate::screen::say;

pub use colour::colours;
pub use error::{Failure, Kind};
pub use panic::{caught, install_panic_hook};

/// The command line of `trainer`.
#[derive(Debug, Parser)]
#[command(
    name = "trainer",
    version,
    about = "Trains image models that do not fit in GPU memory, from one TOML file",
    long_about = "Trains image models that do not fit in GPU memory, from one TOML file\n\n\
                  The file names the data, the model, its heads, the optimizer and how a step fits \
                  in memory.",
    after_help = "\
First steps:
  trainer init FOLDER                  looks at your data and writes trainer.toml, a configuration
  trainer check trainer.toml           shows it with its defaults filled in
  trainer run trainer.toml             trains what it describes
  trainer run configs/quickstart.toml  in the project's folder: draws images and trains on them
  trainer help run                     explains all of `run`

Exit codes:
  0 done   2 wrong configuration or command line   3 wrong or missing data   4 out of memory
  5 saved state that cannot be used   6 GPU lost   129, 130, 143 stopped by a signal
  1 anything else",
    arg_required_else_help = true,
    subcommand_required = true,
    propagate_version = true,
    max_term_width = 100
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Shows no progress, only warnings, errors and the results of the command
    ///
    /// With it, `run` ends with one line in place of its table.
    #[arg(long, short, global = true, display_order = 1000)]
    quiet: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    Init(init::Init),
    Check(check::Check),
    Plan(plan::Command),
    Run(run::Run),
    List(list::List),
    Eval(eval::Eval),
    Compare(compare::Compare),
    Report(report::Report),
    Predict(predict::Predict),
    Import(import::Import),
    Export(export::Export),
    Sweep(sweep::Sweep),
    Trace(trace::Trace),
    Bench(bench::Bench),
    Data(data::Data),
    Devices(devices::Devices),
    Schema(schema::Schema),
    Completions(completions::Completions),
    Man(man::Man),
}

/// The plan of the configuration at `path` with the changes of `--set`.
fn planned(path: &Path, set: &[String]) -> Result<Plan, Failure> {
    planned_for(path, set, |_| Ok(()))
}

/// The same, for what needs more than a right configuration.
fn planned_for(
    path: &Path,
    set: &[String],
    check: impl Fn(&Plan) -> Result<(), Fault>,
) -> Result<Plan, Failure> {
    located_for(path, set, check).map(|(plan, _)| plan)
}

/// The same, and where it was written.
fn located_for(
    path: &Path,
    set: &[String],
    check: impl Fn(&Plan) -> Result<(), Fault>,
) -> Result<(Plan, Source), Failure> {
    located_as(path, set, |_| {}, check)
}

/// The same of a configuration that `change` has changed.
fn located_as(
    path: &Path,
    set: &[String],
    change: impl Fn(&mut Config),
    check: impl Fn(&Plan) -> Result<(), Fault>,
) -> Result<(Plan, Source), Failure> {
    let mut loaded = config::load(path, set)?;
    scale::fill_in(&mut loaded);
    let Loaded { mut config, source } = loaded;
    named_devices::name_devices(&mut config.device.device);
    change(&mut config);
    let plan = crate::plan::plan(config).and_then(|plan| check(&plan).map(|()| plan));
    let plan = plan.map_err(|fault| source.error(fault))?;
    // Before anything asks for threads.
    build::join_threads(&plan.devices);
    Ok((plan, source))
}

/// Says what in `plan` its author may not expect.
fn warn(plan: &Plan) {
    plan.warnings().iter().for_each(|warning| say(format_args!("warning: {warning}")));
}

/// What ends the program where what `source` describes cannot be opened: a budget that nothing fits
/// is shown where it was written.
fn unopened(error: BuildError, source: &Source) -> Failure {
    let fault = match &error {
        BuildError::NothingFits(unfit) => unfit.fault(),
        _ => None,
    };
    match fault {
        Some(fault) => Failure::new(Kind::OutOfMemory, source.error(fault)),
        None => error.into(),
    }
}

/// From now on memory that is exhausted ends the program with its exit code and advice.
pub fn guard_memory() {
    let code = Kind::OutOfMemory.exit_code();
    // Without it, the system's word is all there is.
    let _ = crate::memory::measure::end_where_exhausted(build::host_memory(), code);
}

/// The command line as it was written; nothing where it asks for help or the version, which are shown
/// then. A wrong one ends the program.
///
/// # Errors
/// When help or version cannot be written.
pub fn parse() -> Result<Option<Cli>, Failure> {
    match Cli::try_parse() {
        Ok(cli) => Ok(Some(cli)),
        // To standard error: a message that cannot be written is left out.
        Err(error) if error.use_stderr() => error.exit(),
        Err(asked) => {
            let printed = asked.print().and_then(|()| std::io::stdout().flush());
            output::written(printed).map(|()| None)
        }
    }
}

/// Does what the command line asks for.
///
/// # Errors
/// Whatever ends it, with its exit code.
pub fn execute(cli: Cli) -> Result<(), Failure> {
    if cli.quiet {
        crate::screen::be_quiet();
    }
    match cli.command {
        Command::Init(init) => init::execute(&init),
        Command::Check(check) => check::execute(&check),
        Command::Plan(plan) => plan::execute(&plan),
        Command::Run(run) => run::execute(run),
        Command::List(list) => list::execute(&list),
        Command::Eval(eval) => eval::execute(&eval),
        Command::Compare(compare) => compare::execute(&compare),
        Command::Report(report) => report::execute(&report),
        Command::Predict(predict) => predict::execute(predict),
        Command::Import(import) => import::execute(&import),
        Command::Export(export) => export::execute(&export),
        Command::Sweep(sweep) => sweep::execute(&sweep),
        Command::Trace(trace) => trace::execute(&trace),
        Command::Bench(bench) => bench::execute(&bench),
        Command::Data(data) => data::execute(&data),
        Command::Devices(devices) => devices::execute(&devices),
        Command::Schema(schema) => schema::execute(&schema),
        Command::Completions(completions) => completions::execute(&completions),
        Command::Man(man) => man::execute(&man),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_argument_and_subcommand_says_what_it_does() {
        fn look(command: &clap::Command) {
            let about = command.get_about().expect("a text").to_string();
            let long = command.get_long_about().map_or(about.clone(), ToString::to_string);
            assert_eq!(long.lines().next(), Some(about.as_str()), "-h and --help of `{command}`");
            assert!(!long.contains('\\'), "an escape in the help of `{command}`: {long}");
            for argument in command.get_arguments() {
                let help = argument.get_help().map_or(String::new(), ToString::to_string);
                assert!(!help.is_empty(), "`{argument}` of `{command}` has no text");
                let long = argument.get_long_help().map_or(String::new(), ToString::to_string);
                let escapes = help.contains('\\') || long.contains('\\');
                assert!(!escapes, "an escape in the help of `{argument}` of `{command}`");
            }
            command.get_subcommands().for_each(look);
        }
        look(&Cli::command());
    }
}
