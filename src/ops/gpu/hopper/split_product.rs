//! Products of matrices of 32-bit numbers, by tensor cores that multiply their bfloat16 parts.

use crate::ops::Window;
use crate::ops::gpu::channels_last::ChannelsLast;
use crate::ops::gpu::gpu::Arguments;
use crate::ops::gpu::kernels::{Entry, Kernels, blocks, entry};
use crate::ops::gpu::weights::Packed;
use crate::ops::gpu::{Buffer, Convolution, Sizes};

/// Eight stages of 32 rows of the second factor, in three parts of 16 bits each; two barriers each.
const SHARED: u32 = 8 * (3 * 2 * 128 * 32 + 16);
const SPLIT_PRODUCT: Entry = entry!("split_product", 384, SHARED, [TILES, HOPPER]);
/// Rows and columns of a tile of the result.
const TILE: usize = 128;
/// What a tile takes of the common dimension at a time.
const DEPTH: usize = 32;

/// Into how many parts a sum is split, and the length of one.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Shares {
    splits: usize,
    per: usize,
}

impl Shares {
    /// All in one.
    fn one(length: usize) -> Self {
        Self { splits: 1, per: length.next_multiple_of(DEPTH) }
    }

    /// As few as keep so many multiprocessors about as busy as can be with so many tiles of the result.
    fn new(tiles: usize, length: usize, multiprocessors: usize) -> Self {
        let steps = blocks(length, DEPTH);
        // Steps of the block that has most, what the ends of its tiles cost, and adding up the parts.
        let cost = |splits: usize| {
            let rounds = blocks(tiles * splits, multiprocessors);
            40 * rounds * (blocks(steps, splits) + 4) + splits * tiles
        };
        let most = steps.clamp(1, multiprocessors);
        let splits = (1..=most).min_by_key(|splits| cost(*splits)).unwrap_or(1);
        let per = DEPTH * blocks(steps, splits);
        Self { splits: blocks(length, per), per }
    }
}

impl Kernels {
    /// Whether [`Kernels::split_product`] takes the products of a convolution of these maps: 32-bit numbers on a
    /// Hopper card, pixels by themselves, channels in whole vectors.
    pub(in crate::ops::gpu) fn splits_products(
        &self,
        convolution: &Convolution,
        maps: [&ChannelsLast; 2],
    ) -> bool {
        self.hopper_splits() && convolution.window == Window::PIXEL && self.chunked(&maps) == 1
    }

    /// Writes `map·weightᵀ` into `out`: a row of `weight` is what one channel of `out` is made of.
    pub(in crate::ops::gpu) fn split_product(
        &self,
        map: &ChannelsLast,
        weight: &Packed,
        out: &ChannelsLast,
    ) {
        let (rows, columns, length) = (out.pixels(), out.channels(), map.channels());
        let Shares { per, splits } = Shares::one(length);
        let sizes = Sizes::of([rows, columns, length, map.stride(), weight.row, out.stride(), per]);
        let sizes = sizes.int(splits);
        let grid = (blocks(rows, TILE) * blocks(columns, TILE)).min(self.multiprocessors);
        let kernel = self.variant(SPLIT_PRODUCT, 0, &[("COLUMNS", 0)]);
        let buffers: Arguments<'_> = &[map, &weight.buffer, out];
        self.gpu.multiply(&kernel, [grid, 1, 1], buffers, &sizes, rows * columns * length);
    }

    /// The sum over pixels of the products of each channel of `gradient` with each of `map`, in parts: how
    /// many, and `[parts, channels of gradient, channels of map]`.
    pub(in crate::ops::gpu) fn split_product_over_pixels(
        &self,
        gradient: &ChannelsLast,
        map: &ChannelsLast,
    ) -> (usize, Buffer) {
        let (rows, columns, length) = (gradient.channels(), map.channels(), map.pixels());
        let tiles = blocks(rows, TILE) * blocks(columns, TILE);
        let Shares { splits, per } = Shares::new(tiles, length, self.multiprocessors);
        let work = self.floats(splits * rows * columns);
        let sizes = Sizes::of([rows, columns, length, gradient.stride(), map.stride(), columns]);
        let sizes = sizes.ints([per, splits]);
        let grid = (tiles * splits).min(self.multiprocessors);
        let kernel = self.variant(SPLIT_PRODUCT, 1, &[("COLUMNS", 1)]);
        let buffers: Arguments<'_> = &[gradient, map, &work];
        self.gpu.multiply(&kernel, [grid, 1, 1], buffers, &sizes, rows * columns * length);
        (splits, work)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_a_sum_has_something_to_add() {
        for tiles in [1, 2, 7, 42, 131, 132, 133, 1000] {
            for length in [1, 31, 32, 33, 1000, 59_392, 409_600] {
                let Shares { splits, per } = Shares::new(tiles, length, 132);
                assert!(per.is_multiple_of(DEPTH), "{tiles} tiles, {length}: {per}");
                assert!((splits - 1) * per < length && length <= splits * per);
            }
        }
    }

    #[test]
    fn parts_keep_all_multiprocessors_busy() {
        assert_eq!(Shares::new(42, 59_392, 132).splits, 3);
        assert_eq!(Shares::new(1, 409_600, 132).splits, 132);
        assert_eq!(Shares::new(1000, 64, 132).splits, 1);
    }
}
