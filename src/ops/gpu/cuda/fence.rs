//! Points in the work of a GPU.

use std::sync::Mutex;

use burn_cubecl::cubecl::future::{DynFut, block_on};
use burn_cubecl::cubecl::server::ServerError;

use crate::ops::gpu::Gpu;
use crate::ops::gpu::gpu::lock;

/// The end of all that a thread had launched on a GPU when this was made. What it launches later does not hold up
/// those who wait for it.
pub struct Fence(Mutex<Option<DynFut<Result<(), ServerError>>>>);

impl Gpu {
    /// The end of all that the current thread has launched so far.
    pub fn fence(&self) -> Fence {
        Fence(Mutex::new(Some(self.client().sync())))
    }

    /// Waits until everything launched so far has run.
    ///
    /// # Errors
    ///
    /// When the device has failed.
    pub fn wait(&self) -> Result<(), String> {
        self.fence().wait()
    }
}

impl Fence {
    /// Waits for it. Any thread may, and several at once.
    ///
    /// # Errors
    ///
    /// When the device has failed; the first to ask is told.
    pub fn wait(&self) -> Result<(), String> {
        let mut end = lock(&self.0);
        // Whoever comes later waits for the lock.
        let Some(end) = end.take() else { return Ok(()) };
        block_on(end).map_err(|error| error.to_string())
    }
}

impl std::fmt::Debug for Fence {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Fence").finish_non_exhaustive()
    }
}
