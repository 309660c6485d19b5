//! DenseNet's and ResNet's stages on hand-written CUDA kernels: the same parameters, names and arithmetic as the
//! layers that they stand for, forward and backward by hand.
//!
//! Each stage is a [`Program`] of kernels. On a GPU a `ProgramStage` runs it on tensors; where there is
//! none, a dry run finds out what it costs and which kernels it launches (`dry`).
//!
//! Maps stay in the GPU's layout and precision between them. In a DenseNet every channel's statistics
//! travel with it, computed once where the channel is written, and a block's maps lie in one buffer,
//! which the stage before it makes and writes its output into.

mod block;
mod dry;
mod layout;
mod mean;
mod plain_stem;
mod pool;
mod program;
mod residual;
#[cfg(feature = "cuda")]
mod stage;
mod stem;
#[cfg(test)]
mod tests;
mod transition;

#[cfg(feature = "cuda")]
use std::sync::Arc;

use block::Block;
pub(super) use dry::DryFused;
use dry::DryProgram;
use layout::{Layout, Records, Room, Tables, Values};
use mean::Mean;
use plain_stem::PlainStem;
use pool::NormPool;
use program::{Back, NormedInput, Prepared, Program, Run, Value, input_gradient};
use residual::Residual;
use stem::Stem;
use transition::Transition;

use super::Norm;
#[cfg(feature = "cuda")]
use super::fuse::StagePadding;
use super::fuse::{FusedStage, StageParameters};
use crate::memory::{DenseLayers, DryAllocator, Target};
#[cfg(feature = "cuda")]
use crate::memory::{Parameter, Precision, Stage};
#[cfg(feature = "cuda")]
use crate::ops::gpu::Kernels;

/// A program and what its norms are taken over, whatever it keeps.
pub(super) trait AnyProgram {
    /// A stage with these parameters on sizes alone, for inputs of `shape` (batch, channels, height and
    /// width), with memory from `memory`.
    fn dry(
        self: Box<Self>,
        parameters: &StageParameters,
        shape: [usize; 4],
        on: &Target,
        memory: &DryAllocator,
    ) -> Box<dyn DryFused>;

    /// The stage on a GPU, with parameters that may be elsewhere.
    #[cfg(feature = "cuda")]
    fn stage(
        self: Box<Self>,
        name: &str,
        on: (Kernels, &burn::tensor::Device),
        parameters: (Vec<Parameter>, Option<Arc<StagePadding>>),
    ) -> Box<dyn Stage>;
}

impl<P: Program> AnyProgram for (P, Norm) {
    fn dry(
        self: Box<Self>,
        parameters: &StageParameters,
        shape: [usize; 4],
        on: &Target,
        memory: &DryAllocator,
    ) -> Box<dyn DryFused> {
        Box::new(DryProgram::new(*self, parameters, shape, on, memory))
    }

    #[cfg(feature = "cuda")]
    fn stage(
        self: Box<Self>,
        name: &str,
        on: (Kernels, &burn::tensor::Device),
        parameters: (Vec<Parameter>, Option<Arc<StagePadding>>),
    ) -> Box<dyn Stage> {
        Box::new(stage::ProgramStage::new(name, on, parameters, *self))
    }
}

/// The program of a fused stage, which keeps of 1×1 convolutions' outputs what `dense_layers` says.
pub(super) fn program(fused: &FusedStage, dense_layers: DenseLayers) -> Box<dyn AnyProgram> {
    let keep = dense_layers;
    match fused.clone() {
        FusedStage::Stem { channels: [_, channels], room, labels, norm } => {
            Box::new((Stem { channels, room, labels }, norm))
        }
        FusedStage::PlainStem(conv, norm) => Box::new((PlainStem { conv }, norm)),
        FusedStage::DenseBlock { sizes, labels, dropout, norm } => {
            Box::new((Block { sizes, labels, dropout, keep }, norm))
        }
        FusedStage::Transition { channels: [_, channels], room, norm } => {
            Box::new((Transition { channels, room }, norm))
        }
        FusedStage::Residual(sizes, norm) => Box::new((Residual { sizes, keep }, norm)),
        FusedStage::NormPool { norm, .. } => Box::new((NormPool, norm)),
        FusedStage::Pool => Box::new((Mean, Norm::Batch)),
    }
}

/// The kernels that fused stages on `device` use; `None` on another device than a GPU, and where
/// parameters are to be held in 16 bits, which the kernels read in 32.
#[cfg(feature = "cuda")]
pub(super) fn kernels(device: &burn::tensor::Device, precision: Precision) -> Option<Kernels> {
    let gpu = crate::ops::gpu::Gpu::of(device).filter(|_| precision.fuses())?;
    Some(Kernels::new(gpu, precision.element()))
}
