//! Dropout: masks, and maps in place.

use super::kernels::{Entry, blocks, entry};
use super::{Buffer, ChannelsLast, Kernels, Sizes};
use crate::ops::Dropout;

const DROPOUT_MASK: Entry = entry!("dropout_mask", 256, [DRAWS]);
const DROP_OUT: Entry = entry!("drop_out", 256, [TILES, DRAWS]);

impl Dropout {
    /// Behind `sizes`, what kernels draw masks from.
    fn key(&self, sizes: Sizes) -> Sizes {
        let halves = |number: u64| [number as u32, (number >> 32) as u32];
        let words = [self.key.seed, self.key.first_image].map(halves);
        words.into_iter().flatten().fold(sizes, Sizes::bits)
    }
}

/// `[images, elements]`: 1 where one of 2³² equally likely draws keeps an element, else 0. The draws
/// are those of [`crate::ops::dropout`] on the CPU.
pub fn dropout_mask(kernels: &Kernels, [images, elements]: [usize; 2], dropout: Dropout) -> Buffer {
    let mask = kernels.floats(images * elements);
    let sizes = Sizes::of([images, elements]).bits(dropout.threshold()).int(0);
    let sizes = dropout.key(sizes);
    // A thread makes four elements of an image.
    let threads = images * elements.div_ceil(4);
    let grid = [blocks(threads, 256).clamp(1, 32 * kernels.multiprocessors), 1, 1];
    kernels.gpu.launch(&kernels.get(DROPOUT_MASK), grid, &[&mask], &sizes);
    mask
}

impl Kernels {
    /// Sets elements of `map`, the maps of `images` images, to zero and scales the others up, in place, as
    /// [`crate::ops::dropout`] does. The gradient goes back in the same way.
    pub fn drop_out(&self, map: &ChannelsLast, images: usize, dropout: Dropout) {
        let (pixels, channels) = (map.pixels() / images, map.channels());
        let sizes = Sizes::of([images, pixels, channels, map.stride()]).bits(dropout.threshold());
        let sizes = sizes.float(dropout.scale());
        let sizes = dropout.key(sizes);
        // A thread takes four pixels of a channel.
        let grid = [blocks(pixels.div_ceil(4) * channels, 256), images.min(65_535), 1];
        self.gpu.launch(&self.get(DROP_OUT), grid, &[map], &sizes);
    }
}
