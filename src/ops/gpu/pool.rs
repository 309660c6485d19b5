//! The last BatchNorm, ReLU, and the mean over each map.

use super::channels_last::{Affine, ChannelsLast, Partials};
use super::gpu::Arguments;
use super::kernels::{Entry, Kernels, entry};
use super::layer::Normalised;
use super::{Buffer, Sizes};

const GLOBAL_POOL_FORWARD: Entry = entry!("global_pool_forward", 256, [TILES, CHANNELS]);
const GLOBAL_POOL_BACKWARD: Entry = entry!("global_pool_backward", 256, [TILES, CHANNELS]);

impl Kernels {
    /// The features of `batch` images, `[batch, channels]` in 32 bits.
    pub fn global_pool_forward(&self, map: &ChannelsLast, batch: usize, affine: &Affine) -> Buffer {
        let (channels, over) = (map.channels(), affine.over);
        // They leave the stage as a tensor.
        let features = self.gpu.floats(batch * channels);
        let rows = batch / over.images();
        let sizes = Sizes::of([rows, map.pixels() / batch, channels, map.stride()]);
        let buffers: Arguments<'_> = &[map, &affine.scale, &affine.shift, &features];
        let grid = [self.lanes(channels), rows, over.images()];
        self.gpu.launch(&self.get_over(GLOBAL_POOL_FORWARD, over), grid, buffers, &sizes);
        features
    }

    /// Writes the first contribution to S, the gradient of `map` without what its statistics add,
    /// into `summed`; returns what it leaves of the norm.
    pub fn global_pool_backward(
        &self,
        gradient: &Buffer,
        map: &ChannelsLast,
        batch: usize,
        normalised: Normalised<'_>,
        summed: &ChannelsLast,
    ) -> Partials {
        let (channels, over) = (map.channels(), normalised.stats.over);
        let rows = batch / over.images();
        let part = self.partials(rows, channels, over);
        let sizes = Sizes::of([rows, map.pixels() / batch, channels, map.stride()]);
        let sizes = sizes.ints([summed.stride(), 0]);
        let [mean, inverse_std, scale, shift, gamma] = normalised.arguments();
        let buffers: Arguments<'_> =
            &[gradient, map, mean, inverse_std, scale, shift, gamma, summed, &part.buffer];
        let grid = [rows, self.lanes(channels), over.images()];
        self.gpu.launch(&self.get_over(GLOBAL_POOL_BACKWARD, over), grid, buffers, &sizes);
        part
    }
}
