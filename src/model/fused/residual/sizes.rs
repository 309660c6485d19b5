//! The convolutions of a residual block.

use crate::model::fuse::{ConvSizes, ResidualSizes};
use crate::ops::cuda::Convolution;

/// What convolution `index` of a block and the norm behind it are called.
pub(super) fn names(sizes: &ResidualSizes, index: usize) -> [&'static str; 2] {
    const PATH: [[&str; 2]; 3] = [["conv1", "bn1"], ["conv2", "bn2"], ["conv3", "bn3"]];
    if index == sizes.convs.len() { ["downsample.0", "downsample.1"] } else { PATH[index] }
}

/// The convolution of maps of `size`: batch, height and width.
pub(super) fn convolution(conv: &ConvSizes, size: [usize; 3]) -> Convolution {
    Convolution { size, window: conv.window }
}
