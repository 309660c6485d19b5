//! Maps as the kernels see them.

use std::ops::Range;

use super::{Buffer, Gpu};

/// Some channels of a map in memory: `[pixels, channels]` with the channels of a pixel side by side,
/// a row of `stride` elements for each pixel.
#[derive(Debug, Clone)]
pub struct ChannelsLast {
    buffer: Buffer,
    pixels: usize,
    channels: usize,
    stride: usize,
}

impl ChannelsLast {
    /// All of a buffer of `pixels × channels` elements.
    pub fn new(buffer: Buffer, pixels: usize, channels: usize) -> Self {
        assert_eq!(buffer.len(), pixels * channels);
        Self { buffer, pixels, channels, stride: channels }
    }

    /// Some of its channels.
    pub fn slice(&self, channels: Range<usize>) -> Self {
        assert!(channels.end <= self.channels, "{channels:?} of {}", self.channels);
        let buffer = self.buffer.from(channels.start);
        Self { buffer, channels: channels.len(), ..*self }
    }

    /// The first `channels` channels of a row; more than it has now, where its rows have room.
    pub fn with_channels(&self, channels: usize) -> Self {
        assert!(channels <= self.stride, "{channels} channels in rows of {}", self.stride);
        Self { buffer: self.buffer.clone(), channels, ..*self }
    }

    /// From the first pixel's first channel on.
    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// The same, to be moved off the device.
    pub fn buffer_mut(&mut self) -> &mut Buffer {
        &mut self.buffer
    }

    /// How many pixels, of all images.
    pub fn pixels(&self) -> usize {
        self.pixels
    }

    /// How many channels.
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// Elements from one pixel to the next.
    pub fn stride(&self) -> usize {
        self.stride
    }
}

/// What norms are taken over. What there is of each channel under BatchNorm, there is of each channel of
/// each image under GroupNorm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// The pixels of all images (BatchNorm).
    Batch,
    /// Groups of channels of each of so many images by itself (GroupNorm).
    Images(usize),
}

impl Over {
    /// How many times there is what BatchNorm has once.
    pub fn images(self) -> usize {
        match self {
            Self::Batch => 1,
            Self::Images(images) => images,
        }
    }

    /// The part of a vector over channels that belongs to `channels`.
    fn part(self, buffer: &Buffer, channels: &Range<usize>) -> Buffer {
        buffer.range(channels.start * self.images()..channels.end * self.images())
    }
}

/// Mean, variance (divided by the number of pixels) and 1/√(variance + ε) of each channel.
#[derive(Debug, Clone)]
pub struct ChannelStats {
    pub(super) mean: Buffer,
    pub(super) variance: Buffer,
    pub(super) inverse_std: Buffer,
    pub(super) over: Over,
    /// The channels come in pieces of so many, the first one and the others: what a dense block reads, and what each
    /// of its layers writes. Under [`Over::Images`] a piece has an image's channels behind those of the image before,
    /// so that those of a layer lie in one place.
    pub(super) pieces: [usize; 2],
}

impl ChannelStats {
    /// Those of some of the channels: of the first ones, or of those of one piece.
    pub fn slice(&self, channels: Range<usize>) -> Self {
        let part = |buffer: &Buffer| self.over.part(buffer, &channels);
        let pieces = if channels.start == 0 { self.pieces } else { [channels.len(); 2] };
        Self {
            mean: part(&self.mean),
            variance: part(&self.variance),
            inverse_std: part(&self.inverse_std),
            pieces,
            ..*self
        }
    }

    /// How many channels the last piece has: what the last of the layers so far wrote, or all where there is one piece.
    pub(super) fn last_piece(&self) -> usize {
        let (channels, [first, next]) = (self.channels(), self.pieces);
        if channels > first { next } else { channels }
    }

    /// The same, of a dense block that reads `input` channels and whose layers add `growth` each.
    pub fn of_block(self, input: usize, growth: usize) -> Self {
        Self { pieces: [input, growth], ..self }
    }

    /// The same in memory of their own.
    pub fn copied(&self, gpu: &Gpu) -> Self {
        self.copied_with_room(gpu, self.channels())
    }

