//! A dense layer's two convolutions with the norms before them.

use super::channels_last::{Affine, ChannelStats, ChannelsLast, GradientSums, Over, Partials};
use super::conv::{Convolution, tile};
use super::exchange::Synced;
use super::gpu::{Argument, Arguments};
use super::hopper::Ring;
use super::kernels::{Entry, Kernels, blocks, entry};
use super::norm::{ChannelNorm, NormBuffers, NormSums};
use super::weights::Packed;
use super::{Buffer, Sizes, Untouched};
use crate::ops::Dropout;

const LAYER_FORWARD: Entry = entry!("layer_forward", 256, [TILES, CHANNELS, GEMM, CONV, NORMED]);
const LAYER_WEIGHT: Entry = entry!("layer_weight", 256, [TILES, CHANNELS, GEMM, CONV, NORMED]);
const LAYER_BACKWARD: Entry = entry!("layer_backward", 256, [TILES, CHANNELS, GEMM, CONV]);

/// A norm with the statistics it was given, as its backward pass needs it.
#[derive(Debug, Clone, Copy)]
pub struct Normalised<'a> {
    /// The statistics of its input.
    pub stats: &'a ChannelStats,
    /// What it did to each channel.
    pub affine: &'a Affine,
    /// Its parameters.
    pub norm: &'a NormBuffers,
    /// What it is taken over, where several cards have some of the images.
    pub synced: Option<&'a Synced>,
}

/// The gradient of `map`, which norms read, before it is made of what they added up (see
/// [`Kernels::input_gradient`]).
#[derive(Debug, Clone, Copy)]
pub struct Summed<'a> {
    /// S = Σ γ·g.
    pub data: &'a ChannelsLast,
    /// The values that it is the gradient of.
    pub map: &'a ChannelsLast,
    /// Their statistics.
    pub stats: &'a ChannelStats,
    /// What is missing of S.
    pub missing: &'a GradientSums,
}

/// Dropout of what a layer wrote, as its backward pass needs it. The gradient of what was dropped is made before the
/// kernels that make it without dropout, and they change nothing of it.
#[derive(Debug, Clone)]
pub struct Dropped {
    /// The same as in the forward pass.
    pub dropout: Dropout,
    /// See [`Kernels::unchanged`].
    pub unchanged: Unchanged,
}

/// Statistics and sums with which [`Kernels::input_gradient`] changes nothing: a mean of 0, 1/√(variance + ε) of 1, and
/// nothing missing.
#[derive(Debug, Clone)]
pub struct Unchanged {
    stats: ChannelStats,
    missing: GradientSums,
}

/// A convolution with the norm and ReLU before it, as its backward pass reads it.
#[derive(Debug, Clone, Copy)]
pub struct NormedConvolution<'a> {
    /// Its window and sizes.
    pub convolution: &'a Convolution,
    /// Its weight, packed for the way back.
    pub weight: &'a Packed,
    /// What the norm reads.
    pub map: &'a ChannelsLast,
    /// The norm.
    pub normalised: Normalised<'a>,
}

/// Where the gradients of the parameters of a norm and of the convolution beside it are written.
#[derive(Debug, Clone, Copy)]
pub struct ParameterGradients<'a> {
    /// That of the convolution's weight, `[output, input, kernel, kernel]`.
    pub weight: &'a Buffer,
    /// Those of the norm.
    pub norm: &'a NormBuffers,
}

impl<'a> Summed<'a> {
    /// What kernels read of it: S, the values, mean, 1/√(variance + ε), and both that are missing.
    pub(super) fn arguments(&self) -> [&'a dyn Argument; 6] {
        let Self { data, map, stats, missing } = *self;
        [data, map, &stats.mean, &stats.inverse_std, &missing.shift, &missing.scale]
    }
}

impl<'a> Normalised<'a> {
    /// What kernels of a backward pass read of it: mean, 1/√(variance + ε), scale, shift, and what S adds up the
    /// gradient times: γ, or scale under GroupNorm.
    pub(super) fn arguments(&self) -> [&'a dyn Argument; 5] {
        let Self { stats, affine, norm, .. } = *self;
        let factor = match affine.over {
            Over::Batch => &norm.scale,
            Over::Images(_) => &affine.scale,
        };
        [&stats.mean, &stats.inverse_std, &affine.scale, &affine.shift, factor]
    }
}

