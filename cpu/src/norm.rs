//! Norms over a batch, forward and backward.
//!
//! One thread computes a channel, whose values of a batch seldom are more than the cache of a core holds: they
//! are read from memory once, and once more where the gradient is wanted. Sums are taken in an order that
//! depends on the sizes alone.

use std::mem::MaybeUninit;

use rayon::prelude::*;

use crate::Maps;
use crate::matrix::written;

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

/// A channel's values, image by image, which are still to be written.
type Planes<'a> = Vec<&'a mut [MaybeUninit<f32>]>;

/// Sums that are taken side by side.
const LANES: usize = 16;
/// Values that are summed in 32 bits, before all is summed in 64.
const BLOCK: usize = 8192;

impl BatchNorm {
    /// Less the mean, over the root of the variance and `epsilon`, times `weight`, plus `bias`, and 0 where that is
    /// less if ReLU follows.
    pub fn forward(
        &self,
        maps: Maps<'_>,
        [weight, bias]: [&[f32]; 2],
        epsilon: f32,
    ) -> (Vec<f32>, Statistics) {
        let (result, found) = self.written_by_channel(|channel, out| {
            let [mean, variance] = self.channel_statistics(maps, channel);
            let factor = weight[channel] / (variance + epsilon).sqrt();
            self.write_channel(Line { mean, factor, shift: bias[channel] }, maps, channel, out);
            [mean, variance]
        });
        let [mean, variance] = columns(found);
        (result, Statistics { mean, variance })
    }

    /// Mean and variance of each channel of `maps`.
    pub fn statistics(&self, maps: Maps<'_>) -> Statistics {
        let channels = (0..self.channels).into_par_iter();
        let found = channels.map(|channel| self.channel_statistics(maps, channel)).collect();
        let [mean, variance] = columns(found);
        Statistics { mean, variance }
    }

    fn channel_statistics(&self, maps: Maps<'_>, channel: usize) -> [f32; 2] {
        let blocks = || self.planes(maps, channel).flat_map(|plane| plane.chunks(BLOCK));
        let mean = self.mean(blocks().map(|block| sum(block, |value| value)));
        let squared = |value: f32| (value - mean) * (value - mean);
        [mean, self.mean(blocks().map(|block| sum(block, squared)))]
    }

    /// [`BatchNorm::forward`] with statistics that are given: those of more images than `maps` has.
    pub fn apply(
        &self,
        maps: Maps<'_>,
        statistics: &Statistics,
        parameters: [&[f32]; 2],
        epsilon: f32,
    ) -> Vec<f32> {
        let write = |channel: usize, out: Planes<'_>| {
            let line = Line::new(statistics, parameters, epsilon, channel);
            self.write_channel(line, maps, channel, out);
        };
        self.written_by_channel(write).0
    }

    /// Writes all values of a channel.
    fn write_channel(&self, line: Line, maps: Maps<'_>, channel: usize, out: Planes<'_>) {
        for (out, plane) in out.into_iter().zip(self.planes(maps, channel)) {
            let each = out.iter_mut().zip(plane);
            match self.relu {
                true => each.for_each(|(out, value)| {
                    out.write(rectified(line.at(*value)));
                }),
                false => each.for_each(|(out, value)| {
                    out.write(line.at(*value));
                }),
            }
        }
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
        let given = Given { maps, statistics, parameters, epsilon, gradient };
        let (of_maps, sums) = self.written_by_channel(|channel, out| {
            let sums = self.channel_sums(given, channel);
            let count = (self.batch * self.pixels) as f64;
            self.write_gradient(given, channel, sums.map(|sum| (sum / count) as f32), out);
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
        let given = Given { maps, statistics, parameters, epsilon, gradient };
        let sums =
            (0..self.channels).into_par_iter().map(|channel| self.channel_sums(given, channel));
        columns(sums.map(|sums| sums.map(|sum| sum as f32)).collect())
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
        let given = Given { maps, statistics, parameters, epsilon, gradient };
        let write = |channel: usize, out: Planes<'_>| {
            self.write_gradient(given, channel, means.map(|means| means[channel]), out);
        };
        self.written_by_channel(write).0
    }

    /// The gradients of a channel's weight and bias.
    fn channel_sums(&self, given: Given<'_>, channel: usize) -> [f64; 2] {
        match self.relu {
            true => self.channel_sums_behind(given, channel, passed),
            false => self.channel_sums_behind(given, channel, unchanged),
        }
    }

    /// The same, where `behind` is the gradient of the norm's result, from a value and the gradient of what follows.
    fn channel_sums_behind(
        &self,
        given: Given<'_>,
        channel: usize,
        behind: impl Fn(Line, f32, f32) -> f32,
    ) -> [f64; 2] {
        let line = given.line(channel);
        let planes = self.planes(given.maps, channel).zip(self.planes(given.gradient, channel));
        let blocks =
            planes.flat_map(|(plane, gradient)| plane.chunks(BLOCK).zip(gradient.chunks(BLOCK)));
        let sums = blocks.map(|(values, gradients)| {
            let behind = |value, gradient| behind(line, value, gradient);
            product_sums(values, gradients, line.mean, behind)
        });
        let [products, total] = sums.fold([0.0; 2], |[a, b], [c, d]| [a + c, b + d]);
        [products * f64::from(given.root(channel).recip()), total]
    }

    /// Writes the gradients of all values of a channel.
    fn write_gradient(&self, given: Given<'_>, channel: usize, means: [f32; 2], out: Planes<'_>) {
        match self.relu {
            true => self.write_gradient_behind(given, channel, means, out, passed),
            false => self.write_gradient_behind(given, channel, means, out, unchanged),
        }
    }

    fn write_gradient_behind(
        &self,
        given: Given<'_>,
        channel: usize,
        [share, shift]: [f32; 2],
        out: Planes<'_>,
        behind: impl Fn(Line, f32, f32) -> f32,
    ) {
        let (line, factor) = (given.line(channel), given.root(channel).recip());
        let scale = given.parameters[0][channel] * factor;
        let planes = self.planes(given.maps, channel).zip(self.planes(given.gradient, channel));
        for (out, (plane, gradient)) in out.into_iter().zip(planes) {
            for ((out, value), gradient) in out.iter_mut().zip(plane).zip(gradient) {
                let normal = (value - line.mean) * factor;
                let gradient = behind(line, *value, *gradient);
                out.write((gradient - shift - normal * share) * scale);
            }
        }
    }

    /// Maps of which `write` writes all values of a channel, with what it gives for each channel.
    fn written_by_channel<T: Send>(
        &self,
        write: impl Fn(usize, Planes<'_>) -> T + Sync,
    ) -> (Vec<f32>, Vec<T>) {
        let write = |out: &mut [MaybeUninit<f32>]| {
            let channels = self.by_channel(out).into_par_iter().enumerate();
            channels.map(|(channel, out)| write(channel, out)).collect()
        };
        // SAFETY: the planes of all channels are all values, and each is written.
        #[expect(unsafe_code, reason = "the result is not cleared before it is written")]
        unsafe {
            written(self.count(), write)
        }
    }

    fn count(&self) -> usize {
        self.batch * self.channels * self.pixels
    }

    /// The planes of each channel, image by image.
    fn by_channel<'a, T>(&self, maps: &'a mut [T]) -> Vec<Vec<&'a mut [T]>> {
        assert_eq!(maps.len(), self.count(), "the size of the maps");
        let mut channels: Vec<Vec<_>> = Vec::new();
        channels.resize_with(self.channels, || Vec::with_capacity(self.batch));
        for image in maps.chunks_exact_mut(self.channels * self.pixels) {
            let planes = image.chunks_exact_mut(self.pixels);
            channels.iter_mut().zip(planes).for_each(|(channel, plane)| channel.push(plane));
        }
        channels
    }

    fn planes<'a>(&self, maps: Maps<'a>, channel: usize) -> impl Iterator<Item = &'a [f32]> + 'a {
        let pixels = self.pixels;
        (0..self.batch).map(move |image| &maps.image(image)[channel * pixels..][..pixels])
    }

    fn mean(&self, sums: impl Iterator<Item = f64>) -> f32 {
        (sums.sum::<f64>() / (self.batch * self.pixels) as f64) as f32
    }
}

