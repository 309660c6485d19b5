//! Hand-written kernels for GPUs.
//!
//! A [`Kernel`] is CUDA C++ text with the macros that choose its variant; a [`Gpu`] launches it on
//! [`Buffer`]s. Work is ordered by the stream: what a kernel writes, a later kernel or Burn operation
//! of the same thread reads. [`Kernels`] are all of those that a model needs at one precision;
//! `kernels/README*.md` say what each computes and how it is launched.
//!
//! A program of kernels runs on a device, or on a [`DryGpu`] that only counts: so it is known before
//! a device is opened what memory it takes, how much work it is and which kernels it launches. What
//! needs a device lies in `cuda`: there, buffers come from Burn's tensors and become tensors again
//! without a copy.

#[cfg(any(feature = "cuda", test))]
mod arena;
mod arrays;
mod bce;
mod buffer;
mod channel_parts;
mod channels_last;
mod conv;
#[cfg(feature = "cuda")]
mod cuda;
mod dropout;
mod dry;
mod element;
mod exchange;
mod conv2d;
mod gather;
mod given;
#[expect(clippy::module_inception, reason = "the GPU itself")]
mod gpu;
mod hopper;
mod kernel;
mod kernels;
mod layer;
mod map;
mod messages;
mod norm;
mod norm2d;
mod pointers;
mod pool;
mod residual;
#[cfg(any(feature = "cuda", test))]
mod shipped;
mod stem;
mod steps;
mod transition;
mod weights;

/// Numbers on their way from a GPU: there is none.
#[cfg(not(feature = "cuda"))]
#[derive(Debug)]
pub enum Reading {}

#[cfg(not(feature = "cuda"))]
impl Reading {
    /// Waits for them.
    ///
    /// # Errors
    ///
    /// None.
    pub fn wait(self) -> Result<Vec<f32>, String> {
        match self {}
    }
}

pub use arrays::{STEP_FACTOR, SUMS_OF_SQUARES};
pub use bce::{BCE, BceLabels};
pub use buffer::Buffer;
pub use channel_parts::ChannelParts;
pub use channels_last::{Affine, ChannelStats, ChannelsLast, GradientSums, Over, Partials};
pub use conv::Convolution;
pub use conv2d::{Conv2d, Nchw};
#[cfg(feature = "cuda")]
pub use cuda::{
    Carry, Compiler, Download, Downloads, Fence, Identity, Offered, Reading, Reserved, Room,
    Uploads, are_apart, hand_over_generated,
};
pub use dropout::dropout_mask;
pub use dry::{DryGpu, Work};
pub use element::Element;
pub use exchange::{Exchange, ExchangedSums, Exchanges, MOST_CARDS, Synced};
pub use gather::Padding;
pub use given::{Given, MOST_ROOM};
pub use gpu::{Argument, Gpu, Sizes, Untouched};
pub use kernel::Kernel;
pub use kernels::Kernels;
pub use layer::{Dropped, Normalised, NormedConvolution, ParameterGradients, Summed, Unchanged};
pub use map::{DeviceMap, KnownOfChannels};
pub use messages::{MessageShape, OfChannels, Rows, message_kernel};
pub use norm::{ChannelNorm, NormBuffers, Record};
pub use norm2d::{Norm2d, NormStatistics};
pub use residual::Shortcut;
pub use stem::{Images, SavedStem};
pub use steps::{ADAM_STEP, AdamStep, Factor, MOVING_AVERAGE, Moving, SGD_STEP, SgdStep, Stepped};
pub use weights::{Form, Packed, Packing, Segment};
