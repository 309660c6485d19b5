//! What ends a residual network's blocks, and the mean that ends the network.

use super::channels_last::{Affine, ChannelsLast, Over};
use super::gpu::Arguments;
use super::kernels::{Entry, Kernels, entry};
use super::{Buffer, Sizes, Untouched};
use crate::ops::Window;

const RESIDUAL_FORWARD: Entry = entry!("residual_forward", 256, [TILES, CHANNELS]);
const SHORTCUT_BACKWARD: Entry = entry!("shortcut_backward", 256, [TILES, CHANNELS]);
const MEAN_BACKWARD: Entry = entry!("mean_backward", 256, [TILES, CHANNELS]);

/// What a residual block adds to its last norm: every `stride`-th pixel in both directions, with
/// zeros for the channels that are missing.
#[derive(Debug, Clone, Copy)]
pub struct Shortcut<'a> {
    /// The block's input, or its projection.
    pub map: &'a ChannelsLast,
    /// Batch, height and width of `map`.
    pub size: [usize; 3],
    /// Step in both directions.
    pub stride: usize,
    /// What the projection's norm does to each channel.
    pub affine: Option<&'a Affine>,
}

/// Height and width of every `stride`-th pixel of a map.
fn strided([_, height, width]: [usize; 3], stride: usize) -> [usize; 2] {
    [height, width].map(|side| Window::same(1, stride).output(side))
}

impl Kernels {
    /// ReLU of scale·x + shift + shortcut.
    pub fn residual_forward(
        &self,
        map: &ChannelsLast,
        affine: &Affine,
        shortcut: &Shortcut<'_>,
    ) -> ChannelsLast {
        let over = affine.over;
        let (pixels, channels) = (map.pixels() / over.images(), map.channels());
        let [_, height, width] = shortcut.size;
        let [out_height, out_width] = strided(shortcut.size, shortcut.stride);
        assert_eq!(map.pixels(), shortcut.size[0] * out_height * out_width);
        let out = self.empty_map(map.pixels(), channels);
        let sizes = Sizes::of([pixels, channels, shortcut.map.channels(), map.stride()]);
        let sizes = sizes.ints([shortcut.map.stride(), out.stride(), shortcut.stride, height]);
        let sizes = sizes.ints([width, out_height, out_width]);
        let sizes = sizes.int(usize::from(shortcut.affine.is_some()));
        let unread = Untouched(&affine.scale);
        let other = unread.or(shortcut.affine.map(|affine| [&affine.scale, &affine.shift]));
        let buffers: Arguments<'_> =
            &[map, &affine.scale, &affine.shift, shortcut.map, other[0], other[1], &out];
        let grid = [self.streaming(pixels, over), self.lanes(channels), over.images()];
        self.gpu.launch(&self.get_over(RESIDUAL_FORWARD, over), grid, buffers, &sizes);
        out
    }

    /// The gradient of a shortcut's input, of `channels` channels and `size`, from that of its
    /// output.
    pub fn shortcut_backward(
        &self,
        gradient: &ChannelsLast,
        size: [usize; 3],
        channels: usize,
        stride: usize,
    ) -> ChannelsLast {
        let [_, height, width] = size;
        let [out_height, out_width] = strided(size, stride);
        let pixels = size.iter().product();
        assert_eq!(gradient.pixels(), size[0] * out_height * out_width);
        let out = self.empty_map(pixels, channels);
        let sizes = Sizes::of([pixels, channels, gradient.stride(), out.stride(), stride, height]);
        let sizes = sizes.ints([width, out_height, out_width, 0]);
        let grid = [self.streaming(pixels, Over::Batch), self.lanes(channels), 1];
        let buffers: Arguments<'_> = &[gradient, &out];
        self.gpu.launch(&self.get(SHORTCUT_BACKWARD), grid, buffers, &sizes);
        out
    }

    /// The mean over each feature map of `batch` images, `[batch, channels]` in 32 bits. The maps
    /// must have been through ReLU.
    pub fn mean_forward(&self, map: &ChannelsLast, batch: usize) -> Buffer {
        self.global_pool_forward(map, batch, &self.identity(map.channels()))
    }

    /// The gradient of maps of `size` from that of their means.
    pub fn mean_backward(&self, gradient: &Buffer, size: [usize; 3]) -> ChannelsLast {
        let [batch, height, width] = size;
        let channels = gradient.len() / batch;
        let out = self.empty_map(batch * height * width, channels);
        let sizes = Sizes::of([batch, height * width, channels, out.stride()]);
        let grid = [self.streaming(out.pixels(), Over::Batch), self.lanes(channels), 1];
        self.gpu.launch(&self.get(MEAN_BACKWARD), grid, &[gradient, &out], &sizes);
        out
    }
}
