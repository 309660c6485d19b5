//! What stages cost on hand-written kernels: the buffers that `model/fused` takes, in its order. Known
//! without a GPU, and in builds without CUDA.

mod densenet;
mod resnet;

pub(super) use densenet::{BlockCosts, PoolCosts, StemCosts, TransitionCosts};
pub(super) use resnet::{MeanCosts, PlainStemCosts, ResidualCosts};

use crate::memory::{Card, DryBuffer};

/// Blocks of a kernel that takes 128 pixels each.
fn rows(pixels: usize) -> usize {
    pixels.div_ceil(128)
}

/// What a kernel leaves that sums over so many pixels going back through a norm, and those sums.
fn norm_sums(card: &Card, pixels: usize, channels: usize) -> [DryBuffer; 2] {
    let rows = pixels.div_ceil(64).min(4 * card.multiprocessors());
    [card.partials(rows, channels), card.pairs(channels)]
}
