//! Feature maps between fused stages.

use std::sync::Arc;

use super::channels_last::{ChannelStats, ChannelsLast, GradientSums, Over, Partials};
use super::gpu::{Arguments, Backend};
use super::kernels::{Entry, Kernels, blocks, entry};
use super::{Buffer, ChannelParts, Gpu, Images, Sizes};

const NORM_STATISTICS: Entry = entry!("norm_statistics", 256, [TILES, CHANNELS]);

/// Feature maps in a GPU's memory, or the gradient with respect to them.
#[derive(Debug, Clone)]
pub struct DeviceMap {
    /// Where they are.
    pub gpu: Gpu,
    /// The values: a row for each pixel, image by image. Rows may have room behind the channels.
    pub data: ChannelsLast,
    /// Batch, height, width.
    pub size: [usize; 3],
    /// How the channels lie in a row, where there are channels of zeros among them.
    pub parts: Option<Arc<ChannelParts>>,
    /// The statistics of the channels, where they are known; perhaps with room for more.
    pub stats: Option<ChannelStats>,
    /// Of a gradient: the values are S, and this is what is missing of it (see [`GradientSums`]).
    pub pending: Option<GradientSums>,
}

/// What is known of the channels of a map beside its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KnownOfChannels {
    /// Nothing.
    Nothing,
    /// Their [statistics](DeviceMap::stats), over this and in these pieces.
    Statistics(Over, [usize; 2]),
    /// What is [missing](DeviceMap::pending) of a gradient.
    Missing(Over),
}

impl DeviceMap {
    /// What is known of its channels, and the arrays that say it, of these channels alone.
    pub fn known(&self) -> (KnownOfChannels, Vec<Buffer>) {
        let channels = 0..self.data.channels();
        match (&self.stats, &self.pending) {
            (_, Some(missing)) => {
                let arrays = missing.slice(channels).buffers().map(Buffer::clone);
                (KnownOfChannels::Missing(missing.over), arrays.into())
            }
            (Some(stats), None) => {
                let arrays = stats.slice(channels).buffers().map(Buffer::clone);
                (KnownOfChannels::Statistics(stats.over, stats.pieces), arrays.into())
            }
            (None, None) => (KnownOfChannels::Nothing, Vec::new()),
        }
    }

    /// The same of whose channels these arrays say what is `known`; they may have room for more channels.
    ///
    /// # Panics
    ///
    /// When there are not as many arrays as [`DeviceMap::known`] gives.
    pub fn knowing(self, known: KnownOfChannels, arrays: Vec<Buffer>) -> Self {
        const ALL: &str = "an array for each";
        match known {
            KnownOfChannels::Nothing => self,
            KnownOfChannels::Statistics(over, pieces) => {
                let [mean, variance, inverse_std] = arrays.try_into().expect(ALL);
                let stats = ChannelStats { mean, variance, inverse_std, over, pieces };
                Self { stats: Some(stats), ..self }
            }
            KnownOfChannels::Missing(over) => {
                let [shift, scale] = arrays.try_into().expect(ALL);
                Self { pending: Some(GradientSums { shift, scale, over }), ..self }
            }
        }
    }

    /// The same in rows with room for so many channels, and with room for their statistics where those are known: where
    /// it is, if it has that.
    pub fn with_room(self, kernels: &Kernels, channels: usize) -> Self {
        let stats = self.stats.map(|stats| stats.with_room(&self.gpu, channels));
        let data = match self.data.stride() >= channels {
            true => self.data,
            false => {
                let out = kernels.empty_map(self.data.pixels(), channels);
                let out = out.slice(0..self.data.channels());
                kernels.copy(&self.data, &out);
                out
            }
        };
        Self { data, stats, ..self }
    }

    /// Maps of `size` (batch, height, width) whose statistics nobody knows.
    pub fn new(kernels: &Kernels, data: ChannelsLast, size: [usize; 3]) -> Self {
        Self { gpu: kernels.gpu.clone(), data, size, parts: None, stats: None, pending: None }
    }

    /// The values of `images`, row by row.
    pub fn of_images(kernels: &Kernels, images: Images) -> Self {
        match &kernels.gpu.0 {
            #[cfg(feature = "cuda")]
            Backend::Cuda(_) => {
                Self::of_tensor(kernels, kernels.gpu.tensor(&images.buffer, images.shape), None)
            }
            Backend::Dry(_) => {
                let [batch, channels, height, width] = images.shape;
                let pixels = batch * height * width;
                let buffer = match channels == 1 {
                    // They are in this order already.
                    true => images.buffer,
                    // A tensor of Burn's.
                    false => kernels.gpu.empty(pixels * channels, kernels.element.storage()),
                };
                let data = ChannelsLast::new(buffer, pixels, channels);
                Self::new(kernels, data, [batch, height, width])
            }
        }
    }

    /// `[batch, channels, height, width]`.
    pub fn shape(&self) -> [usize; 4] {
        let [batch, height, width] = self.size;
        let channels = self.parts.as_ref().map(|parts| parts.channels());
        [batch, channels.unwrap_or(self.data.channels()), height, width]
    }
}

impl Kernels {
    /// What a kernel would have left of the channels of a map of which none has.
    pub fn map_partials(&self, map: &ChannelsLast, over: Over) -> Partials {
        let (pixels, channels) = (map.pixels() / over.images(), map.channels());
        let rows = blocks(pixels, 64).min(blocks(4 * self.multiprocessors, over.images()));
        let part = self.partials(rows, channels, over);
        let sizes = Sizes::of([pixels, channels, map.stride(), 0]);
        let grid = [rows, self.lanes(channels), over.images()];
        let buffers: Arguments<'_> = &[map, &part.buffer];
        self.gpu.launch(&self.get_over(NORM_STATISTICS, over), grid, buffers, &sizes);
        part
    }
}
