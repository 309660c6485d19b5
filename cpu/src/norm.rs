//! Norms over a batch, forward and backward.
//!
//! One thread computes a channel, whose values of a batch seldom are more than the cache of a core holds: they
//! are read from memory once, and once more where the gradient is wanted. Sums are taken in an order that
//! depends on the sizes alone.

use std::mem::MaybeUninit;

use rayon::prelude::*;

use crate::Maps;
use crate::matrix::{MatrixMut, written, written_in};
use crate::widest::widest;

/// The sizes of maps that are normalised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchNorm {
    /// Images.
    pub batch: usize,
    /// Channels.
    pub channels: usize,
    /// Height times width.
    pub pixels: usize,
    /// Whether ReLU follows.
    pub relu: bool,
}

/// Mean and biased variance of each channel.
#[derive(Debug, Clone, PartialEq)]
pub struct Statistics {
    /// Means.
    pub mean: Vec<f32>,
    /// Variances.
    pub variance: Vec<f32>,
}

/// Sums that are taken side by side.
const LANES: usize = 16;
/// Values that are summed in 32 bits, before all is summed in 64.
const BLOCK: usize = 8192;
/// Values that a thread takes at least.
const LEAST: usize = 4096;
/// Pixels of a map below which a channel's values of all images are copied side by side first: that costs less than a sum
/// for each image.
const FEW: usize = 128;

/// Buffers of a thread, for a channel's values side by side.
#[derive(Debug, Default)]
struct Scratch {
    given: [Vec<f32>; 2],
    result: Vec<f32>,
}

impl BatchNorm {
    /// Less the mean, over the root of the variance and `epsilon`, times `weight`, plus `bias`, and 0 where that is
    /// less if ReLU follows.
    pub fn forward(
        &self,
        maps: Maps<'_>,
        [weight, bias]: [&[f32]; 2],
        epsilon: f32,
    ) -> (Vec<f32>, Statistics) {
        let (result, found) = self.written_by_channel(|channel, scratch, out| {
            let planes = self.planes(maps, channel, &mut scratch.given[0]);
            let [mean, variance] = self.channel_statistics(planes.clone());
            let factor = weight[channel] / (variance + epsilon).sqrt();
            let line = Line { mean, factor, shift: bias[channel] };
            self.write_channel(line, planes, &mut scratch.result, out);
            [mean, variance]
        });
        let [mean, variance] = columns(found);
        (result, Statistics { mean, variance })
    }

    /// Mean and variance of each channel of `maps`.
    pub fn statistics(&self, maps: Maps<'_>) -> Statistics {
        let [mean, variance] = columns(self.each_channel(|channel, scratch| {
            self.channel_statistics(self.planes(maps, channel, &mut scratch.given[0]))
        }));
        Statistics { mean, variance }
    }

