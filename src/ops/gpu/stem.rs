//! 7×7 convolution with stride 2, BatchNorm, ReLU and 3×3 max-pooling with stride 2.

use burn::tensor::DType;

use super::channels_last::{Affine, ChannelStats, ChannelsLast, Over, Partials};
use super::exchange::{Synced, pixels_of_all};
use super::gpu::Arguments;
use super::kernels::{Entry, Kernels, blocks, entry};
use super::layer::ParameterGradients;
use super::norm::NormBuffers;
use super::weights::Packed;
use super::{Buffer, Sizes};
use crate::ops::{Window, group_count};

const STEM_FORWARD: Entry = entry!("stem_forward", 128, [TILES, CHANNELS, GEMM, STEM]);
const STEM_POOL_FORWARD: Entry = entry!("stem_pool_forward", 256, [TILES, CHANNELS]);
const STEM_BACKWARD: Entry = entry!("stem_backward", 384, [TILES, CHANNELS, GEMM, STEM]);
pub(super) const STEM_BACKWARD_FINISH: Entry =
    entry!("stem_backward_finish", 1024, [TILES, CHANNELS, EXCHANGE]);

/// Images in the kernels' element, `[batch, channels, height, width]`, and the sizes that follow from theirs.
#[derive(Debug, Clone)]
pub struct Images {
    /// The values, in this order.
    pub buffer: Buffer,
    /// Batch, channels, height, width.
    pub shape: [usize; 4],
}

impl Images {
    /// Height and width after the convolution.
    pub fn convolved(&self) -> [usize; 2] {
        let [_, _, height, width] = self.shape;
        [height, width].map(|side| Window::same(7, 2).output(side))
    }

    /// Height and width after the pooling.
    pub fn pooled(&self) -> [usize; 2] {
        self.convolved().map(|side| Window::same(3, 2).output(side))
    }

    /// Products of the convolution to so many channels.
    fn products(&self, output: usize) -> usize {
        let [height, width] = self.convolved();
        self.shape[0] * height * width * 49 * self.shape[1] * output
    }
}

/// What the backward pass of a stem needs.
#[derive(Debug)]
pub struct SavedStem {
    /// The input.
    pub images: Images,
    /// What the norm reads.
    pub convolved: ChannelsLast,
    /// The statistics of that.
    pub stats: ChannelStats,
    /// Where in its window each pooled value stood.
    pub index: Buffer,
}

impl Kernels {
    /// One that reads images.
    fn stem_kernel(&self, entry: Entry, images: &Images, over: Over) -> super::Kernel {
        let [_, channels, _, width] = images.shape;
        let fours = usize::from(width.is_multiple_of(4));
        let macros = [("STEM_CHANNELS", channels), ("STEM_FOURS", fours)];
        self.variant_over(entry, 2 * channels + fours, &macros, over)
    }

    /// The convolution of `images`, `[pixels, output]`, and what it leaves of its channels.
    pub fn stem_forward(
        &self,
        images: &Images,
        weight: &Packed,
        output: usize,
        over: Over,
    ) -> (ChannelsLast, Partials) {
        let [batch, _, height, width] = images.shape;
        let [out_height, out_width] = images.convolved();
        let (pixels, batch) = (batch * out_height * out_width, batch / over.images());
        let tile_channels = if self.element.storage() == DType::F32 { 32 } else { 64 };
        let [tiles_y, tiles_x] = [blocks(out_height, 8), blocks(out_width, 16)];
        let rows = (batch * tiles_y * tiles_x).min(4 * self.multiprocessors_for(over));
        let out = ChannelsLast::new(self.elements(pixels * output), pixels, output);
        let part = self.partials(rows, output, over);
        let sizes = Sizes::of([batch, height, width, out_height, out_width, output, out.stride()]);
        let sizes = sizes.ints([tiles_y, tiles_x]);
        let kernel = self.stem_kernel(STEM_FORWARD, images, over);
        let buffers: Arguments<'_> = &[&images.buffer, &weight.buffer, &out, &part.buffer];
        let grid = [rows, blocks(output, tile_channels), over.images()];
        self.gpu.multiply(&kernel, grid, buffers, &sizes, images.products(output));
        (out, part)
    }

