//! Convolutions of any size.

use super::channels_last::{ChannelsLast, Over, Partials};
use super::gpu::{Argument, Arguments};
use super::hopper::Ring;
use super::kernels::{Entry, Kernels, blocks, entry};
use super::weights::Packed;
use super::{Buffer, Sizes, Untouched};
use crate::ops::Window;

const CONV_FORWARD: Entry = entry!("conv_forward", 256, [TILES, CHANNELS, GEMM, CONV]);
const CONV_BACKWARD_INPUT: Entry =
    entry!("conv_backward_input", 256, [TILES, CHANNELS, GEMM, CONV]);
const CONV_BACKWARD_WEIGHT: Entry =
    entry!("conv_backward_weight", 256, [TILES, CHANNELS, GEMM, CONV]);

/// The sizes of a square convolution.
#[derive(Debug, Clone, Copy)]
pub struct Convolution {
    /// Batch, height and width of the input.
    pub size: [usize; 3],
    /// Kernel, stride and padding.
    pub window: Window,
}

impl Convolution {
    /// The same of each image, where norms are taken over each: all, or one.
    pub(super) fn over(&self, over: Over) -> Self {
        let [batch, height, width] = self.size;
        Self { size: [batch / over.images(), height, width], ..*self }
    }

    /// Height and width of the output.
    pub(super) fn output(&self) -> [usize; 2] {
        let [_, height, width] = self.size;
        [height, width].map(|size| self.window.output(size))
    }

    /// Numbers of `map` that one number of the output is made of.
    pub(super) fn taps(&self, map: &ChannelsLast) -> usize {
        self.window.kernel * self.window.kernel * map.channels()
    }

    /// The fields that all of its kernels take.
    pub(super) fn sizes(&self, map: &ChannelsLast, out: &ChannelsLast) -> Sizes {
        let [batch, height, width] = self.size;
        let [out_height, out_width] = self.output();
        let sizes = Sizes::of([batch, height, width, map.channels(), out_height, out_width]);
        let sizes = sizes.int(out.channels());
        let Window { kernel, stride, padding } = self.window;
        let sizes = sizes.ints([kernel, kernel, stride, stride, padding, padding]);
        sizes.int(map.stride()).int(out.stride()).int(0)
    }

    /// The 128-pixel tiles of the input's gradient: input pixels are taken by their remainder under
    /// the stride.
    fn classes(&self) -> usize {
        let ([batch, height, width], stride) = (self.size, self.window.stride);
        let count = |size: usize, first: usize| size.saturating_sub(first).div_ceil(stride);
        let tiles = |y: usize, x: usize| blocks(batch * count(height, y) * count(width, x), 128);
        (0..stride).map(|y| (0..stride).map(|x| tiles(y, x)).sum::<usize>()).sum()
    }
}

/// The width of a tile for so many columns.
pub(super) fn tile(columns: usize) -> usize {
    if columns <= 64 { 64 } else { 128 }
}

impl Kernels {
    /// [`tile`] for so many channels that a convolution writes. Few of them are most of what a dense layer multiplies;
    /// Hopper's instructions for 2-byte elements have no tile for them.
    fn output_tile(&self, channels: usize) -> usize {
        if channels <= 32 && !self.hopper() { 32 } else { tile(channels) }
    }

    pub(super) fn chunked(&self, maps: &[&ChannelsLast]) -> usize {
        let vector = self.vector();
        let whole = |map: &&ChannelsLast| {
            map.channels().is_multiple_of(vector) && map.stride().is_multiple_of(vector)
        };
        usize::from(maps.iter().all(whole))
    }

    fn conv(&self, entry: Entry, chunked: usize, rows: usize, columns: usize) -> super::Kernel {
        let macros = [("CHUNKED", chunked), ("TILE_M", rows), ("TILE_N", columns)];
        self.variant(entry, chunked + 2 * rows + 1000 * columns, &macros)
    }

    /// Writes the convolution of `map` into `out`; returns what it leaves of its channels for a norm over
    /// `over`.
    pub fn conv_forward(
        &self,
        convolution: &Convolution,
        map: &ChannelsLast,
        weight: &Packed,
        out: &ChannelsLast,
        over: Over,
    ) -> Partials {
        if let Over::Images(_) = over {
            self.convolve(convolution, map, weight, out, None);
            return self.map_partials(out, over);
        }
        let part = self.partials(blocks(out.pixels(), 128), out.channels(), over);
        self.convolve(convolution, map, weight, out, Some(&part));
        part
    }

