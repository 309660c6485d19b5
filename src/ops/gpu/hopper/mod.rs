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

use super::{Kernel, Kernels};

/// Channels between the two convolutions of a layer that these kernels take.
const BOTTLENECK: usize = 128;
/// Channels that such a layer adds.
const GROWTH: usize = 32;

impl Kernels {
    /// Those of several cards.
    pub(super) fn hopper_of_several_cards(&self) -> Vec<Kernel> {
        let finish = pointwise_backward::DENSE_POINTWISE_FINISH;
        let finish = [conv_weight::DENSE_CONV_WEIGHT_SUM, finish];
        let mut kernels: Vec<Kernel> = finish.map(|entry| self.synced(entry)).into();
        if self.hopper() {
            let forward = pointwise_forward::SHAPES.map(|(most, shape)| {
                self.synced_variant(pointwise_forward::DENSE_POINTWISE_FORWARD, most, shape)
            });
            kernels.extend(forward);
            kernels.push(self.synced(conv_forward::DENSE_CONV_FORWARD));
        }
        kernels
    }

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
