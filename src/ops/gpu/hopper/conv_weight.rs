//! The gradient of the weight of a dense layer's 3×3 convolution, with the norm before it.

use super::{BOTTLENECK, GROWTH};
use crate::ops::gpu::channels_last::ChannelsLast;
use crate::ops::gpu::gpu::Arguments;
use crate::ops::gpu::kernels::{Entry, Kernels, blocks, entry};
use crate::ops::gpu::norm::NormSums;
use crate::ops::gpu::{Buffer, Convolution, Sizes};

/// Six tiles of 10 rows of 8 pixels with half the channels, and of 12 rows of 10 of the gradient; two barriers
/// each.
const SHARED: u32 = (6 * (10 * 8 * BOTTLENECK + 12 * 10 * GROWTH * 2 + 16)) as u32;
const DENSE_CONV_WEIGHT: Entry =
    entry!("dense_conv_weight", 512, SHARED, [TILES, CHANNELS, HOPPER]);
pub(super) const DENSE_CONV_WEIGHT_SUM: Entry =
    entry!("dense_conv_weight_sum", 128, [EXCHANGE, NORM_SUMS]);
/// Blocks of the second kernel that put together what is left of the norm.
const OF_NORM: usize = BOTTLENECK / 4;
/// Pairs of channels and outputs that a block of the second kernel adds up.
const SUMMED: usize = 256;

/// How the pixels are shared out.
#[derive(Debug, PartialEq)]
struct Shares {
    /// Parts of the sum; two blocks have one each for half of the channels.
    splits: usize,
    /// Rows of a tile.
    rows: usize,
}

impl Shares {
    /// Of images of this size on so many multiprocessors.
    fn new([batch, height, width]: [usize; 3], multiprocessors: usize) -> Self {
        let tiles = |rows: usize| batch * blocks(width, 8) * blocks(height, rows);
        let splits = (multiprocessors / 2).clamp(1, tiles(10));
        // Pairs of rows that a split has at most, and what its tiles cost besides.
        let cost = |rows: usize| blocks(tiles(rows), splits) * (rows.min(height + 1) / 2 + 1);
        let rows = (1..=5).rev().map(|pairs| 2 * pairs).min_by_key(|rows| cost(*rows));
        Self { splits, rows: rows.unwrap_or(2) }
    }
}

impl Kernels {
    /// Writes the gradient of the weight of [`Kernels::dense_conv_forward`], `[output, input, 3, 3]`, and puts together what
    /// is `left` of the norm in front of it.
    pub(in crate::ops::gpu) fn dense_conv_weight(
        &self,
        convolution: &Convolution,
        map: &ChannelsLast,
        gradient: &ChannelsLast,
        weight_gradient: &Buffer,
        left: NormSums<'_>,
    ) {
        let affine = left.normalised.affine;
        let over = affine.over;
        let size @ [batch, height, width] = convolution.over(over).size;
        let Shares { splits, rows } = Shares::new(size, self.multiprocessors_for(over));
        let weights = 9 * BOTTLENECK * GROWTH;
        let parts = self.floats(over.images() * splits * weights);
        let sizes = Sizes::of([batch, height, width, map.stride(), gradient.stride(), rows]);
        let buffers: Arguments<'_> = &[map, &affine.scale, &affine.shift, gradient, &parts];
        let products = gradient.pixels() * weights;
        let kernel = self.get_over(DENSE_CONV_WEIGHT, over);
        self.gpu.multiply(&kernel, [2 * splits, 1, over.images()], buffers, &sizes, products);
        let sizes = Sizes::of([over.images() * splits, left.part.rows]);
        let buffers: Arguments<'_> = &[&parts, weight_gradient];
        let grid = [weights / SUMMED, OF_NORM];
        self.finish_with_sums(DENSE_CONV_WEIGHT_SUM, grid, buffers, sizes, left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_split_has_tiles_of_an_even_number_of_rows() {
        for size in
            [[64, 80, 80], [64, 40, 40], [64, 10, 10], [3, 17, 23], [2, 1, 1], [8, 500, 500]]
        {
            let Shares { splits, rows } = Shares::new(size, 132);
            assert!((2..=10).contains(&rows) && rows.is_multiple_of(2), "{size:?}: {rows} rows");
            let tiles = size[0] * blocks(size[1], rows) * blocks(size[2], 8);
            assert!((1..=tiles).contains(&splits), "{size:?}: {splits} splits of {tiles} tiles");
        }
    }
}