impl Kernels {
    /// Writes norm, ReLU and 1×1 convolution of `map` into `out`; returns what it leaves of its
    /// channels.
    pub fn layer_forward(
        &self,
        map: &ChannelsLast,
        norm: &ChannelNorm<'_>,
        weight: &Packed,
        out: &ChannelsLast,
    ) -> Partials {
        let over = norm.affine.over;
        let pixels = map.pixels() / over.images();
        let part = match weight.tiled {
            true => {
                let rows = self.dense_pointwise_rows(pixels, over);
                self.telling_partials(rows, out.channels(), over)
            }
            false => self.partials(blocks(pixels, 128), out.channels(), over),
        };
        self.normed_convolve(map, norm, weight, out, Some(&part));
        part
    }

    /// Writes norm, ReLU and 1×1 convolution of `map` into `out`, and what it leaves of its channels into
    /// `part`, where that is wanted.
    pub fn normed_convolve(
        &self,
        map: &ChannelsLast,
        norm: &ChannelNorm<'_>,
        weight: &Packed,
        out: &ChannelsLast,
        part: Option<&Partials>,
    ) {
        if weight.tiled {
            return self.dense_pointwise_forward(map, norm, weight, out, part);
        }
        self.make_norm(norm);
        let affine = &norm.affine;
        let over = affine.over;
        let pixels = map.pixels() / over.images();
        let sizes = Sizes::of([pixels, map.channels(), out.channels(), map.stride(), out.stride()]);
        let sizes = sizes.ints([weight.row, part.is_some().into(), 0]);
        let width = tile(out.channels());
        let tiles = blocks(pixels, 128) * blocks(out.channels(), width);
        let any = || self.variant_over(LAYER_FORWARD, width, &[("TILE_N", width)], over);
        let ring = self.ring(Ring::LayerForward, 1, [map, out], [width, tiles], over);
        let kernel = ring.unwrap_or_else(any);
        let unwritten = Untouched(out.buffer());
        let part: &dyn Argument = part.map_or(&unwritten, |part| &part.buffer);
        let buffers: Arguments<'_> =
            &[map, &affine.scale, &affine.shift, &weight.buffer, out, part];
        let products = map.pixels() * map.channels() * out.channels();
        self.gpu.multiply(&kernel, [tiles, 1, over.images()], buffers, &sizes, products);
    }

    /// Writes norm, ReLU and 3×3 convolution of `map` into `out`; returns what it leaves of its
    /// channels.
    pub fn spatial_forward(
        &self,
        convolution: &Convolution,
        map: &ChannelsLast,
        norm: &ChannelNorm<'_>,
        weight: &Packed,
        out: &ChannelsLast,
    ) -> Partials {
        if self.dense_on_hopper(map.channels(), out.channels()) {
            return self.dense_conv_forward(convolution, map, norm, weight, out);
        }
        self.make_norm(norm);
        let normal = self.normalised(map, &norm.affine);
        self.conv_forward(convolution, &normal, weight, out, norm.affine.over)
    }

    /// The backward pass of [`Kernels::spatial_forward`], some of whose output was `dropped`: makes the gradient of
    /// its output of `written`, which may be overwritten, writes those of its parameters, and takes that of its output
    /// back to its map as [`Kernels::layer_backward`] does, the first to write S.
    pub fn spatial_backward(
        &self,
        layer: NormedConvolution<'_>,
        written: Summed<'_>,
        dropped: Option<&Dropped>,
        parameters: ParameterGradients<'_>,
        pending: (&ChannelsLast, &GradientSums),
    ) {
        let NormedConvolution { convolution, map, normalised, .. } = layer;
        let Normalised { affine, synced, .. } = normalised;
        let summed = written.data;
        let first = true;
        let written = match dropped {
            Some(Dropped { dropout, unchanged: Unchanged { stats: same, missing: none } }) => {
                self.input_gradient(written, synced);
                self.drop_out(summed, convolution.size[0], *dropout);
                Summed { stats: same, missing: none, ..written }
            }
            None => written,
        };
        if self.dense_on_hopper(map.channels(), summed.channels()) {
            let (out, sums) = pending;
            let (gradient, part) = self.dense_conv_backward(layer, written, out);
            let part = &part;
            let left = NormSums { part, normalised, gradients: parameters.norm, sums, first };
            self.dense_conv_weight(convolution, map, &gradient, parameters.weight, left);
            return;
        }
        if dropped.is_none() {
            self.input_gradient(written, synced);
        }
        let normal = self.normalised(map, affine);
        self.conv_backward_weight(convolution, &normal, summed, parameters.weight);
        self.layer_backward(layer, summed, parameters.norm, pending, first);
    }