    fn channel_statistics<'a>(&self, planes: impl Iterator<Item = &'a [f32]> + Clone) -> [f32; 2] {
        let blocks = planes.flat_map(|plane| plane.chunks(BLOCK));
        let mean = self.mean(blocks.clone().map(sum));
        [mean, self.mean(blocks.map(|block| squared_deviations(block, mean)))]
    }

    /// [`BatchNorm::forward`] with statistics that are given: those of more images than `maps` has.
    pub fn apply(
        &self,
        maps: Maps<'_>,
        statistics: &Statistics,
        parameters: [&[f32]; 2],
        epsilon: f32,
    ) -> Vec<f32> {
        let write = |channel: usize, scratch: &mut Scratch, out: MatrixMut<'_>| {
            let line = Line::new(statistics, parameters, epsilon, channel);
            let planes = self.planes(maps, channel, &mut scratch.given[0]);
            self.write_channel(line, planes, &mut scratch.result, out);
        };
        self.written_by_channel(write).0
    }

    /// Writes all values of a channel.
    fn write_channel<'a>(
        &self,
        line: Line,
        planes: impl Iterator<Item = &'a [f32]>,
        scratch: &mut Vec<f32>,
        out: MatrixMut<'_>,
    ) {
        self.write_planes(scratch, out, planes, |out, plane| {
            normalise(line, self.relu, plane, out)
        });
    }

    /// The gradients of the maps, and of weight and bias.
    pub fn backward(
        &self,
        maps: Maps<'_>,
        statistics: &Statistics,
        parameters: [&[f32]; 2],
        epsilon: f32,
        gradient: Maps<'_>,
    ) -> (Vec<f32>, [Vec<f32>; 2]) {
        let given = Given { statistics, parameters, epsilon };
        let (of_maps, sums) = self.written_by_channel(|channel, scratch, out| {
            let planes = self.pairs([maps, gradient], channel, &mut scratch.given);
            let sums = self.channel_sums(given, channel, planes.clone());
            let count = (self.batch * self.pixels) as f64;
            let means = sums.map(|sum| (sum / count) as f32);
            self.write_gradient(given, channel, means, planes, &mut scratch.result, out);
            sums.map(|sum| sum as f32)
        });
        (of_maps, columns(sums))
    }

    /// The gradients of weight and bias alone: of these maps, where `statistics` are those of more images.
    pub fn parameter_gradients(
        &self,
        maps: Maps<'_>,
        statistics: &Statistics,
        parameters: [&[f32]; 2],
        epsilon: f32,
        gradient: Maps<'_>,
    ) -> [Vec<f32>; 2] {
        let given = Given { statistics, parameters, epsilon };
        columns(self.each_channel(|channel, scratch| {
            let planes = self.pairs([maps, gradient], channel, &mut scratch.given);
            self.channel_sums(given, channel, planes).map(|sum| sum as f32)
        }))
    }

    /// The gradient of the maps, given for each channel the means over all images of the gradient times the
    /// normalised value, and of the gradient: the sums of what [`BatchNorm::parameter_gradients`] gives, over the number
    /// of values.
    pub fn map_gradients(
        &self,
        maps: Maps<'_>,
        statistics: &Statistics,
        parameters: [&[f32]; 2],
        epsilon: f32,
        gradient: Maps<'_>,
        means: [&[f32]; 2],
    ) -> Vec<f32> {
        let given = Given { statistics, parameters, epsilon };
        let write = |channel: usize, scratch: &mut Scratch, out: MatrixMut<'_>| {
            let planes = self.pairs([maps, gradient], channel, &mut scratch.given);
            let means = means.map(|means| means[channel]);
            self.write_gradient(given, channel, means, planes, &mut scratch.result, out);
        };
        self.written_by_channel(write).0
    }

    /// The gradients of a channel's weight and bias.
    fn channel_sums<'a>(
        &self,
        given: Given<'_>,
        channel: usize,
        planes: impl Iterator<Item = (&'a [f32], &'a [f32])>,
    ) -> [f64; 2] {
        let line = given.line(channel);
        let blocks =
            planes.flat_map(|(plane, gradient)| plane.chunks(BLOCK).zip(gradient.chunks(BLOCK)));
        let sums =
            blocks.map(|(values, gradients)| product_sums(line, self.relu, values, gradients));
        let [products, total] = sums.fold([0.0; 2], |[a, b], [c, d]| [a + c, b + d]);
        [products * f64::from(given.root(channel).recip()), total]
    }

    /// Writes the gradients of all values of a channel.
    fn write_gradient<'a>(
        &self,
        given: Given<'_>,
        channel: usize,
        [share, shift]: [f32; 2],
        planes: impl Iterator<Item = (&'a [f32], &'a [f32])>,
        scratch: &mut Vec<f32>,
        out: MatrixMut<'_>,
    ) {
        let factor = given.root(channel).recip();
        let scale = given.parameters[0][channel] * factor;
        let slope = Slope { line: given.line(channel), factor, share, shift, scale };
        self.write_planes(scratch, out, planes, |out, (plane, gradient)| {
            gradient_of_maps(slope, self.relu, plane, gradient, out);
        });
    }

    /// Maps of which `write` writes all values of a channel, a row for each image, with what it gives for each channel.
    fn written_by_channel<T: Send>(
        &self,
        write: impl Fn(usize, &mut Scratch, MatrixMut<'_>) -> T + Sync,
    ) -> (Vec<f32>, Vec<T>) {
        let write = |out: &mut [MaybeUninit<f32>]| {
            // SAFETY: no product is added to it.
            #[expect(unsafe_code, reason = "the result is not cleared before it is written")]
            let out = unsafe { MatrixMut::unwritten(out, self.batch) };
            let channels = out.columns(self.pixels).into_par_iter().enumerate();
            let write = |scratch: &mut Scratch, (channel, out)| write(channel, scratch, out);
            channels.with_min_len(self.together()).map_init(Scratch::default, write).collect()
        };
        // SAFETY: the planes of all channels are all values, and each is written.
        #[expect(unsafe_code, reason = "the result is not cleared before it is written")]
        unsafe {
            written(self.batch * self.channels * self.pixels, write)
        }
    }

    /// What `work` gives for each channel.
    fn each_channel<T: Send>(&self, work: impl Fn(usize, &mut Scratch) -> T + Sync) -> Vec<T> {
        let channels = (0..self.channels).into_par_iter().with_min_len(self.together());
        channels.map_init(Scratch::default, |scratch, channel| work(channel, scratch)).collect()
    }

    /// Channels that a thread takes at least.
    fn together(&self) -> usize {
        (LEAST / (self.batch * self.pixels).max(1)).max(1)
    }

    /// A channel's values: in a plane for each image, or in one, which is put into `scratch`.
    fn planes<'a>(
        &self,
        maps: Maps<'a>,
        channel: usize,
        scratch: &'a mut Vec<f32>,
    ) -> impl Iterator<Item = &'a [f32]> + Clone {
        let of = |maps: Maps<'a>, count: usize, first: usize, pixels: usize| {
            (0..count).map(move |image| &maps.image(image)[first..][..pixels])
        };
        let apart = of(maps, self.batch, channel * self.pixels, self.pixels);
        if self.pixels >= FEW {
            return apart;
        }
        scratch.clear();
        apart.for_each(|plane| scratch.extend_from_slice(plane));
        of(Maps::new(scratch, scratch.len()), 1, 0, scratch.len())
    }

    /// [`BatchNorm::planes`] of two kinds of maps.
    fn pairs<'a>(
        &self,
        [maps, others]: [Maps<'a>; 2],
        channel: usize,
        [first, second]: &'a mut [Vec<f32>; 2],
    ) -> impl Iterator<Item = (&'a [f32], &'a [f32])> + Clone {
        self.planes(maps, channel, first).zip(self.planes(others, channel, second))
    }

    /// Lets `write` write each plane of a channel from one of `planes`; where those are one, it is written in `scratch`.
    fn write_planes<T>(
        &self,
        scratch: &mut Vec<f32>,
        mut out: MatrixMut<'_>,
        planes: impl Iterator<Item = T>,
        write: impl Fn(&mut [MaybeUninit<f32>], T),
    ) {
        if self.pixels >= FEW {
            planes.enumerate().for_each(|(image, plane)| write(out.line(image), plane));
            return;
        }
        let count = self.batch * self.pixels;
        // SAFETY: the plane has as many values, and all are written.
        #[expect(unsafe_code, reason = "values are not cleared before they are written")]
        let values =
            unsafe { written_in(scratch, count, |all| planes.for_each(|plane| write(all, plane))) };
        for (image, plane) in values.chunks_exact(self.pixels.max(1)).enumerate() {
            out.line(image).write_copy_of_slice(plane);
        }
    }

    fn mean(&self, sums: impl Iterator<Item = f64>) -> f32 {
        (sums.sum::<f64>() / (self.batch * self.pixels) as f64) as f32
    }
}

