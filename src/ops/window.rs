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
    pub const PIXEL: Self = Self { kernel: 1, stride: 1, padding: 0 };

    /// Whether it fits into a map of this height or width.
    pub fn fits(&self, size: usize) -> bool {
        size + 2 * self.padding >= self.kernel
    }

    /// Height or width of the output for that of the input, which it must [fit](Self::fits).
    pub fn output(&self, size: usize) -> usize {
        (size + 2 * self.padding - self.kernel) / self.stride + 1
    }
}
