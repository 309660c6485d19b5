//! Trains image models that do not fit in GPU memory, from one TOML file.
//!
//! Data flow one way:
//!
//! ```text
//! config ──► plan ──► build ──► run ──► report
//! as written  resolved  devices   events   files and screens
//! ```
//!
//! [`config`] reads what the user wrote and keeps where each key stands, [`plan`] fills in every
//! default and makes every check without opening anything, [`build`] opens devices and files, [`run`]
//! is the loop, and [`report`] tells what happens. [`cli`] calls them in this order. [`sweep`] starts
//! the program once for each of many configurations and gathers what they took.
//!
//! Beside that pipeline stand the families, one thing a file, which never import it: [`data`] (from
//! files to batches in host memory), [`model`] (networks as chains of stages), [`loss`], [`metric`],
//! [`evaluate`] (what predictions are worth, and how sure that is), [`optim`], and [`memory`], which
//! decides everything about memory over the chain: a model is a list of [`memory::Stage`]s, each of
//! which runs forward and backward on its own, a [`memory::Schedule`] is a plain list of operations
//! over stages and micro-batches, and one executor runs any schedule. Checkpointing, accumulation and
//! offload are different schedules.
//!
//! [`train`] puts them together to a step, which is gradients, then update: a [`train::Replica`]
//! computes the gradients of its share of a batch, a [`train::Updater`] changes the weights, and
//! [`train::Inference`] is the model alone, for outputs without either.
//!
//! Parameters, gradients and the optimizer's state go by name and are flat, so that what acts on all
//! of them (clipping, saving, averaging) knows no shapes. All randomness comes from [`random`]
//! streams named by the seed, a purpose and a place, so that a resumed run draws what an
//! uninterrupted one would.

pub mod cli;
pub mod config;
pub mod plan;
pub mod build;
pub mod run;
pub mod report;
pub mod sweep;
#[cfg(test)]
mod torture;

pub mod data;
pub mod evaluate;
pub mod loss;
pub mod memory;
pub mod metric;
pub mod model;
pub mod ops;
pub mod optim;
pub mod parallel;
pub mod train;

#[cfg(test)]
#[path = "../tests/support/wave.rs"]
mod wave;

pub mod choice;
mod contain;
mod disk;
pub mod fault;
pub mod paths;
mod priority;
pub mod random;
pub mod screen;
