//! What can go wrong when something is moved off the device.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Something could not be moved off the device or back.
#[derive(Debug, Clone, thiserror::Error)]
pub enum OffloadError {
    /// No file can be made in the folder.
    #[error(
        "cannot make a file in {}, where `memory.offload.disk` is to put activations: {source}\nGive \
         an existing folder that can be written, as `path` under [memory.offload.disk].",
        folder.display()
    )]
    Open {
        /// The folder.
        folder: PathBuf,
        /// What the system says.
        source: Arc<io::Error>,
    },
    /// There is no space left.
    #[error(
        "the disk of {} is full: {bytes} bytes of activations more were to be put there, beside {held}\
         \nFree space, give a folder on another disk as `path` under [memory.offload.disk], or lower \
         `memory.micro_batch`.",
        folder.display()
    )]
    Full {
        /// The folder.
        folder: PathBuf,
        /// Bytes that were to be written.
        bytes: u64,
        /// Bytes in the file already.
        held: u64,
    },
    /// The file cannot be written.
    #[error("cannot write activations to the file in {}: {source}", folder.display())]
    Write {
        /// The folder.
        folder: PathBuf,
        /// What the system says.
        source: Arc<io::Error>,
    },
    /// The file cannot be read.
    #[error("cannot read activations back from the file in {}: {source}", folder.display())]
    Read {
        /// The folder.
        folder: PathBuf,
        /// What the system says.
        source: Arc<io::Error>,
    },
    /// The device did not copy.
    #[error("the device did not copy activations to or from the host: {0}")]
    Device(String),
    /// The thread that moves things is gone.
    #[error("the thread that moves activations off the device ended early: {0}")]
    Thread(String),
}
