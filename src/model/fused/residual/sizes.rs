//! The sizes of a residual block.

use crate::model::layer::Conv2dConfig;
use crate::ops::cuda::Convolution;

/// The sizes of a residual block.
#[derive(Debug, Clone)]
pub(in crate::model) struct ResidualSizes {
    /// The convolutions on the residual path, the first of which reads the block's input; 1×1 ones
    /// behind it have stride 1.
    pub convs: Vec<Conv2dConfig>,
    /// The shortcut's convolution; without one it leaves pixels out and adds channels of zeros.
    pub projection: Option<Conv2dConfig>,
    /// How many times lower and narrower the output is.
    pub stride: usize,
}

impl ResidualSizes {
    /// Batch, height and width of what each convolution on the path reads, where the block reads maps
    /// of `size`.
    pub(super) fn inputs(&self, size: [usize; 3]) -> Vec<[usize; 3]> {
        let before = |size: &mut [usize; 3], conv: &Conv2dConfig| {
            let [batch, height, width] = *size;
            let after = [batch, conv.output_size(height), conv.output_size(width)];
            Some(std::mem::replace(size, after))
        };
        self.convs.iter().scan(size, before).collect()
    }

    /// Batch, height and width of the block's output.
    pub(super) fn output(&self, [batch, height, width]: [usize; 3]) -> [usize; 3] {
        let side = |side: usize| (side - 1) / self.stride + 1;
        [batch, side(height), side(width)]
    }

    /// What convolution `index` and the norm behind it are called.
    pub(super) fn names(&self, index: usize) -> [&'static str; 2] {
        const PATH: [[&str; 2]; 3] = [["conv1", "bn1"], ["conv2", "bn2"], ["conv3", "bn3"]];
        if index == self.convs.len() { ["downsample.0", "downsample.1"] } else { PATH[index] }
    }

    /// The convolutions in the order of their parameters: the shortcut's comes last.
    pub(super) fn all(&self) -> Vec<Conv2dConfig> {
        self.convs.iter().chain(&self.projection).copied().collect()
    }
}

/// The convolution of maps of `size`: batch, height and width.
pub(super) fn convolution(conv: &Conv2dConfig, size: [usize; 3]) -> Convolution {
    let Conv2dConfig { kernel, stride, padding, .. } = *conv;
    Convolution { size, kernel, stride, padding }
}
