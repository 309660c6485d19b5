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

/// Mean, variance (divided by the number of pixels) and 1/√(variance + ε) of each channel.
#[derive(Debug, Clone)]
pub struct ChannelStats {
    pub(super) mean: Buffer,
    pub(super) variance: Buffer,
    pub(super) inverse_std: Buffer,
}

impl ChannelStats {
    /// Those of some of the channels.
    pub fn slice(&self, channels: Range<usize>) -> Self {
        let part = |buffer: &Buffer| buffer.range(channels.clone());
        Self {
            mean: part(&self.mean),
            variance: part(&self.variance),
            inverse_std: part(&self.inverse_std),
        }
    }

    /// The same in memory of their own.
    pub fn copied(&self, gpu: &Gpu) -> Self {
        Self {
            mean: gpu.copied(&self.mean),
            variance: gpu.copied(&self.variance),
            inverse_std: gpu.copied(&self.inverse_std),
        }
    }

    /// Those of a whole data set, as BatchNorm's running statistics give them; for evaluation only.
    pub fn running(mean: Buffer, variance: Buffer) -> Self {
        Self { inverse_std: variance.clone(), mean, variance }
    }

    /// How many channels.
    pub fn channels(&self) -> usize {
        self.mean.len()
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
}

/// Σ γ·dβ and Σ γ·dγ of each channel over the norms that read it: what is missing from
/// S = Σ γ·g for the gradient, rstd·(S − s1/m − x̂·s2/m), of a channel of m pixels.
#[derive(Debug, Clone)]
pub struct GradientSums {
    pub(super) shift: Buffer,
    pub(super) scale: Buffer,
}

impl GradientSums {
    /// Those of some of the channels.
    pub fn slice(&self, channels: Range<usize>) -> Self {
        Self { shift: self.shift.range(channels.clone()), scale: self.scale.range(channels) }
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
    pub(super) rows: usize,
    pub(super) channels: usize,
}
