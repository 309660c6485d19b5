//! Norms of maps of any size, for models that do not run fused.

use super::gpu::Arguments;
use super::kernels::{EPSILON, Entry, Kernels, blocks, entry};
use super::{Buffer, Gpu, Nchw, Sizes};

const ROW_MOMENTS: Entry = entry!("row_moments", 256, [TILES, CHANNELS, ROWS]);
const ROW_STATISTICS: Entry = entry!("row_statistics", 256, [TILES, CHANNELS, ROWS]);
const ROW_NORM: Entry = entry!("row_norm", 256, [TILES, CHANNELS, ROWS]);
const ROW_SUMS: Entry = entry!("row_sums", 256, [TILES, CHANNELS, ROWS]);
const ROW_GRADIENTS: Entry = entry!("row_gradients", 256, [TILES, CHANNELS, ROWS]);
const ROW_NORM_BACKWARD: Entry = entry!("row_norm_backward", 256, [TILES, CHANNELS, ROWS]);

/// Elements of a row that a warp takes.
const CHUNK: usize = 8192;
/// Rows that a block takes, one a warp.
const WARPS: usize = 8;
/// Bytes that a block of an element-wise kernel writes: `SPAN` in `kernels/rows.cuh`.
const SPAN_BYTES: usize = 256 * 4 * 16;

/// BatchNorm or GroupNorm of maps, alone or with ReLU behind it, with its gradients. Statistics and sums are 32-bit.
#[derive(Debug, Clone)]
pub struct Norm2d {
    kernels: Kernels,
    /// Groups of channels of an image; `None` is BatchNorm.
    groups: Option<usize>,
    relu: bool,
}

/// Means and biased variances: one of each for a channel, or for a group of an image.
pub type NormStatistics = [Buffer; 2];

/// The rows of a map: one for each channel of each image.
#[derive(Debug, Clone, Copy)]
struct MapRows {
    count: usize,
    length: usize,
    channels: usize,
    /// Groups of an image; 0 over the batch.
    groups: usize,
}

impl MapRows {
    fn parts(&self) -> usize {
        blocks(self.length, CHUNK)
    }

    /// How many means and variances there are.
    fn statistics(&self) -> usize {
        match self.groups {
            0 => self.channels,
            groups => self.count / self.channels * groups,
        }
    }

    /// `row_sizes` of `kernels/rows.cuh`.
    fn sizes(&self) -> Sizes {
        let sizes = Sizes::of([self.count, self.length, self.channels]);
        sizes.int(self.groups).int(CHUNK).int(self.parts())
    }
}

impl Norm2d {
    /// On these kernels, over the batch or over so many groups of channels of each image, with ReLU behind it or
    /// not.
    pub fn new(kernels: Kernels, groups: Option<usize>, relu: bool) -> Self {
        Self { kernels, groups, relu }
    }

    /// The GPU.
    pub fn gpu(&self) -> &Gpu {
        self.kernels.gpu()
    }

    fn rows(&self, [batch, channels, height, width]: [usize; 4]) -> MapRows {
        let groups = self.groups.unwrap_or(0);
        MapRows { count: batch * channels, length: height * width, channels, groups }
    }

    fn launch(&self, entry: Entry, grid: [usize; 2], arguments: Arguments<'_>, sizes: &Sizes) {
        let [x, y] = grid;
        self.gpu().launch(&self.kernels.get(entry), [x, y, 1], arguments, sizes);
    }

    /// Blocks of an element-wise kernel.
    fn spans(&self, rows: &MapRows) -> usize {
        let bytes = rows.count * rows.length * self.kernels.element.storage().size();
        blocks(bytes, SPAN_BYTES)
    }

    /// What element-wise kernels and sums are told: `norm_sizes` of `kernels/rows.cuh`.
    fn sizes(&self, rows: &MapRows) -> Sizes {
        rows.sizes().float(EPSILON).int(self.relu.into())
    }

