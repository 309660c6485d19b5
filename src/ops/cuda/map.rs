//! Feature maps between fused stages.

use burn::tensor::{DType, Tensor};

use super::columns::{Columns, Moments, Sums};
use super::kernels::{Entry, Kernels, blocks, entry};
use super::{Buffer, Gpu, Sizes};

const NORM_STATISTICS: Entry = entry!("norm_statistics", 256, [TILES, CHANNELS]);

/// Feature maps in a GPU's memory, or the gradient with respect to them.
#[derive(Debug, Clone)]
pub struct DeviceMap {
    /// Where they are.
    pub gpu: Gpu,
    /// The values: a row for each pixel, image by image. Rows may have room behind the channels.
    pub columns: Columns,
    /// Batch, height, width.
    pub size: [usize; 3],
    /// The statistics of the channels, where they are known; perhaps with room for more.
    pub moments: Option<Moments>,
    /// Of a gradient: the values are S, and this is what is missing of it (see [`Sums`]).
    pub pending: Option<Sums>,
}

impl DeviceMap {
    /// `[batch, channels, height, width]`.
    pub fn shape(&self) -> [usize; 4] {
        let [batch, height, width] = self.size;
        [batch, self.columns.channels(), height, width]
    }

    /// The values of `map`, `[batch, channels, height, width]`, rounded to the kernels' element.
    pub fn of_tensor(kernels: &Kernels, map: Tensor<4>) -> Self {
        let [batch, channels, height, width] = map.dims();
        let rows = map.permute([0, 2, 3, 1]).cast(kernels.element.storage().dtype());
        let buffer = Buffer::of_tensor(rows.reshape([-1]));
        let columns = Columns::new(buffer, batch * height * width, channels);
        let (gpu, size) = (kernels.gpu.clone(), [batch, height, width]);
        Self { gpu, columns, size, moments: None, pending: None }
    }

    /// The values in 32 bits, `[batch, channels, height, width]`.
    ///
    /// # Panics
    ///
    /// When something is missing of them.
    pub fn to_tensor(&self) -> Tensor<4> {
        assert!(self.pending.is_none(), "S is not yet the gradient");
        let [batch, height, width] = self.size;
        let (pixels, stride) = (self.columns.pixels(), self.columns.stride());
        // The last row may end with the last channel.
        let room = self.columns.buffer().range(0..(pixels - 1) * stride + self.columns.channels());
        let flat = self.gpu.tensor(&room, [room.len()]);
        let missing = pixels * stride - room.len();
        let flat = match missing {
            0 => flat,
            missing => {
                let options = (&flat.device(), flat.dtype());
                Tensor::cat(vec![flat, Tensor::zeros([missing], options)], 0)
            }
        };
        let rows = flat.reshape([batch, height, width, stride]);
        let map = rows.narrow(3, 0, self.columns.channels()).cast(DType::F32);
        map.permute([0, 3, 1, 2])
    }
}

impl Kernels {
    /// The statistics of a map that no kernel has left any of.
    pub fn map_statistics(&self, map: &Columns, out: &Moments) {
        let (pixels, channels) = (map.pixels(), map.channels());
        let rows = blocks(pixels, 64).min(4 * self.multiprocessors);
        let part = self.partials(rows, channels);
        let sizes = Sizes::new().int(pixels).int(channels).int(map.stride()).int(0);
        let grid = [rows, self.lanes(channels), 1];
        let buffers = [map.buffer(), &part.buffer];
        self.gpu.launch(&self.get(NORM_STATISTICS), grid, &buffers, &sizes);
        self.channel_statistics(&part, out);
    }
}
