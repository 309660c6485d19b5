//! Feature maps as tensors.

use burn::tensor::{DType, Tensor};

use crate::ops::gpu::{Buffer, ChannelsLast, DeviceMap, Kernels};

impl DeviceMap {
    /// The values of `map`, `[batch, channels, height, width]`, rounded to the kernels' element.
    pub fn of_tensor(kernels: &Kernels, map: Tensor<4>) -> Self {
        let [batch, channels, height, width] = map.dims();
        let rows = map.permute([0, 2, 3, 1]).cast(kernels.element.storage().dtype());
        let buffer = Buffer::of_tensor(rows.reshape([-1]));
        let data = ChannelsLast::new(buffer, batch * height * width, channels);
        let (gpu, size) = (kernels.gpu.clone(), [batch, height, width]);
        Self { gpu, data, size, stats: None, pending: None }
    }

    /// The values in 32 bits, `[batch, channels, height, width]`.
    ///
    /// # Panics
    ///
    /// When something is missing of them.
    pub fn to_tensor(&self) -> Tensor<4> {
        assert!(self.pending.is_none(), "S is not yet the gradient");
        let [batch, height, width] = self.size;
        let (pixels, stride) = (self.data.pixels(), self.data.stride());
        // The last row may end with the last channel.
        let room = self.data.buffer().range(0..(pixels - 1) * stride + self.data.channels());
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
        let map = rows.narrow(3, 0, self.data.channels()).cast(DType::F32);
        map.permute([0, 3, 1, 2])
    }
}
