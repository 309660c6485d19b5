//! The backward pass of a dense layer's 1×1 convolution and of the norm before it.

use super::BOTTLENECK;
use crate::ops::gpu::Sizes;
use crate::ops::gpu::channels_last::{ChannelsLast, GradientSums, Over};
use crate::ops::gpu::exchange::pixels_of_all;
use crate::ops::gpu::gpu::Arguments;
use crate::ops::gpu::kernels::{Entry, Kernels, blocks, entry};
use crate::ops::gpu::layer::{NormedConvolution, ParameterGradients, Summed};
use crate::ops::gpu::norm::NormSums;

/// Pixels of a tile.
const PIXELS: usize = 64;
/// The most channels of one block.
const RANGE: usize = 128;
/// What a pixel costs a block that takes so many channels: the elements that it loads or stores.
const fn cost(channels: usize) -> usize {
    2 * BOTTLENECK + 3 * channels
}
/// Four stages of three tiles and two tiles of z, with their barriers.
const SHARED: u32 = (14 * PIXELS * RANGE * 2 + 4 * 24 + 2 * 8) as u32;
const DENSE_POINTWISE_BACKWARD: Entry =
    entry!("dense_pointwise_backward", 512, SHARED, [TILES, CHANNELS, HOPPER]);
pub(super) const DENSE_POINTWISE_FINISH: Entry =
    entry!("dense_pointwise_finish", 256, [EXCHANGE, NORM_SUMS]);

impl Kernels {
    /// What [`Kernels::pointwise_backward`] does, in one pass over the map and S.
    pub(in crate::ops::gpu) fn dense_pointwise_backward(
        &self,
        layer: NormedConvolution<'_>,
        gradient: Summed<'_>,
        parameters: ParameterGradients<'_>,
        (summed, sums): (&ChannelsLast, &GradientSums),
    ) {
        let NormedConvolution { weight, map, normalised, .. } = layer;
        let over = normalised.stats.over;
        let (pixels, channels) = (map.pixels() / over.images(), map.channels());
        let [splits, last] = self.pointwise_splits(pixels, channels, over);
        let grid = channels / RANGE * splits + last;
        let work = self.floats(over.images() * grid * RANGE * BOTTLENECK);
        let part = self.passing_partials(splits.max(last), channels, over);
        let Summed { data, map: z, .. } = gradient;
        let sizes = Sizes::of([pixels, channels, data.stride(), z.stride(), map.stride()]);
        let sizes = sizes.ints([summed.stride(), weight.row, splits, last]);
        let sizes = sizes.float(1.0 / pixels_of_all(normalised.synced, pixels) as f32);
        let behind: Arguments<'_> = &[summed, &work, &part.buffer];
        let read: Arguments<'_> = &[&weight.buffer, map];
        let buffers = [&gradient.arguments()[..], read, &normalised.arguments(), behind].concat();
        let kernel = self.get_over(DENSE_POINTWISE_BACKWARD, over);
        let products = 2 * map.pixels() * channels * BOTTLENECK;
        self.gpu.multiply(&kernel, [grid, 1, over.images()], &buffers, &sizes, products);

        let left =
            NormSums { part: &part, normalised, gradients: parameters.norm, sums, first: false };
        let sizes = Sizes::of([channels, splits, last, over.images()]);
        let buffers: Arguments<'_> = &[&work, parameters.weight];
        let grid = [channels, blocks(channels, 8)];
        self.finish_with_sums(DENSE_POINTWISE_FINISH, grid, buffers, sizes, left);
    }

    /// Blocks of each range of [`RANGE`] channels, and of the last range where it has fewer: as many as
    /// there are multiprocessors, or fewer where that gives no block more tiles.
    fn pointwise_splits(&self, pixels: usize, channels: usize, over: Over) -> [usize; 2] {
        let multiprocessors = self.multiprocessors_for(over);
        let (tiles, whole, rest) = (blocks(pixels, PIXELS), channels / RANGE, channels % RANGE);
        let even = |most: usize| blocks(tiles, blocks(tiles, most.clamp(1, tiles)));
        let all = cost(RANGE) * whole + if rest > 0 { cost(rest) } else { 0 };
        let splits = multiprocessors * cost(RANGE) / all;
        let left = multiprocessors.saturating_sub(whole * splits);
        [if whole > 0 { even(splits) } else { 0 }, if rest > 0 { even(left) } else { 0 }]
    }
}