    /// The norm, ReLU and pooling of the convolution's output, written into `out`; where each
    /// maximum was; and what it leaves of its channels.
    pub fn stem_pool_forward(
        &self,
        images: &Images,
        convolved: &ChannelsLast,
        affine: &Affine,
        out: &ChannelsLast,
    ) -> (Buffer, Partials) {
        let batch = images.shape[0];
        let ([height, width], [out_height, out_width]) = (images.convolved(), images.pooled());
        let channels = convolved.channels();
        let index = self.empty(batch * out_height * out_width * channels / 8, DType::U32);
        let (over, batch) = (affine.over, batch / affine.over.images());
        let groups = blocks(batch * out_height * blocks(out_width, 4), 32);
        let rows = groups.min(blocks(8 * self.multiprocessors, over.images()));
        let part = self.partials(rows, channels, over);
        let sizes = Sizes::of([batch, height, width, out_height, out_width, channels]);
        let sizes = sizes.ints([convolved.stride(), out.stride()]);
        let buffers: Arguments<'_> =
            &[convolved, &affine.scale, &affine.shift, out, &index, &part.buffer];
        let kernel = self.get_over(STEM_POOL_FORWARD, over);
        self.gpu.launch(&kernel, [rows, self.lanes(channels), over.images()], buffers, &sizes);
        (index, part)
    }

    /// The gradients of the weight, `[output, input, 7, 7]`, and of the norm's parameters, from the
    /// gradient of the pooled output. Where the norm is `synced`, they are this card's share.
    pub fn stem_backward(
        &self,
        saved: &SavedStem,
        norm: &NormBuffers,
        gradient: &ChannelsLast,
        parameters: ParameterGradients<'_>,
        synced: Option<&Synced>,
    ) {
        let SavedStem { images, convolved, stats, index } = saved;
        let [batch, input, height, width] = images.shape;
        let (over, batch) = (stats.over, batch / stats.over.images());
        let ([out_height, out_width], [pooled_height, pooled_width]) =
            (images.convolved(), images.pooled());
        let channels = convolved.channels();
        let tile_height = if self.element.storage() == DType::F32 { 2 } else { 4 };
        let [tiles_y, tiles_x] = [blocks(out_height, tile_height), blocks(out_width, 16)];
        let rows = (batch * tiles_y * tiles_x).min(self.multiprocessors_for(over));
        let columns = blocks(channels, 64);
        let work = self.floats(over.images() * rows * columns * (129 * 8 * 7 * input + 128));
        let sizes = Sizes::of([batch, height, width, out_height, out_width, pooled_height]);
        let sizes = sizes.ints([pooled_width, channels, convolved.stride(), gradient.stride()]);
        let sizes = sizes.ints([tiles_y, tiles_x]);
        let buffers: Arguments<'_> =
            &[&images.buffer, convolved, &stats.mean, &stats.inverse_std, gradient, index, &work];
        let kernel = self.stem_kernel(STEM_BACKWARD, images, over);
        // The convolution is computed once more beside the gradient of its weight.
        let products = 2 * images.products(channels);
        self.gpu.multiply(&kernel, [rows, columns, over.images()], buffers, &sizes, products);
        let pixels = pixels_of_all(synced, batch * out_height * out_width);
        // Channels of zeros are in no group.
        let others = norm.parts.as_ref().map_or(channels, |parts| parts.channels());
        let groups = group_count(others);
        let values = match over {
            Over::Batch => pixels,
            Over::Images(_) => pixels * (others / groups),
        };
        let sizes = Sizes::of([rows, channels, input]).float(1.0 / values as f32);
        let sizes = sizes.ints([over.images(), groups, others, 0]);
        let (weight, [of_gamma, of_beta]) = (parameters.weight, parameters.norm.buffers());
        let buffers: Arguments<'_> =
            &[&work, &norm.scale, &stats.inverse_std, weight, of_gamma, of_beta];
        let grid = [channels, 1, 1];
        let Some(synced) = synced else {
            return self.gpu.launch(
                &self.get_over(STEM_BACKWARD_FINISH, over),
                grid,
                buffers,
                &sizes,
            );
        };
        let kernel = self.synced(STEM_BACKWARD_FINISH);
        synced.multiply(&kernel, grid, buffers, sizes, (2 * channels, weight), 0);
    }
}