/// What the backward pass is given.
#[derive(Clone, Copy)]
struct Given<'a> {
    maps: Maps<'a>,
    statistics: &'a Statistics,
    parameters: [&'a [f32]; 2],
    epsilon: f32,
    gradient: Maps<'a>,
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

/// The gradient of the norm's result where ReLU follows.
fn passed(line: Line, value: f32, gradient: f32) -> f32 {
    if line.at(value) <= 0.0 { 0.0 } else { gradient }
}

/// The gradient of the norm's result where nothing follows.
fn unchanged(_line: Line, _value: f32, gradient: f32) -> f32 {
    gradient
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

    fn at(self, value: f32) -> f32 {
        (value - self.mean) * self.factor + self.shift
    }
}

/// ReLU; what is not a number stays so.
fn rectified(value: f32) -> f32 {
    if value <= 0.0 { 0.0 } else { value }
}

/// The sum of what `of` gives.
fn sum(values: &[f32], of: impl Fn(f32) -> f32) -> f64 {
    let mut sums = [0.0f32; LANES];
    let (whole, rest) = values.as_chunks::<LANES>();
    for values in whole {
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += of(*value));
    }
    let rest = rest.iter().map(|value| f64::from(of(*value)));
    sums.iter().map(|sum| f64::from(*sum)).chain(rest).sum()
}

/// The sums of the gradients times what the values are above the mean, and of the gradients, where `behind`
/// makes a gradient of a value and what there is for it.
fn product_sums(
    values: &[f32],
    gradients: &[f32],
    mean: f32,
    behind: impl Fn(f32, f32) -> f32,
) -> [f64; 2] {
    let mut sums = [[0.0f32; LANES]; 2];
    let ((values, few), (gradients, rest)) =
        (values.as_chunks::<LANES>(), gradients.as_chunks::<LANES>());
    for (values, gradients) in values.iter().zip(gradients) {
        let [products, totals] = &mut sums;
        for lane in 0..LANES {
            let gradient = behind(values[lane], gradients[lane]);
            products[lane] += gradient * (values[lane] - mean);
            totals[lane] += gradient;
        }
    }
    let few = few.iter().zip(rest).map(|(value, gradient)| {
        let gradient = behind(*value, *gradient);
        [gradient * (value - mean), gradient]
    });
    let [products, totals] = sums;
    let lanes = products.into_iter().zip(totals).map(|(product, total)| [product, total]);
    lanes.chain(few).fold([0.0; 2], |sums: [f64; 2], pair: [f32; 2]| {
        [sums[0] + f64::from(pair[0]), sums[1] + f64::from(pair[1])]
    })
}

#[cfg(test)]
mod tests;
