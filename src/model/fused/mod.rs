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
use dry::{DryProgram, DryRun};
use layout::{Layout, Records, Room, Tables, Values};
use mean::Mean;
use plain_stem::PlainStem;
use pool::NormPool;
use program::{Back, Program, Run, Value, input_gradient};
use residual::Residual;
use stem::Stem;
use transition::Transition;

#[cfg(feature = "cuda")]
use super::fuse::StagePadding;
use super::fuse::{FusedStage, StageParameters};
use crate::memory::{DenseLayers, DryAllocator, DryStage, Footprint, Target};
#[cfg(feature = "cuda")]
use crate::memory::{Parameter, Precision, Stage};
#[cfg(test)]
use crate::ops::gpu::ExchangedSums;
use crate::ops::gpu::Kernel;
#[cfg(feature = "cuda")]
use crate::ops::gpu::Kernels;

/// A program, whatever it keeps.
pub(super) trait AnyProgram {
    /// What a stage with these parameters costs for an input of `shape`: batch, channels, height and
    /// width.
    fn footprint(&self, parameters: &StageParameters, shape: [usize; 4], on: &Target) -> Footprint;

    /// The kernels that it launches in training and in evaluation.
    fn kernels(&self, parameters: &StageParameters, shape: [usize; 4], on: &Target) -> Vec<Kernel>;

    /// The stage in whole steps on sizes alone, with memory from `memory`.
    fn dry(
        self: Box<Self>,
        parameters: &StageParameters,
        shape: [usize; 4],
        on: &Target,
        memory: &DryAllocator,
    ) -> Box<dyn DryStage>;

    /// See [`DryRun::of_two_cards`].
    #[cfg(test)]
    fn of_two_cards(
        &self,
        parameters: &StageParameters,
        shape: [usize; 4],
        on: &Target,
        rows: &ExchangedSums,
        back: bool,
    ) -> Vec<Kernel>;

    /// The stage on a GPU, with parameters that may be elsewhere.
    #[cfg(feature = "cuda")]
    fn stage(
        self: Box<Self>,
        name: &str,
        on: (Kernels, &burn::tensor::Device),
        parameters: (Vec<Parameter>, Option<Arc<StagePadding>>),
    ) -> Box<dyn Stage>;
}

impl<P: Program> AnyProgram for P {
    fn footprint(&self, parameters: &StageParameters, shape: [usize; 4], on: &Target) -> Footprint {
        DryRun::new(self, parameters, on).footprint(shape)
    }

    fn kernels(&self, parameters: &StageParameters, shape: [usize; 4], on: &Target) -> Vec<Kernel> {
        DryRun::new(self, parameters, on).kernels(shape)
    }

    fn dry(
        self: Box<Self>,
        parameters: &StageParameters,
        shape: [usize; 4],
        on: &Target,
        memory: &DryAllocator,
    ) -> Box<dyn DryStage> {
        Box::new(DryProgram::new(*self, parameters, shape, on, memory))
    }

    #[cfg(test)]
    fn of_two_cards(
        &self,
        parameters: &StageParameters,
        shape: [usize; 4],
        on: &Target,
        rows: &ExchangedSums,
        back: bool,
    ) -> Vec<Kernel> {
        DryRun::new(self, parameters, on).of_two_cards(shape, rows, back)
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
    match fused.clone() {
        FusedStage::Stem { channels: [_, channels], room, labels, norm } => {
            Box::new(Stem { channels, room, labels, norm })
        }
        FusedStage::PlainStem(conv, norm) => Box::new(PlainStem { conv, norm }),
        FusedStage::DenseBlock { sizes, labels, dropout, norm } => {
            Box::new(Block { sizes, labels, dropout, norm, keep: dense_layers })
        }
        FusedStage::Transition { channels: [_, channels], room, norm } => {
            Box::new(Transition { channels, room, norm })
        }
        FusedStage::Residual(sizes, norm) => Box::new(Residual { sizes, norm, keep: dense_layers }),
        FusedStage::NormPool { norm, .. } => Box::new(NormPool { norm }),
        FusedStage::Pool => Box::new(Mean),
    }
}

/// The kernels that fused stages on `device` use; `None` on another device than a GPU, and where
/// parameters are to be held in 16 bits, which the kernels read in 32.
#[cfg(feature = "cuda")]
pub(super) fn kernels(device: &burn::tensor::Device, precision: Precision) -> Option<Kernels> {
    let gpu = crate::ops::gpu::Gpu::of(device).filter(|_| precision.fuses())?;
    Some(Kernels::new(gpu, precision.element()))
}
