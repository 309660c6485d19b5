//! Dropout masks.

use super::kernels::{Entry, blocks, entry};
use super::{Buffer, Kernels, Sizes};
use crate::ops::DropoutKey;

const DROPOUT_MASK: Entry = entry!("dropout_mask", 256, []);

/// `[images, elements]`: 1 where one of 2³² equally likely draws is below `threshold`, else 0. The draws
/// are those of [`crate::ops::dropout`] on the CPU.
pub fn dropout_mask(
    kernels: &Kernels,
    [images, elements]: [usize; 2],
    threshold: u32,
    key: DropoutKey,
) -> Buffer {
    let mask = kernels.floats(images * elements);
    let halves = |number: u64| [number as u32, (number >> 32) as u32];
    let [[seed_low, seed_high], [first_low, first_high]] = [key.seed, key.first_image].map(halves);
    let sizes = Sizes::new().int(images).int(elements).bits(threshold).int(0);
    let sizes = sizes.bits(seed_low).bits(seed_high).bits(first_low).bits(first_high);
    // A thread makes four elements of an image.
    let threads = images * elements.div_ceil(4);
    let grid = [blocks(threads, 256).clamp(1, 32 * kernels.multiprocessors), 1, 1];
    kernels.gpu.launch(&kernels.get(DROPOUT_MASK), grid, &[&mask], &sizes);
    mask
}
