//! Kernels on an NVIDIA GPU: launched through CubeCL, over the memory of Burn's tensors.

mod ahead;
mod buffer;
mod device;
mod conv2d;
mod launchable;
mod map;
mod norm2d;
mod peers;
mod squares;
mod transfer;

pub use ahead::Compiler;
pub(super) use buffer::DeviceMemory;
pub use buffer::Identity;
pub(super) use device::Cuda;
pub(super) use launchable::Identity as KernelIdentity;
pub(super) use peers::Peers;
pub use transfer::{Download, Transfers};
