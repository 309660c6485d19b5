//! `--with-parent PID`: a process that ends with the sweep that started it.

use clap::Args;

use super::Failure;

/// The process that started this one, where it may not outlive that.
#[derive(Debug, Default, Args)]
pub struct Parent {
    /// Ends when the process with this number, which started it, ends, however that does
    #[arg(long = "with-parent", value_name = "PID", hide = true)]
    process: Option<u32>,
}

impl Parent {
    /// Asks for this process to be ended when its parent is.
    ///
    /// # Errors
    /// When the parent has ended already.
    pub fn watch(&self) -> Result<(), Failure> {
        #[cfg(target_os = "linux")]
        self.process.map(end_with).transpose()?;
        Ok(())
    }
}

/// Asks for this process to be ended when its parent, of number `parent`, does.
#[cfg(target_os = "linux")]
fn end_with(parent: u32) -> Result<(), Failure> {
    use rustix::process::{Signal, getppid, set_parent_process_death_signal};
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(Failure::other)?;
    // It may have ended before it was asked for.
    let now = getppid().map_or(0, |pid| pid.as_raw_nonzero().get().unsigned_abs());
    match now == parent {
        true => Ok(()),
        false => Err(Failure::other(std::io::Error::other(format!(
            "process {parent}, which started this one, has ended"
        )))),
    }
}
