//! `trainer man`.

use std::fs;
use std::path::PathBuf;

use clap::{Args, CommandFactory};

use super::{Cli, Failure, output};

/// Prints the manual page, or writes those of all commands into a folder
///
/// The pages say what `--help` says. Those of commands are called `trainer-run`, `trainer-data-inspect`
/// and so on.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  trainer man | man -l -
  trainer man --out ~/.local/share/man/man1   then `man trainer-run` shows the page of `run`")]
pub struct Man {
    /// The folder to write a page for each command into, as `trainer.1`, `trainer-run.1` and so on
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Prints the page or writes all.
pub fn execute(man: &Man) -> Result<(), Failure> {
    let Some(folder) = &man.out else {
        let mut page = Vec::new();
        clap_mangen::Man::new(Cli::command()).render(&mut page).map_err(Failure::other)?;
        return output::print(&String::from_utf8(page).map_err(Failure::other)?);
    };
    let written = fs::create_dir_all(folder);
    let written = written.and_then(|()| clap_mangen::generate_to(Cli::command(), folder));
    let name = folder.display();
    written
        .map_err(|error| Failure::other(format!("cannot write the pages into {name}: {error}")))?;
    output::print(&format!("a page for each command is in {name}"))
}
