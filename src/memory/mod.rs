//! The chain of stages, schedules over it, and the executor that runs them.

mod activation;
mod chain;
mod config;
pub mod executor;
mod gradients;
mod pack;
mod pass;
mod schedule;
mod stage;
mod traced;

pub use activation::{Activation, ActivationShape};
pub use chain::Chain;
pub use config::*;
pub use gradients::Gradients;
pub use pack::{Member, Pack, join_scalars, join_tensors, split_scalars, split_tensors};
pub use pass::{Pass, Purpose};
pub use schedule::{Operation, Schedule};
pub use stage::{Keep, Parameter, Saved, Stage, StageSpec, Statistics};
pub use traced::{Forward, Traced};
