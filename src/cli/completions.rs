//! `trainer completions`.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::{Cli, Failure, output};

/// Prints the script with which a shell completes commands and flags
#[derive(Debug, Args)]
#[command(after_long_help = "\
Where each shell looks for it:
  trainer completions bash > ~/.local/share/bash-completion/completions/trainer
  trainer completions zsh > ~/.zfunc/_trainer       (with `fpath+=~/.zfunc` before `compinit` in ~/.zshrc)
  trainer completions fish > ~/.config/fish/completions/trainer.fish
  trainer completions powershell >> $PROFILE
  trainer completions elvish >> ~/.config/elvish/rc.elv")]
pub struct Completions {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

/// Prints the script.
pub fn execute(completions: &Completions) -> Result<(), Failure> {
    let mut script = Vec::new();
    let mut command = Cli::command();
    clap_complete::generate(completions.shell, &mut command, "trainer", &mut script);
    output::print(&String::from_utf8(script).map_err(Failure::other)?)
}