    /// The map normalised, times `weight`, plus `bias`, `[channels]` both; beside it its statistics.
    pub fn forward(&self, map: &Nchw, weight: &Buffer, bias: &Buffer) -> (Nchw, NormStatistics) {
        let statistics = self.statistics(map);
        (self.apply(map, &statistics, [weight, bias]), statistics)
    }

    /// The statistics of a map.
    pub fn statistics(&self, map: &Nchw) -> NormStatistics {
        let (rows, kernels) = (self.rows(map.shape), &self.kernels);
        let (parts, sizes) = (rows.parts(), rows.sizes());
        let part = kernels.floats(parts * rows.count * 2);
        let grid = [blocks(rows.count, WARPS), parts];
        self.launch(ROW_MOMENTS, grid, &[&map.buffer, &part], &sizes);
        let found = [(); 2].map(|()| kernels.floats(rows.statistics()));
        let grid = [blocks(rows.statistics(), WARPS), 1];
        self.launch(ROW_STATISTICS, grid, &[&part, &found[0], &found[1]], &sizes);
        found
    }

    /// The map normalised by these statistics, times weight, plus bias.
    pub fn apply(
        &self,
        map: &Nchw,
        [mean, variance]: &NormStatistics,
        [weight, bias]: [&Buffer; 2],
    ) -> Nchw {
        let rows = self.rows(map.shape);
        let out = self.kernels.elements(map.buffer.len());
        let buffers: Arguments<'_> = &[&map.buffer, mean, variance, weight, bias, &out];
        self.launch(ROW_NORM, [self.spans(&rows), 1], buffers, &self.sizes(&rows));
        Nchw { buffer: out, shape: map.shape }
    }

    /// The gradients of the map, of weight and of bias, from that of the output.
    pub fn backward(
        &self,
        map: &Nchw,
        statistics: &NormStatistics,
        parameters: [&Buffer; 2],
        gradient: &Buffer,
    ) -> (Nchw, [Buffer; 2]) {
        let (means, found) = self.backward_means(map, statistics, parameters, gradient);
        (self.backward_apply(map, statistics, parameters, gradient, &means), found)
    }

    /// What the gradient of the map is computed with, and the gradients of weight and of bias. The first is, for
    /// each channel or group of an image, the mean of γ·g and that of γ·g·x̂.
    pub fn backward_means(
        &self,
        map: &Nchw,
        [mean, variance]: &NormStatistics,
        [weight, bias]: [&Buffer; 2],
        gradient: &Buffer,
    ) -> (Buffer, [Buffer; 2]) {
        let (rows, kernels) = (self.rows(map.shape), &self.kernels);
        let parts = rows.parts();
        let part = kernels.floats(parts * rows.count * 2);
        let buffers: Arguments<'_> = &[gradient, &map.buffer, mean, variance, weight, bias, &part];
        let grid = [blocks(rows.count, WARPS), parts];
        self.launch(ROW_SUMS, grid, buffers, &self.sizes(&rows));
        let means = kernels.floats(2 * rows.statistics());
        let [of_weight, of_bias] = [(); 2].map(|()| kernels.floats(rows.channels));
        let buffers: Arguments<'_> = &[&part, weight, &means, &of_weight, &of_bias];
        let warps = rows.statistics() + rows.channels;
        self.launch(ROW_GRADIENTS, [blocks(warps, WARPS), 1], buffers, &rows.sizes());
        (means, [of_weight, of_bias])
    }

    /// The gradient of the map, given the means of [`Norm2d::backward_means`].
    pub fn backward_apply(
        &self,
        map: &Nchw,
        [mean, variance]: &NormStatistics,
        [weight, bias]: [&Buffer; 2],
        gradient: &Buffer,
        means: &Buffer,
    ) -> Nchw {
        let rows = self.rows(map.shape);
        let out = self.kernels.elements(map.buffer.len());
        let buffers: Arguments<'_> =
            &[gradient, &map.buffer, mean, variance, weight, bias, means, &out];
        let grid = [self.spans(&rows), 1];
        self.launch(ROW_NORM_BACKWARD, grid, buffers, &self.sizes(&rows));
        Nchw { buffer: out, shape: map.shape }
    }
}
