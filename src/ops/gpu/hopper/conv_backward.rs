//! Back through a dense layer's 3×3 convolution and the ReLU before it.

use super::{BOTTLENECK, GROWTH};
use crate::ops::gpu::Sizes;
use crate::ops::gpu::channels_last::{ChannelsLast, Partials};
use crate::ops::gpu::exchange::pixels_of_all;
use crate::ops::gpu::gpu::Arguments;
use crate::ops::gpu::kernels::{Entry, Kernels, blocks, entry};
use crate::ops::gpu::layer::{NormedConvolution, Summed};

/// Weights of nine taps; four vectors of channels; five patches of twice 4 chunks of 102 pixels of 16 bytes and
/// 64 pixels of all channels, with two barriers each, and one barrier.
const SHARED: u32 = (9 * BOTTLENECK * GROWTH * 2
    + 4 * BOTTLENECK * 4
    + 5 * (2 * 4 * 102 * 16 + 64 * BOTTLENECK * 2 + 16)
    + 16) as u32;
const DENSE_CONV_BACKWARD: Entry =
    entry!("dense_conv_backward", 384, SHARED, [TILES, CHANNELS, HOPPER]);

impl Kernels {
    /// Makes the gradient of the 3×3 convolution's output of `written` and takes it back to its map, which lies
    /// without gaps as `summed` does: writes its share into `summed`, and returns the gradient and what it
    /// leaves of the norm's sums.
    pub(in crate::ops::gpu) fn dense_conv_backward(
        &self,
        layer: NormedConvolution<'_>,
        written: Summed<'_>,
        summed: &ChannelsLast,
    ) -> (ChannelsLast, Partials) {
        let NormedConvolution { convolution, weight, map, normalised } = layer;
        let over = normalised.stats.over;
        let [batch, height, width] = convolution.over(over).size;
        let patches = batch * blocks(height, 8) * blocks(width, 8);
        let grid = patches.min(self.multiprocessors_for(over));
        let gradient = self.empty_map(map.pixels(), GROWTH);
        let part = self.passing_partials(grid, BOTTLENECK, over);
        let strides = [written.data, written.map, &gradient].map(ChannelsLast::stride);
        let pixels = pixels_of_all(normalised.synced, batch * height * width);
        let sizes = Sizes::of([batch, height, width]).ints(strides);
        let sizes = sizes.float(1.0 / pixels as f32).int(0);
        let read: Arguments<'_> = &[&weight.buffer, map];
        let behind: Arguments<'_> = &[&gradient, summed, &part.buffer];
        let buffers = [&written.arguments()[..], read, &normalised.arguments(), behind].concat();
        let products = map.pixels() * GROWTH * 9 * BOTTLENECK;
        let kernel = self.get_over(DENSE_CONV_BACKWARD, over);
        self.gpu.multiply(&kernel, [grid, 1, over.images()], &buffers, &sizes, products);
        (gradient, part)
    }
}
