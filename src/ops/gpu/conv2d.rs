//! Convolutions of any size, for models that do not run fused.
//!
//! The kernels want the channels of a pixel side by side, as many as fill whole vectors. So a map
//! is transposed, and channels of zeros are added, before it is read; results are transposed back.

use super::channels_last::ChannelsLast;
use super::kernels::{Entry, Kernels, blocks, entry};
use super::weights::Packed;
use super::{Buffer, Convolution, Gpu, Sizes};
use crate::ops::Window;

const TRANSPOSE: Entry = entry!("transpose", 256, [TILES]);
const REDUCE_PADDED: Entry = entry!("reduce_padded", 256, []);

/// A square convolution on a GPU, with its gradients.
#[derive(Debug, Clone)]
pub struct Conv2d {
    kernels: Kernels,
    window: Window,
}

/// Elements of four dimensions in row-major order: a map, `[batch, channels, height, width]`, or a
/// weight, `[output, input, kernel, kernel]`.
#[derive(Debug, Clone)]
pub struct Nchw {
    /// The elements.
    pub buffer: Buffer,
    /// How many in each dimension.
    pub shape: [usize; 4],
}

impl Conv2d {
    /// On these kernels.
    pub fn new(kernels: Kernels, window: Window) -> Self {
        Self { kernels, window }
    }

    /// The GPU.
    pub fn gpu(&self) -> &Gpu {
        self.kernels.gpu()
    }

    fn sizes(&self, [batch, _, height, width]: [usize; 4]) -> Convolution {
        Convolution { size: [batch, height, width], window: self.window }
    }

    /// `[batch, output, height, width]` of a map and a weight of the same type.
    pub fn forward(&self, map: Nchw, weight: Nchw) -> Nchw {
        let (kernels, shape) = (&self.kernels, map.shape);
        let [output, input, kernel, wide] = weight.shape;
        let window = self.window.kernel;
        let expected = (input, kernel, wide);
        assert_eq!((shape[1], window, window), expected, "the weight of another convolution");
        let convolution = self.sizes(shape);
        let weight = kernels.forward_weight(weight);
        let map = kernels.padded(map);
        let [height, width] = convolution.output();
        let out = kernels.empty_map(shape[0] * height * width, output);
        kernels.convolve(&convolution, &map, &weight, &out, None);
        kernels.array_of(out, [shape[0], output, height, width])
    }

    /// The gradients of a map and a weight of these shapes from that of the result; the map's where the
    /// weight is given. The weight's is in 32 bits.
    pub fn backward(
        &self,
        [shape, weight_shape]: [[usize; 4]; 2],
        map: Nchw,
        weight: Option<Nchw>,
        gradient: Nchw,
    ) -> (Option<Nchw>, Nchw) {
        let kernels = &self.kernels;
        let convolution = self.sizes(shape);
        let gradient = kernels.padded(gradient);
        let of_map = weight.map(|weight| {
            let weight = kernels.input_gradient_weight(weight, gradient.channels());
            let pixels = convolution.size.iter().product();
            let found = kernels.empty_map(pixels, shape[1]);
            kernels.conv_backward_input(&convolution, &gradient, &weight, &found, false);
            kernels.array_of(found, shape)
        });
        let map = kernels.padded(map);
        let buffer = kernels.padded_weight_gradient(&convolution, &map, &gradient, weight_shape);
        (of_map, Nchw { buffer, shape: weight_shape })
    }
}

impl Kernels {
    /// The elements of `[batch, rows, ld_in]` as `[batch, columns, room]`, zero behind the rows; only
    /// the first columns are read.
    fn transposed(
        &self,
        from: &Buffer,
        [batch, rows, columns]: [usize; 3],
        ld_in: usize,
        room: usize,
    ) -> Buffer {
        let out = self.elements(batch * columns * room);
        let sizes = Sizes::of([batch, rows, columns, ld_in, room, 0]);
        let tiled = columns > 8 && room > 8;
        let grid = match tiled {
            true => batch * blocks(columns, 32) * blocks(room, 32),
            false => blocks(out.len(), 256).min(32 * self.multiprocessors),
        };
        let kernel = self.variant(TRANSPOSE, tiled.into(), &[("TILED", tiled.into())]);
        self.gpu.launch(&kernel, [grid, 1, 1], &[from, &out], &sizes);
        out
    }

    /// `map`, `[batch, channels, height, width]`, with channels of zeros up to whole vectors.
    fn padded(&self, map: Nchw) -> ChannelsLast {
        let Nchw { buffer, shape: [batch, channels, height, width] } = map;
        let (pixels, room) = (height * width, channels.next_multiple_of(self.vector()));
        let ready = pixels == 1 && room == channels;
        let rows = match ready {
            true => buffer,
            false => self.transposed(&buffer, [batch, channels, pixels], pixels, room),
        };
        ChannelsLast::new(rows, batch * pixels, room)
    }

    /// The values of `map` in the order of `shape`.
    fn array_of(&self, map: ChannelsLast, shape: [usize; 4]) -> Nchw {
        let [batch, channels, height, width] = shape;
        let pixels = height * width;
        let buffer = match pixels == 1 || channels == 1 {
            true => map.buffer().clone(),
            false => self.transposed(map.buffer(), [batch, pixels, channels], channels, pixels),
        };
        Nchw { buffer, shape }
    }

    /// `weight`, `[output, input, kernel, kernel]`, as `[output, kernel, kernel, input]` with input
    /// channels of zeros up to whole vectors.
    fn forward_weight(&self, weight: Nchw) -> Packed {
        let [output, ..] = weight.shape;
        let rows = self.padded(weight);
        let row = rows.pixels() / output * rows.channels();
        Packed { buffer: rows.buffer().clone(), row, tiled: false }
    }

    /// `weight` as `[input, kernel, kernel, room]`: output channels last, and zeros behind them.
    fn input_gradient_weight(&self, weight: Nchw, room: usize) -> Packed {
        let [output, input, height, width] = weight.shape;
        let (row, taps) = (input * height * width, height * width);
        let buffer = self.transposed(&weight.buffer, [1, output, row], row, room);
        Packed { buffer, row: taps * room, tiled: false }
    }

    /// The gradient of a weight of `shape` in 32 bits, from a map and a gradient with channels of
    /// zeros behind theirs.
    fn padded_weight_gradient(
        &self,
        convolution: &Convolution,
        map: &ChannelsLast,
        gradient: &ChannelsLast,
        [output, input, height, width]: [usize; 4],
    ) -> Buffer {
        let gradient = gradient.with_channels(output);
        let (splits, work) = match self.splits_products(convolution, [map, &gradient]) {
            true => self.split_product_over_pixels(&gradient, map),
            false => self.weight_gradient_parts(convolution, map, &gradient, true),
        };
        let (taps, room) = (height * width, map.channels());
        if splits == 1 && taps == 1 && room == input {
            return work;
        }
        let found = self.floats(output * input * taps);
        let sizes = Sizes::of([splits, output, input, taps, room, 0]);
        let grid = [blocks(found.len(), 256), 1, 1];
        self.gpu.launch(&self.get(REDUCE_PADDED), grid, &[&work, &found], &sizes);
        found
    }
}
