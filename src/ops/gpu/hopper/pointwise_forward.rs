//! The 1×1 convolution of a dense layer with the norm before it.

use super::BOTTLENECK;
use crate::ops::gpu::channels_last::{ChannelsLast, Over, Partials};
use crate::ops::gpu::gpu::{Argument, Arguments};
use crate::ops::gpu::kernels::{Entry, Kernels, blocks, entry};
use crate::ops::gpu::norm::ChannelNorm;
use crate::ops::gpu::weights::Packed;
use crate::ops::gpu::{Sizes, Untouched};

/// All that a block can have: stages of the pipeline fill it.
const SHARED: u32 = 232_448;
pub(super) const DENSE_POINTWISE_FORWARD: Entry = entry!(
    "dense_pointwise_forward",
    384,
    SHARED,
    [TILES, CHANNELS, EXCHANGE, CHANNEL_NORM, HOPPER]
);

/// How a map's pixels are cut into tiles.
#[derive(Debug, Clone, Copy)]
struct Cut {
    /// Pixels that a tile can have.
    most: usize,
    /// What makes it so, as macros.
    shape: &'static [(&'static str, usize)],
    /// Pixels of a tile.
    tile: usize,
    /// Blocks, each of which has every so manieth tile.
    grid: usize,
}

/// Tiles of at most so many pixels.
pub(super) const SHAPES: [(usize, &[(&str, usize)]); 2] =
    [(64, &[("GROUPS_M", 1), ("GROUPS_N", 2)]), (128, &[("GROUPS_M", 2), ("GROUPS_N", 1)])];

impl Kernels {
    /// Every block gets as many tiles as any other, of as few pixels as that takes.
    fn cut(&self, pixels: usize, over: Over) -> Cut {
        let all = self.multiprocessors_for(over);
        let (most, shape) = SHAPES[usize::from(pixels > 64 * all)];
        let tile = blocks(pixels, all * blocks(pixels, all * most));
        Cut { most, shape, tile, grid: blocks(pixels, tile).min(all) }
    }

    /// How many rows of partial results [`Kernels::dense_pointwise_forward`] leaves of so many pixels.
    pub(in crate::ops::gpu) fn dense_pointwise_rows(&self, pixels: usize, over: Over) -> usize {
        self.cut(pixels, over).grid
    }

    /// Writes norm, ReLU and 1×1 convolution of `map` into `out`, and what it leaves of its channels into
    /// `part`, where that is wanted.
    pub(in crate::ops::gpu) fn dense_pointwise_forward(
        &self,
        map: &ChannelsLast,
        norm: &ChannelNorm<'_>,
        weight: &Packed,
        out: &ChannelsLast,
        part: Option<&Partials>,
    ) {
        let over = norm.affine.over;
        let pixels = map.pixels() / over.images();
        let Cut { most, shape, tile, grid } = self.cut(pixels, over);
        let sizes = Sizes::of([pixels, map.channels(), map.stride(), out.stride(), tile]);
        let sizes = sizes.int(part.is_some().into());
        let unwritten = Untouched(out.buffer());
        let part: &dyn Argument = part.map_or(&unwritten, |part| &part.buffer);
        let buffers: Arguments<'_> = &[map, &weight.buffer, out, part];
        let products = map.pixels() * map.channels() * BOTTLENECK;
        let (entry, grid) = (DENSE_POINTWISE_FORWARD, [grid, 1, over.images()]);
        self.multiply_behind(entry, (most, shape), grid, (buffers, sizes), norm, products);
    }
}
