//! Kernels that are written for Hopper: for 2-byte elements those of a dense layer of the sizes that every DenseNet of
//! torchvision has and of convolutions of multiples of 64 channels; and products of 32-bit numbers.

mod conv_backward;
mod conv_forward;
mod conv_weight;
mod pointwise_backward;
mod pointwise_forward;
mod ring;
mod split_product;

pub(super) use ring::Ring;

use super::Kernels;
use super::kernels::Entry;

/// Kernels that finish a gradient and put together what is left of a norm, among several cards.
pub(super) const FINISHING_SYNCED: [Entry; 2] =
    [conv_weight::DENSE_CONV_WEIGHT_SUM_SYNCED, pointwise_backward::DENSE_POINTWISE_FINISH_SYNCED];

/// Channels between the two convolutions of a layer that these kernels take.
const BOTTLENECK: usize = 128;
/// Channels that such a layer adds.
const GROWTH: usize = 32;

impl Kernels {
    /// Whether the kernels written for Hopper take a layer with so many channels between its convolutions
    /// that adds so many.
    pub(super) fn dense_on_hopper(&self, bottleneck: usize, growth: usize) -> bool {
        self.hopper() && (bottleneck, growth) == (BOTTLENECK, GROWTH)
    }

    /// Whether those of the 1×1 convolution of a layer take `input` channels and write `bottleneck`. They were
    /// checked on multiples of 32, which all of torchvision's DenseNets have.
    pub(super) fn pointwise_on_hopper(&self, input: usize, bottleneck: usize) -> bool {
        self.hopper() && bottleneck == BOTTLENECK && input.is_multiple_of(32)
    }
}