    /// Writes the convolution of `map` into `out`, and what it leaves of its channels into `part`, where
    /// that is wanted.
    pub fn convolve(
        &self,
        convolution: &Convolution,
        map: &ChannelsLast,
        weight: &Packed,
        out: &ChannelsLast,
        part: Option<&Partials>,
    ) {
        if part.is_none() && self.splits_products(convolution, [map, out]) {
            return self.split_product(map, weight, out);
        }
        let sizes = convolution.sizes(map, out).int(weight.row).int(part.is_some().into());
        let width = self.output_tile(out.channels());
        let tiles = blocks(out.pixels(), 128) * blocks(out.channels(), width);
        let any = || self.conv(CONV_FORWARD, self.chunked(&[map]), 128, width);
        let taps = convolution.window.kernel * convolution.window.kernel;
        let ring = self.ring(Ring::Forward, taps, [map, out], [width, tiles], Over::Batch);
        let kernel = ring.unwrap_or_else(any);
        let unwritten = Untouched(out.buffer());
        let part: &dyn Argument = part.map_or(&unwritten, |part| &part.buffer);
        let buffers: Arguments<'_> = &[map, &weight.buffer, out, part];
        let products = out.pixels() * out.channels() * convolution.taps(map);
        self.gpu.multiply(&kernel, [tiles, 1, 1], buffers, &sizes, products);
    }

    /// Writes the gradient of a convolution's input into `map` from that of its output, or adds it to what
    /// `map` has; `weight` is in the form for it.
    pub fn conv_backward_input(
        &self,
        convolution: &Convolution,
        gradient: &ChannelsLast,
        weight: &Packed,
        map: &ChannelsLast,
        added: bool,
    ) {
        if !added && self.splits_products(convolution, [gradient, map]) {
            return self.split_product(gradient, weight, map);
        }
        let classes = convolution.classes();
        let sizes = convolution.sizes(map, gradient).int(weight.row).int(classes);
        let sizes = sizes.int(usize::from(added)).int(0);
        let width = tile(map.channels());
        let tiles = classes * blocks(map.channels(), width);
        let any = || self.conv(CONV_BACKWARD_INPUT, self.chunked(&[gradient]), 128, width);
        let taps = convolution.window.kernel * convolution.window.kernel;
        let (maps, cut) = ([gradient, map], [width, tiles]);
        let ring = self.ring(Ring::BackwardInput, taps, maps, cut, Over::Batch);
        let kernel = ring.unwrap_or_else(any);
        let buffers: Arguments<'_> = &[gradient, &weight.buffer, map];
        let products = gradient.pixels() * gradient.channels() * convolution.taps(map);
        self.gpu.multiply(&kernel, [tiles, 1, 1], buffers, &sizes, products);
    }

    /// Writes the gradient of a convolution's weight, `[output, input, kernel, kernel]`.
    pub fn conv_backward_weight(
        &self,
        convolution: &Convolution,
        map: &ChannelsLast,
        gradient: &ChannelsLast,
        weight_gradient: &Buffer,
    ) {
        let (input, output) = (map.channels(), gradient.channels());
        let taps = convolution.window.kernel * convolution.window.kernel;
        let chunked = self.chunked(&[map, gradient]) == 1;
        let (splits, work) = self.weight_gradient_parts(convolution, map, gradient, chunked);
        self.reduce_partials(&work, weight_gradient, splits, [output, input, taps]);
    }

    /// The gradient of a convolution's weight in parts: how many, and `[parts, output, kernel, kernel,
    /// input]`. `chunked` where channels can be read in whole vectors; behind those of the gradient
    /// may then be zeros in its rows.
    pub(super) fn weight_gradient_parts(
        &self,
        convolution: &Convolution,
        map: &ChannelsLast,
        gradient: &ChannelsLast,
        chunked: bool,
    ) -> (usize, Buffer) {
        let (input, output) = (map.channels(), gradient.channels());
        let taps = convolution.window.kernel * convolution.window.kernel;
        let (high, wide) = (self.output_tile(output), tile(taps * input));
        let tiles = blocks(output, high) * blocks(taps * input, wide);
        let ring = self.weight_ring(false, [map, gradient], [high, wide], Over::Batch);
        let (splits, per) = match ring {
            Some(_) => self.ring_splits(gradient.pixels(), tiles),
            None => self.splits(gradient.pixels(), tiles),
        };
        let work = self.floats(splits * output * taps * input);
        let sizes = convolution.sizes(map, gradient).int(per).int(0);
        let any = || self.conv(CONV_BACKWARD_WEIGHT, chunked.into(), high, wide);
        let kernel = ring.unwrap_or_else(any);
        let buffers: Arguments<'_> = &[map, gradient, &work];
        let products = gradient.pixels() * output * taps * input;
        self.gpu.multiply(&kernel, [tiles, splits, 1], buffers, &sizes, products);
        (splits, work)
    }
}
