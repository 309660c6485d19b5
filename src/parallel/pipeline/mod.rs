//! A model whose stages lie on several devices: each has some of them in a row, its part, and micro-batches
//! go through the parts one after another.
//!
//! [`PipelineSchedule`] says in which order a device takes its micro-batches forward and back, a
//! [`PipelinePlace`] which of the devices it is. A schedule of operations
//! ([`Schedule`](crate::memory::Schedule)) is made of both, and [`Link`] carries activations and gradients
//! to the neighbours. Every part adds up the gradients of its micro-batches in their order, so that all
//! schedules and splits give the bits of one device that takes the same micro-batches.

mod config;
mod link;
mod order;

pub use config::{PipelineConfig, PipelineSchedule, PipelineScheduleConfig, SplitConfig};
pub use link::{Flow, Link};
pub use order::{Half, PipelinePlace};
