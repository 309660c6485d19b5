//! BatchNorm, ReLU, 1×1 convolution and 2×2 average-pooling.
//!
//! Pooling commutes with the convolution, so the kernels pool first: a quarter of the products.

use super::Sizes;
use super::channels_last::{Affine, ChannelsLast, Partials};
use super::gpu::Arguments;
use super::kernels::{Entry, Kernels, blocks, entry};
use super::layer::Normalised;
use super::weights::Packed;

const TRANSITION_POOL: Entry = entry!("transition_pool", 256, [TILES, CHANNELS, POOLED]);
const TRANSITION_BACKWARD_INPUT: Entry =
    entry!("transition_backward_input", 256, [TILES, CHANNELS, GEMM, CONV, POOLED]);

impl Kernels {
    /// The norm, ReLU and pooling of `map`, of `[batch, height, width]` pixels.
    pub fn transition_pool(
        &self,
        map: &ChannelsLast,
        size: [usize; 3],
        affine: &Affine,
    ) -> ChannelsLast {
        let [batch, height, width] = size;
        let (over, batch) = (affine.over, batch / affine.over.images());
        let pixels = batch * (height / 2) * (width / 2);
        let out = self.empty_map(pixels * over.images(), map.channels());
        let sizes = Sizes::of([batch, height, width, map.channels(), map.stride(), out.stride()]);
        let buffers: Arguments<'_> = &[map, &affine.scale, &affine.shift, &out];
        let grid = [self.streaming(pixels, over), self.lanes(map.channels()), over.images()];
        self.gpu.launch(&self.get_over(TRANSITION_POOL, over), grid, buffers, &sizes);
        out
    }

    /// Writes the first contribution to S, the gradient of `map` without what its statistics add,
    /// into `summed`; returns the pooled map once more, and what it leaves of the norm.
    pub fn transition_backward_input(
        &self,
        gradient: &ChannelsLast,
        weight: &Packed,
        map: &ChannelsLast,
        size: [usize; 3],
        normalised: Normalised<'_>,
        summed: &ChannelsLast,
    ) -> (ChannelsLast, Partials) {
        let [batch, height, width] = size;
        let over = normalised.stats.over;
        let tiles = blocks(gradient.pixels() / over.images(), 128);
        let part = self.partials(tiles, map.channels(), over);
        let pooled = self.empty_map(gradient.pixels(), map.channels());
        let sizes = Sizes::of([batch / over.images(), height, width, map.channels()]);
        let sizes = sizes.ints([gradient.channels(), gradient.stride(), map.stride()]);
        let sizes = sizes.ints([summed.stride(), weight.row, 1]);
        let [mean, inverse_std, scale, shift, gamma] = normalised.arguments();
        let (packed, out) = (&weight.buffer, &part.buffer);
        let buffers: Arguments<'_> =
            &[gradient, packed, map, mean, inverse_std, scale, shift, gamma, summed, &pooled, out];
        let grid = [tiles * blocks(map.channels(), 64), 1, over.images()];
        let products = gradient.pixels() * gradient.channels() * map.channels();
        let kernel = self.get_over(TRANSITION_BACKWARD_INPUT, over);
        self.gpu.multiply(&kernel, grid, buffers, &sizes, products);
        (pooled, part)
    }
}
