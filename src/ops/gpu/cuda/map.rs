//! Feature maps as tensors.

use std::sync::Arc;

use burn::tensor::{DType, Tensor};

use crate::ops::gpu::{Buffer, ChannelParts, ChannelsLast, DeviceMap, Kernels};

impl DeviceMap {
    /// The values of `map`, `[batch, channels, height, width]`, rounded to the kernels' element; in rows
    /// whose channels lie in these parts.
    pub fn of_tensor(kernels: &Kernels, map: Tensor<4>, parts: Option<&Arc<ChannelParts>>) -> Self {
        let rows = map.permute([0, 2, 3, 1]).cast(kernels.element.storage());
        let rows = parts.map_or(rows.clone(), |parts| padded(rows, parts));
        let [batch, height, width, channels] = rows.dims();
        let buffer = Buffer::of_tensor(rows.reshape([-1]));
        let data = ChannelsLast::new(buffer, batch * height * width, channels);
        let (gpu, size) = (kernels.gpu.clone(), [batch, height, width]);
        Self { gpu, data, size, parts: parts.cloned(), stats: None, pending: None }
    }

    /// The values in 32 bits, `[batch, channels, height, width]`.
    ///
    /// # Panics
    ///
    /// When something is missing of them.
    pub fn to_tensor(&self) -> Tensor<4> {
        assert!(self.pending.is_none(), "S is not yet the gradient");
        let [batch, height, width] = self.size;
        let rows = self.rows().reshape([batch, height, width, self.data.stride()]);
        let rows = match &self.parts {
            Some(parts) => unpadded(&rows, parts),
            None => rows.narrow(3, 0, self.data.channels()),
        };
        rows.cast(DType::F32).permute([0, 3, 1, 2])
    }

    /// The values as they lie, with anything where rows have room behind the channels.
    pub fn rows(&self) -> Tensor<1> {
        let (pixels, stride) = (self.data.pixels(), self.data.stride());
        // The last row may end with the last channel.
        let room = self.data.buffer().range(0..(pixels - 1) * stride + self.data.channels());
        let flat = self.gpu.tensor(&room, [room.len()]);
        let missing = pixels * stride - room.len();
        match missing {
            0 => flat,
            missing => {
                let options = (&flat.device(), flat.dtype());
                Tensor::cat(vec![flat, Tensor::zeros([missing], options)], 0)
            }
        }
    }
}

/// The rows with zeros behind each part of their channels.
fn padded(rows: Tensor<4>, parts: &ChannelParts) -> Tensor<4> {
    let mut first = 0;
    let [batch, height, width, _] = rows.dims();
    let options = (&rows.device(), rows.dtype());
    let part = |[_, channels, zeros]: [usize; 3]| {
        let part = rows.clone().narrow(3, first, channels);
        first += channels;
        [part, Tensor::zeros([batch, height, width, zeros], options)]
    };
    let all = parts.parts().flat_map(part).filter(|part| part.dims()[3] > 0);
    Tensor::cat(all.collect(), 3)
}

/// The rows without the zeros behind each part of their channels.
fn unpadded(rows: &Tensor<4>, parts: &ChannelParts) -> Tensor<4> {
    let all = parts.parts().map(|[start, channels, _]| rows.clone().narrow(3, start, channels));
    Tensor::cat(all.collect(), 3)
}
