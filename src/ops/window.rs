//! The window of a convolution or of pooling.

/// A square window that moves over a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Height and width.
    pub kernel: usize,
    /// Step in both directions.
    pub stride: usize,
    /// Zeros added on every side.
    pub padding: usize,
}

impl Window {
    /// Of one pixel: that of a 1×1 convolution.
    pub const PIXEL: Self = Self::same(1, 1);
    /// Two by two pixels, side by side: that of a pooling which halves a map.
    pub const HALF: Self = Self { kernel: 2, stride: 2, padding: 0 };

    /// With an odd kernel so padded that a stride of 1 keeps the size.
    pub const fn same(kernel: usize, stride: usize) -> Self {
        Self { kernel, stride, padding: kernel / 2 }
    }

    /// Whether it fits into a map of this height or width.
    pub fn fits(&self, size: usize) -> bool {
        size + 2 * self.padding >= self.kernel
    }

    /// Height or width of the output for that of the input, which it must [fit](Self::fits).
    pub fn output(&self, size: usize) -> usize {
        (size + 2 * self.padding - self.kernel) / self.stride + 1
    }
}
