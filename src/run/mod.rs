//! The loop: epochs, evaluation, early stopping, saving and resuming.

pub mod folder;
pub mod lock;
pub mod signals;
pub mod state;
