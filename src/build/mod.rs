//! From a plan to a run: the only place that opens devices and files.

mod device;

pub use device::*;