/// What the backward pass is given.
#[derive(Clone, Copy)]
struct Given<'a> {
    statistics: &'a Statistics,
    parameters: [&'a [f32]; 2],
    epsilon: f32,
}

impl Given<'_> {
    fn line(&self, channel: usize) -> Line {
        Line::new(self.statistics, self.parameters, self.epsilon, channel)
    }

    /// The standard deviation.
    fn root(&self, channel: usize) -> f32 {
        (self.statistics.variance[channel] + self.epsilon).sqrt()
    }
}

/// The two numbers of each channel, each kind by itself.
fn columns(pairs: Vec<[f32; 2]>) -> [Vec<f32>; 2] {
    [0, 1].map(|at| pairs.iter().map(|pair| pair[at]).collect())
}

/// What a channel's values become: less `mean`, times `factor`, plus `shift`.
#[derive(Clone, Copy)]
struct Line {
    mean: f32,
    factor: f32,
    shift: f32,
}

impl Line {
    fn new(
        statistics: &Statistics,
        [weight, bias]: [&[f32]; 2],
        epsilon: f32,
        channel: usize,
    ) -> Self {
        let root = (statistics.variance[channel] + epsilon).sqrt();
        let (mean, factor) = (statistics.mean[channel], weight[channel] / root);
        Self { mean, factor, shift: bias[channel] }
    }

    #[inline(always)]
    fn at(self, value: f32) -> f32 {
        (value - self.mean) * self.factor + self.shift
    }
}

/// What the gradient of a channel's maps is made of: the normalised values are multiplied by `share`, and these and `shift`
/// taken from the gradient of the result.
#[derive(Clone, Copy)]
struct Slope {
    line: Line,
    factor: f32,
    share: f32,
    shift: f32,
    scale: f32,
}

