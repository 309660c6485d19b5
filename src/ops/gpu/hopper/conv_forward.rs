//! The 3×3 convolution of a dense layer with the norm before it.

use super::{BOTTLENECK, GROWTH};
use crate::ops::gpu::channels_last::{Affine, ChannelsLast, Partials};
use crate::ops::gpu::gpu::Arguments;
use crate::ops::gpu::kernels::{Entry, Kernels, blocks, entry};
use crate::ops::gpu::weights::Packed;
use crate::ops::gpu::{Convolution, Sizes};

/// Weights of nine taps; two tiles of 16 chunks of 185 pixels of 16 bytes, with two barriers each, and one barrier.
const SHARED: u32 = (9 * BOTTLENECK * GROWTH * 2 + 2 * (16 * 185 * 16 + 16) + 8) as u32;
const DENSE_CONV_FORWARD: Entry =
    entry!("dense_conv_forward", 768, SHARED, [TILES, CHANNELS, HOPPER]);

impl Kernels {
    /// Writes norm, ReLU and 3×3 convolution of `map` into `out`; returns what it leaves of its
    /// channels.
    pub(in crate::ops::gpu) fn dense_conv_forward(
        &self,
        convolution: &Convolution,
        map: &ChannelsLast,
        affine: &Affine,
        weight: &Packed,
        out: &ChannelsLast,
    ) -> Partials {
        let over = affine.over;
        let [batch, height, width] = convolution.over(over).size;
        let tiles = batch * blocks(height, 8) * blocks(width, 16);
        let grid = tiles.min(self.multiprocessors_for(over));
        let part = self.partials(grid, GROWTH, over);
        let sizes = Sizes::new().int(batch).int(height).int(width);
        let sizes = sizes.int(map.stride()).int(out.stride()).int(0);
        let buffers: Arguments<'_> =
            &[map, &affine.scale, &affine.shift, &weight.buffer, out, &part.buffer];
        let products = out.pixels() * GROWTH * 9 * BOTTLENECK;
        let kernel = self.get_over(DENSE_CONV_FORWARD, over);
        self.gpu.multiply(&kernel, [grid, 1, over.images()], buffers, &sizes, products);
        part
    }
}
