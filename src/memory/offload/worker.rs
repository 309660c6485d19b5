//! A thread that does what it is given in order.

use std::sync::mpsc::{Sender, channel};
use std::thread::{Builder, JoinHandle};

use super::OffloadError;

type Job = Box<dyn FnOnce() + Send>;

/// The thread; it ends when this is dropped and all is done.
#[derive(Debug)]
pub struct Worker {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts the thread, with this name.
    ///
    /// # Errors
    /// When the system has no more threads.
    pub fn start(name: &str) -> Result<Self, OffloadError> {
        let (jobs, given) = channel::<Job>();
        let run = move || given.into_iter().for_each(|job| job());
        let thread = Builder::new().name(name.to_owned()).spawn(run);
        let thread = thread.map_err(|error| OffloadError::Thread(error.to_string()))?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Gives it `job` to do behind those before. A job must not panic.
    pub fn give(&self, job: impl FnOnce() + Send + 'static) {
        if let Some(jobs) = &self.jobs {
            // The thread takes jobs for as long as this end is there.
            let _ = jobs.send(Box::new(job));
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
