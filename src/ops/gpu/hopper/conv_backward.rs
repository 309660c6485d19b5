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
        let Summed { data: of_written, map: values, stats, missing } = written;
        let strides = [of_written.stride(), values.stride(), gradient.stride()];
        let sizes = strides
            .into_iter()
            .fold(Sizes::new().int(batch).int(height).int(width), Sizes::int)
            .float(1.0 / pixels_of_all(normalised.synced, batch * height * width) as f32)
            .int(0);
        let [mean, inverse_std, scale, shift, gamma] = normalised.arguments();
        let (packed, part_out) = (&weight.buffer, &part.buffer);
        let buffers: Arguments<'_> = &[
            of_written,
            values,
            &stats.mean,
            &stats.inverse_std,
            &missing.shift,
            &missing.scale,
            packed,
            map,
            mean,
            inverse_std,
            scale,
            shift,
            gamma,
            &gradient,
            summed,
            part_out,
        ];
        let products = map.pixels() * GROWTH * 9 * BOTTLENECK;
        let kernel = self.get_over(DENSE_CONV_BACKWARD, over);
        self.gpu.multiply(&kernel, [grid, 1, over.images()], buffers, &sizes, products);
        (gradient, part)
    }
}
