//! Kernels on an NVIDIA GPU: launched through CubeCL, over the memory of Burn's tensors.

mod ahead;
mod arena;
mod broadcast;
mod buffer;
mod copies;
mod device;
mod conv2d;
mod fence;
mod launchable;
mod map;
mod norm2d;
mod outgoing;
mod peers;
mod relay;
mod squares;
mod staging;
mod transfer;

pub use ahead::{Compiler, hand_over_generated};
pub use arena::Reserved;
pub(super) use broadcast::Broadcast;
pub(super) use buffer::DeviceMemory;
pub use buffer::Identity;
use copies::CopyStream;
pub(super) use device::Cuda;
pub use fence::Fence;
pub(super) use launchable::Identity as KernelIdentity;
pub(super) use outgoing::Outgoing;
pub use peers::{Offered, are_apart};
pub(super) use peers::{Peers, let_reach};
pub use relay::Carry;
pub(super) use relay::Relay;
pub use transfer::{Download, Downloads, Reading, Room, Uploads};