    /// What [`Dropped`] needs of `channels` channels, for all layers of a pass.
    pub fn unchanged(&self, channels: usize, over: Over) -> Unchanged {
        let length = channels * over.images();
        let [zeros, ones] = [0.0, 1.0].map(|value| self.fill(self.small(length), value));
        let mean = zeros.clone();
        let pieces = [channels; 2];
        let stats = ChannelStats { mean, variance: ones.clone(), inverse_std: ones, over, pieces };
        Unchanged { stats, missing: GradientSums { shift: zeros.clone(), scale: zeros, over } }
    }

    /// The backward pass of [`Kernels::layer_forward`]: writes the gradients of its parameters, and takes that of
    /// its output, which may be made in place, back to its map as [`Kernels::layer_backward`] does, adding to S.
    pub fn pointwise_backward(
        &self,
        layer: NormedConvolution<'_>,
        gradient: Summed<'_>,
        parameters: ParameterGradients<'_>,
        pending: (&ChannelsLast, &GradientSums),
    ) {
        let NormedConvolution { map, normalised, .. } = layer;
        let data = gradient.data;
        if self.pointwise_on_hopper(map.channels(), data.channels()) {
            return self.dense_pointwise_backward(layer, gradient, parameters, pending);
        }
        self.input_gradient(gradient, normalised.synced);
        self.layer_weight(map, normalised.affine, data, parameters.weight);
        let first = false;
        self.layer_backward(layer, data, parameters.norm, pending, first);
    }

    /// Writes the gradient of the weight of [`Kernels::layer_forward`], `[output, input]`.
    pub fn layer_weight(
        &self,
        map: &ChannelsLast,
        affine: &Affine,
        gradient: &ChannelsLast,
        weight_gradient: &Buffer,
    ) {
        let (input, output) = (map.channels(), gradient.channels());
        let (high, wide) = (tile(output), tile(input));
        let tiles = blocks(output, high) * blocks(input, wide);
        let over = affine.over;
        let pixels = map.pixels() / over.images();
        let ring = self.weight_ring(true, [map, gradient], [high, wide], over);
        let (splits, per) = match ring {
            Some(_) => self.ring_splits(pixels, tiles),
            None => self.splits(pixels, tiles * over.images()),
        };
        let work = self.floats(over.images() * splits * output * input);
        let sizes = Sizes::of([pixels, input, output, map.stride(), gradient.stride(), per]);
        let macros = [("TILE_M", high), ("TILE_N", wide)];
        let any = || self.variant_over(LAYER_WEIGHT, high + 1000 * wide, &macros, over);
        let kernel = ring.unwrap_or_else(any);
        let buffers: Arguments<'_> = &[map, &affine.scale, &affine.shift, gradient, &work];
        let products = map.pixels() * input * output;
        self.gpu.multiply(&kernel, [tiles, splits, over.images()], buffers, &sizes, products);
        let splits = splits * over.images();
        self.reduce_partials(&work, weight_gradient, splits, [output, input, 1]);
    }

    /// Takes the gradient of the layer's output back to its map: writes the map's share into S, or adds it,
    /// writes the gradients of the norm's parameters, and writes or adds to what is missing of S.
    pub fn layer_backward(
        &self,
        layer: NormedConvolution<'_>,
        gradient: &ChannelsLast,
        norm_gradients: &NormBuffers,
        (summed, sums): (&ChannelsLast, &GradientSums),
        first: bool,
    ) {
        let NormedConvolution { convolution, weight, map, normalised } = layer;
        let [mean, inverse_std, scale, shift, gamma] = normalised.arguments();
        let over = normalised.stats.over;
        let rows = blocks(map.pixels() / over.images(), 128);
        let part = self.partials(rows, map.channels(), over);
        let sizes = convolution.over(over).sizes(map, gradient);
        let sizes = sizes.int(weight.row).int(summed.stride()).int(usize::from(!first)).int(0);
        let (packed, part_out) = (&weight.buffer, &part.buffer);
        let buffers: Arguments<'_> =
            &[gradient, packed, map, mean, inverse_std, scale, shift, gamma, summed, part_out];
        let width = tile(map.channels());
        let tiles = rows * blocks(map.channels(), width);
        let any = || self.variant_over(LAYER_BACKWARD, width, &[("TILE_N", width)], over);
        let taps = convolution.window.kernel * convolution.window.kernel;
        let ring = self.ring(Ring::LayerBackward, taps, [gradient, map], [width, tiles], over);
        let kernel = ring.unwrap_or_else(any);
        let products = gradient.pixels() * gradient.channels() * convolution.taps(map);
        self.gpu.multiply(&kernel, [tiles, 1, over.images()], buffers, &sizes, products);
        let (part, gradients) = (&part, norm_gradients);
        self.channel_sums(NormSums { part, normalised, gradients, sums, first });
    }
}
