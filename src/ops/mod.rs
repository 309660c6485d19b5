//! Operations that Burn lacks or is slow at: [`reference`] defines each in plain Burn operations, and
//! `cuda` runs it in hand-written kernels.

pub mod reference;

#[cfg(feature = "cuda")]
pub mod cuda;