impl Slope {
    #[inline(always)]
    fn at(self, value: f32, gradient: f32) -> f32 {
        let normal = (value - self.line.mean) * self.factor;
        (gradient - self.shift - normal * self.share) * self.scale
    }
}

/// The gradient of the norm's result where ReLU follows.
#[inline(always)]
fn passed(line: Line, value: f32, gradient: f32) -> f32 {
    if line.at(value) <= 0.0 { 0.0 } else { gradient }
}

/// The gradient of the norm's result where nothing follows.
#[inline(always)]
fn unchanged(_line: Line, _value: f32, gradient: f32) -> f32 {
    gradient
}

/// ReLU; what is not a number stays so.
#[inline(always)]
fn rectified(value: f32) -> f32 {
    if value <= 0.0 { 0.0 } else { value }
}

widest! {
    /// The sum of the values.
    fn sum<'a>(values: &'a [f32]) -> f64 {
        sum_of(values, |value| value)
    }
}

widest! {
    /// The sum of the squares of what the values are above the mean.
    fn squared_deviations<'a>(values: &'a [f32], mean: f32) -> f64 {
        sum_of(values, |value| (value - mean) * (value - mean))
    }
}

/// The sum of what `of` gives.
#[inline(always)]
fn sum_of(values: &[f32], of: impl Fn(f32) -> f32) -> f64 {
    let mut sums = [0.0f32; LANES];
    let (whole, rest) = values.as_chunks::<LANES>();
    for values in whole {
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += of(*value));
    }
    let rest = rest.iter().map(|value| f64::from(of(*value)));
    sums.iter().map(|sum| f64::from(*sum)).chain(rest).sum()
}

widest! {
    /// The sums of the gradients of the norm's results times what the values are above the mean, and of the gradients.
    fn product_sums<'a>(line: Line, relu: bool, values: &'a [f32], gradients: &'a [f32]) -> [f64; 2] {
        match relu {
            true => product_sums_behind(line, values, gradients, passed),
            false => product_sums_behind(line, values, gradients, unchanged),
        }
    }
}

/// The same, where `behind` makes a gradient of a value and what there is for it.
#[inline(always)]
fn product_sums_behind(
    line: Line,
    values: &[f32],
    gradients: &[f32],
    behind: impl Fn(Line, f32, f32) -> f32,
) -> [f64; 2] {
    let mut sums = [[0.0f32; LANES]; 2];
    let ((values, few), (gradients, rest)) =
        (values.as_chunks::<LANES>(), gradients.as_chunks::<LANES>());
    for (values, gradients) in values.iter().zip(gradients) {
        let [products, totals] = &mut sums;
        for lane in 0..LANES {
            let gradient = behind(line, values[lane], gradients[lane]);
            products[lane] += gradient * (values[lane] - line.mean);
            totals[lane] += gradient;
        }
    }
    let few = few.iter().zip(rest).map(|(value, gradient)| {
        let gradient = behind(line, *value, *gradient);
        [gradient * (value - line.mean), gradient]
    });
    let [products, totals] = sums;
    let lanes = products.into_iter().zip(totals).map(|(product, total)| [product, total]);
    lanes.chain(few).fold([0.0; 2], |sums: [f64; 2], pair: [f32; 2]| {
        [sums[0] + f64::from(pair[0]), sums[1] + f64::from(pair[1])]
    })
}

widest! {
    /// Writes the norm's results.
    fn normalise<'a>(line: Line, relu: bool, values: &'a [f32], out: &'a mut [MaybeUninit<f32>]) {
        let each = out.iter_mut().zip(values);
        match relu {
            true => each.for_each(|(out, value)| {
                out.write(rectified(line.at(*value)));
            }),
            false => each.for_each(|(out, value)| {
                out.write(line.at(*value));
            }),
        }
    }
}

widest! {
    /// Writes the gradients of the values.
    fn gradient_of_maps<'a>(
        slope: Slope,
        relu: bool,
        values: &'a [f32],
        gradients: &'a [f32],
        out: &'a mut [MaybeUninit<f32>],
    ) {
        let each = out.iter_mut().zip(values.iter().zip(gradients));
        match relu {
            true => each.for_each(|(out, (value, gradient))| {
                out.write(slope.at(*value, passed(slope.line, *value, *gradient)));
            }),
            false => each.for_each(|(out, (value, gradient))| {
                out.write(slope.at(*value, *gradient));
            }),
        }
    }
}

#[cfg(test)]
mod tests;
