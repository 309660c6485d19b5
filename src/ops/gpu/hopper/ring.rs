//! Convolutions whose tiles some warps copy, into a ring of stages, while others multiply.

use crate::ops::gpu::Kernel;
use crate::ops::gpu::channels_last::{ChannelsLast, Over};
use crate::ops::gpu::kernels::{
    CHANNELS, CONV, Entry, GEMM, HOPPER, Kernels, RING, SWIZZLED, TILES, blocks, entry,
};

/// Three stages of 64 channels of 128 rows and 128 columns, or four of 64 columns, behind the rows' places.
const ROWS: u32 = 3072 + 3 * (128 + 128) * 128;
/// Three stages more.
const MORE: u32 = 3 * (128 + 128) * 128;
/// The sums of each warp, behind the stages.
const SUMS: u32 = 64 * 128;
/// Three stages of 64 pixels of 128 by 128 channels, or more of fewer.
const COLUMNS: u32 = 2048 + 3 * (128 + 128) * 128;

const HEADERS: &[&str] = &[TILES, CHANNELS, GEMM, CONV, HOPPER, SWIZZLED, RING];
const CONV_FORWARD: Entry = entry!("hopper_conv_forward", 320, ROWS, HEADERS);
const CONV_BACKWARD_INPUT: Entry = entry!("hopper_conv_backward_input", 320, ROWS, HEADERS);
const LAYER_FORWARD: Entry = entry!("hopper_layer_forward", 320, ROWS, HEADERS);
const LAYER_BACKWARD: Entry = entry!("hopper_layer_backward", 320, ROWS + SUMS, HEADERS);
const CONV_WEIGHT: Entry = entry!(
    "hopper_conv_weight",
    320,
    COLUMNS,
    [TILES, CHANNELS, GEMM, CONV, HOPPER, SWIZZLED, RING_COLUMNS]
);
const LAYER_WEIGHT: Entry =
    entry!("hopper_layer_weight", 320, COLUMNS, [TILES, CHANNELS, HOPPER, SWIZZLED, RING_COLUMNS]);

/// Taps of a kernel at most: a bit each.
const TAPS: usize = 32;
/// Channels of a step, and pixels of one of a weight's gradient.
const STEP: usize = 64;

/// Products of a convolution that these kernels have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::ops::gpu) enum Ring {
    /// The output.
    Forward,
    /// The gradient of the input.
    BackwardInput,
    /// The output of a 1×1 convolution behind a norm and ReLU.
    LayerForward,
    /// The gradient of the input of a norm and ReLU before the convolution.
    LayerBackward,
}

/// The kernel of a block that has a multiprocessor for itself: twice as many stages, and two warps more that
/// copy.
const fn alone(entry: Entry) -> Entry {
    Entry { threads: entry.threads + 64, shared: entry.shared + MORE, ..entry }
}

impl Kernels {
    /// Whether the kernels written for Hopper multiply rows of `along` and write channels of `out`.
    fn rings(&self, along: &ChannelsLast, out: &ChannelsLast) -> bool {
        let whole = [along.stride(), out.stride(), out.channels()];
        let vectors = whole.iter().all(|length| length.is_multiple_of(self.vector()));
        self.hopper() && along.channels().is_multiple_of(STEP) && vectors
    }

    /// The kernel written for Hopper, in `tiles` tiles of `width` columns, that sums over the channels of `along`
    /// and writes those of `out`, where there is one for so many `taps` and norms over `over`. It takes what the kernel
    /// for every GPU takes.
    pub(in crate::ops::gpu) fn ring(
        &self,
        product: Ring,
        taps: usize,
        [along, out]: [&ChannelsLast; 2],
        [width, tiles]: [usize; 2],
        over: Over,
    ) -> Option<Kernel> {
        if over != Over::Batch || !self.rings(along, out) || taps > TAPS {
            return None;
        }
        let entry = match product {
            Ring::Forward => CONV_FORWARD,
            Ring::BackwardInput => CONV_BACKWARD_INPUT,
            Ring::LayerForward => LAYER_FORWARD,
            Ring::LayerBackward => LAYER_BACKWARD,
        };
        let (entry, blocks) = match tiles <= self.multiprocessors {
            // Where no multiprocessor gets two blocks, one may as well have all of its memory.
            true => (alone(entry), 1),
            false => (entry, 2),
        };
        let macros = [("TILE_N", width), ("RING_BLOCKS", blocks)];
        Some(self.variant(entry, width + 1000 * blocks, &macros))
    }

    /// The kernel written for Hopper for a weight's gradient from `map` and `gradient`, in tiles of `high` by
    /// `wide`, where there is one for norms over `over`; `normed` where a norm and ReLU lie before the convolution.
    pub(in crate::ops::gpu) fn weight_ring(
        &self,
        normed: bool,
        [map, gradient]: [&ChannelsLast; 2],
        [high, wide]: [usize; 2],
        over: Over,
    ) -> Option<Kernel> {
        let entry = if normed { LAYER_WEIGHT } else { CONV_WEIGHT };
        let macros = [("TILE_M", high), ("TILE_N", wide)];
        let made = || self.variant(entry, high + 1000 * wide, &macros);
        let rings = self.rings(map, gradient) && self.rings(gradient, map);
        (over == Over::Batch && rings).then(made)
    }

    /// Into how many parts of how many pixels such a gradient is split, when one part takes `tiles` blocks.
    pub(in crate::ops::gpu) fn ring_splits(&self, pixels: usize, tiles: usize) -> (usize, usize) {
        let wanted = (2 * self.multiprocessors / tiles).max(1);
        let per = STEP * blocks(pixels, STEP * wanted);
        (blocks(pixels, per), per)
    }
}