    /// The same with room for those of so many channels, in memory of their own where they have not that.
    pub(super) fn with_room(self, gpu: &Gpu, channels: usize) -> Self {
        match self.channels() >= channels {
            true => self,
            false => self.copied_with_room(gpu, channels),
        }
    }

    fn copied_with_room(&self, gpu: &Gpu, channels: usize) -> Self {
        let length = channels * self.over.images();
        let copied =
            |buffer: &Buffer| gpu.copied(&buffer.range(0..buffer.len().min(length)), length);
        Self {
            mean: copied(&self.mean),
            variance: copied(&self.variance),
            inverse_std: copied(&self.inverse_std),
            ..*self
        }
    }

    /// Those of a whole data set, as BatchNorm's running statistics give them; for evaluation only.
    pub fn running(mean: Buffer, variance: Buffer) -> Self {
        let pieces = [mean.len(); 2];
        Self { inverse_std: variance.clone(), mean, variance, over: Over::Batch, pieces }
    }

    /// How many channels.
    pub fn channels(&self) -> usize {
        self.mean.len() / self.over.images()
    }

    /// Their memory.
    pub fn buffers(&self) -> [&Buffer; 3] {
        [&self.mean, &self.variance, &self.inverse_std]
    }
}

/// What a norm does to each channel once its statistics are known: x ↦ scale·x + shift.
#[derive(Debug, Clone)]
pub struct Affine {
    pub(super) scale: Buffer,
    pub(super) shift: Buffer,
    pub(super) over: Over,
}

/// Σ γ·dβ and Σ γ·dγ of each channel over the norms that read it: what is missing from
/// S = Σ γ·g for the gradient, rstd·(S − s1/m − x̂·s2/m), of a channel of m pixels. Under GroupNorm, where each
/// norm has other statistics of a channel, S = Σ scale·g and the gradient is S − (s1 + x·s2)/m. They lie as
/// the statistics do.
#[derive(Debug, Clone)]
pub struct GradientSums {
    pub(super) shift: Buffer,
    pub(super) scale: Buffer,
    pub(super) over: Over,
}

impl GradientSums {
    /// Those of some of the channels.
    pub fn slice(&self, channels: Range<usize>) -> Self {
        let part = |buffer: &Buffer| self.over.part(buffer, &channels);
        Self { shift: part(&self.shift), scale: part(&self.scale), over: self.over }
    }

    /// Their memory.
    pub fn buffers(&self) -> [&Buffer; 2] {
        [&self.shift, &self.scale]
    }
}

/// What a kernel leaves of the channels it wrote or read: `rows` partial results, still to be put
/// together.
#[derive(Debug, Clone)]
pub struct Partials {
    pub(super) buffer: Buffer,
    /// Of each image, where there are those of each.
    pub(super) rows: usize,
    pub(super) channels: usize,
    pub(super) over: Over,
    /// Whether words lie behind them by which the blocks of a kernel can tell each other what they make of them: see
    /// `kernels/channel_norm.cuh`.
    pub(super) tells: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::DryAllocator;
    use crate::ops::gpu::{DryGpu, Element, Gpu, Kernels};

    /// Cards exchange the sums of exactly these channels behind each norm of a dense block, so each channel's once.
    #[test]
    fn the_last_pieces_of_what_the_norms_of_a_block_read_are_all_its_channels() {
        let dry = DryGpu::new(DryAllocator::default(), true);
        let kernels = Kernels::new(Gpu::dry(&dry), Element::Bf16);
        let (input, growth, layers) = (64, 32, 3);
        let stats = kernels.stats(input + layers * growth, Over::Batch).of_block(input, growth);
        // From the last norm, that of the transition, to the first.
        let mut end = stats.channels();
        for read in (0..=layers).rev().map(|layer| input + layer * growth) {
            assert_eq!(read, end, "what is behind has been exchanged");
            end -= stats.slice(0..read).last_piece();
        }
        assert_eq!(end, 0);
        assert_eq!(stats.slice(input..input + growth).last_piece(), growth);
        assert_eq!(kernels.stats(96, Over::Batch).last_piece(), 96);
    }
}
