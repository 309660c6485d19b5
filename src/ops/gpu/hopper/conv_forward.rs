//! The 3×3 convolution of a dense layer with the norm before it.

use super::{BOTTLENECK, GROWTH};
use crate::ops::gpu::channels_last::{ChannelsLast, Partials};
use crate::ops::gpu::gpu::Arguments;
use crate::ops::gpu::kernels::{Entry, Kernels, blocks, entry};
use crate::ops::gpu::norm::ChannelNorm;
use crate::ops::gpu::weights::Packed;
use crate::ops::gpu::{Convolution, Sizes};

/// Weights of nine taps; two tiles of 16 chunks of 185 pixels of 16 bytes, with two barriers each; one barrier; two vectors
/// of channels.
const SHARED: u32 =
    (9 * BOTTLENECK * GROWTH * 2 + 2 * (16 * 185 * 16 + 16) + 16 + 2 * BOTTLENECK * 4) as u32;
pub(super) const DENSE_CONV_FORWARD: Entry =
    entry!("dense_conv_forward", 768, SHARED, [TILES, CHANNELS, EXCHANGE, CHANNEL_NORM, HOPPER]);

impl Kernels {
    /// Writes norm, ReLU and 3×3 convolution of `map` into `out`; returns what it leaves of its
    /// channels.
    pub(in crate::ops::gpu) fn dense_conv_forward(
        &self,
        convolution: &Convolution,
        map: &ChannelsLast,
        norm: &ChannelNorm<'_>,
        weight: &Packed,
        out: &ChannelsLast,
    ) -> Partials {
        let over = norm.affine.over;
        let [batch, height, width] = convolution.over(over).size;
        let tiles = batch * blocks(height, 8) * blocks(width, 16);
        let grid = tiles.min(self.multiprocessors_for(over));
        let part = self.telling_partials(grid, GROWTH, over);
        let sizes = Sizes::of([batch, height, width, map.stride(), out.stride(), 0]);
        let buffers: Arguments<'_> = &[map, &weight.buffer, out, &part.buffer];
        let products = out.pixels() * GROWTH * 9 * BOTTLENECK;
        let grid = [grid, 1, over.images()];
        self.multiply_behind(DENSE_CONV_FORWARD, (0, &[]), grid, (buffers, sizes), norm, products);
        part
    }
}
