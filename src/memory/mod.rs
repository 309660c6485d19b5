//! The chain of stages, schedules over it, and the executor that runs them.

mod activation;
mod chain;
mod config;
pub mod executor;
pub mod fault;
mod footprint;
mod gradients;
mod device_lost;
mod dry;
mod dry_step;
pub mod measure;
mod module;
pub mod offload;
mod out_of_memory;
mod pages;
mod bucket;
mod pass;
mod placement;
mod policy;
pub mod probe;
mod relay;
mod schedule;
mod simulate;
mod speed;
mod stage;
pub mod statistics;
mod strategy;

pub use activation::{Activation, ActivationShape};
pub use bucket::{
    Bucket, BucketMember, in_f32, join_scalars, join_tensors, split_scalars, split_tensors,
};
pub use chain::Chain;
pub use config::*;
pub use device_lost::DeviceLost;
pub use dry::{DryAllocator, DryBuffer, bytes_in_rows};
pub use dry_step::{DryFlow, DryStage, DrySteps, FootprintStage};
pub use footprint::{Cpu, Footprint, Target};
pub use gradients::{Gradients, add_gradient};
pub use module::module;
pub use out_of_memory::{OutOfMemory, catch_out_of_memory, check_allocated, in_payload};
pub use pages::{BufferLifetime, Pages, StepOperation};
pub use pass::{Pass, Purpose};
pub use placement::{Place, Placement, UnderWay};
pub use policy::TradeOff;
pub use relay::{DrivenDevice, MessageTime, seconds_together};
pub use schedule::{Action, Aside, CheckpointPlan, Operation, PipelinePart, Schedule};
pub use simulate::{Simulation, Speed, Surroundings, simulate};
pub use stage::{Keep, Parameter, Saved, Stage, StageSpec, Statistics};
pub use strategy::Strategy;
