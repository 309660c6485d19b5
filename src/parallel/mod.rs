//! Several devices that compute one batch together with the numbers of one device: data parallelism, and a
//! [pipeline] of the model's stages.
//!
//! Every device has a thread of its own, and a replica of the model, or in a pipeline a part of it. Several copies of a pipeline are
//! a grid of devices. [`on_ranks()`] runs a piece of work on all of them and gives each a [`Seat`], which says where in the grid it
//! is; by its [`Member`]s devices exchange sums: of gradients, and of what BatchNorm normalises by. Sums are taken in the order of the devices, so that all of them hold the
//! same bits. Where one device fails, none waits for it. The devices may also be [`processes`], each with a
//! replica of its own.

mod config;
pub mod course;
mod group;
mod member;
mod pipeline;
pub mod processes;
mod reach;
mod seat;
mod shard;
mod shares;
mod on_ranks;

pub use config::{DataParallelConfig, ParallelConfig};
pub use group::Abandoned;
pub use member::{Across, Member};
pub use on_ranks::{Failure, GridExchanges, Threads, on_ranks, threads};
pub use pipeline::{
    Flow, Half, Link, PipelineConfig, PipelinePlace, PipelineSchedule, PipelineScheduleConfig,
    SplitConfig,
};
pub use reach::{P2P_DISABLE, is_p2p_disabled};
pub use seat::Seat;
pub use shard::{OptimizerPlacement, Shard};
pub use shares::{BatchNormOver, Part, shares};
